"""What follows from a snapshot's own facts, and what must never be filled in."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.knowledge import complete


def completed(facts: dict[str, object] | None = None, kind: str = "report", **groups: Rows) -> Snapshot:
    """The completed snapshot of these facts; a bare value is known."""
    given: dict[str, Fact] = {
        name: value if isinstance(value, (Absent, Unread)) else Known(value, "case")  # type: ignore[arg-type]
        for name, value in (facts or {}).items()
    }
    return complete(Snapshot(Target(kind, "case"), given, groups))


def value(snapshot: Snapshot, name: str) -> object:
    fact = snapshot.get(name)
    return fact.value if isinstance(fact, Known) else fact


def gpus(*names: str, **columns: Fact) -> Rows:
    return tuple({"name": Known(name, "nvidia-smi"), **columns} for name in names)


LINUX = {"host.platform": "linux"}


class TestNoGpus:
    def test_a_bus_without_nvidia_means_no_gpu_whatever_kept_nvml_from_saying_so(self) -> None:
        snapshot = completed({"pci.nvidia_count": 0, "pci.devices": 6}, "local", gpu=Unread("NVML: no library"))
        assert isinstance(snapshot.rows("gpu"), Absent)
        assert value(snapshot, "gpu.count") == 0

    @pytest.mark.parametrize(
        "facts",
        [
            {"pci.nvidia_count": 1, "pci.devices": 6},
            {"pci.nvidia_count": 0, "pci.devices": 0},
            {"pci.nvidia_count": Unread("hidden"), "pci.devices": 6},
            {"pci.nvidia_count": 0},
        ],
    )
    def test_anything_less_leaves_it_open(self, facts: dict[str, object]) -> None:
        assert isinstance(completed(facts, "local", gpu=Unread("NVML hangs")).rows("gpu"), Unread)


class TestGpus:
    def test_compute_capability_by_name_and_count_by_rows(self) -> None:
        snapshot = completed(gpu=gpus("NVIDIA GeForce RTX 4090", "Tesla T4"))
        rows = snapshot.rows("gpu")
        assert isinstance(rows, tuple)
        assert [row["compute_capability"] for row in rows] == [
            Known("8.9", "table gpus: GeForce RTX 4090"),
            Known("7.5", "table gpus: Tesla T4"),
        ]
        assert value(snapshot, "gpu.count") == 2

    def test_this_machine_too(self) -> None:
        """An old driver's NVML does not give the capability."""
        rows = completed(kind="local", gpu=gpus("Tesla K80", compute_capability=Unread("not supported"))).rows("gpu")
        assert isinstance(rows, tuple)
        assert rows[0]["compute_capability"] == Known("3.7", "table gpus: Tesla K80")

    def test_what_was_read_stands(self) -> None:
        read = Known("9.9", "nvml")
        rows = completed(gpu=gpus("Tesla T4", compute_capability=read)).rows("gpu")
        assert isinstance(rows, tuple)
        assert rows[0]["compute_capability"] is read

    @pytest.mark.parametrize("name", ["NVIDIA GeForce ...", "NVIDIA Graphics Device", ""])
    def test_a_name_that_does_not_settle_it_leaves_it_open(self, name: str) -> None:
        rows = completed(gpu=gpus(name)).rows("gpu")
        assert isinstance(rows, tuple)
        assert "compute_capability" not in rows[0]

    def test_no_rows_no_count(self) -> None:
        assert value(completed(gpu=Absent("nvidia-smi lists none")), "gpu.count") == Unread(
            "the report does not say", asked=False
        )
        assert value(completed({"gpu.count": 8}, gpu=gpus("Tesla T4")), "gpu.count") == 8

    def test_names_by_pci_id(self) -> None:
        rows = completed(pci=({"device_id": Known("10de:2684", "sysfs")}, {"device_id": Known("1234:1111", "sysfs")}))
        listed = rows.rows("pci")
        assert isinstance(listed, tuple)
        assert listed[0]["name"] == Known("GeForce RTX 4090", "table gpus: PCI id 10de:2684")
        assert "name" not in listed[1]


class TestDriver:
    def test_newest_cuda_by_branch(self) -> None:
        snapshot = completed({"driver.version": "570.124.06"})
        assert snapshot.get("driver.cuda_version") == Known("12.8", "table drivers: branch of 570.124.06")

    @pytest.mark.parametrize("version", ["430.50", "9999.1", "unknown", Unread("hung"), Absent("no driver")])
    def test_open_where_the_table_cannot_say(self, version: object) -> None:
        assert isinstance(completed({"driver.version": version}).get("driver.cuda_version"), Unread)

    def test_what_the_banner_says_stands(self) -> None:
        """Forward compatibility makes nvidia-smi print a newer CUDA than the driver's own."""
        snapshot = completed({"driver.version": "535.54.03", "driver.cuda_version": "12.8"})
        assert value(snapshot, "driver.cuda_version") == "12.8"


class TestFirstXid:
    def test_consequences_are_skipped(self) -> None:
        xids: Rows = tuple({"code": Known(code, f"line {code}")} for code in (45, 154, 79, 31))
        assert completed(xid=xids).get("kernel_log.first_xid") == Known(79, "line 79")

    def test_only_consequences_is_none(self) -> None:
        assert isinstance(completed(xid=({"code": Known(45, "line 1")},)).get("kernel_log.first_xid"), Absent)

    def test_no_xid_leaves_it_open(self) -> None:
        assert isinstance(completed(xid=()).get("kernel_log.first_xid"), Unread)


class TestFirstOfEachGpu:
    def marks(self, *xids: tuple[int, str, bool | None]) -> list[object]:
        """Which of these (code, address, what it says of being fatal) is its GPU's first own fault."""
        rows: Rows = tuple(
            {
                "code": Known(code, "log"),
                "address": Known(address, "log"),
                "fatal": Absent("no word of it") if fatal is None else Known(fatal, "log"),
            }
            for code, address, fatal in xids
        )
        done = completed(xid=rows).rows("xid")
        assert isinstance(done, tuple)
        return [mark.value if isinstance(mark := row["first"], Known) else type(mark) for row in done]

    def test_each_gpu_has_one(self) -> None:
        assert self.marks((119, "a", None), (62, "a", None), (79, "b", None)) == [True, False, True]

    def test_consequences_programs_and_remapped_rows_do_not_lead(self) -> None:
        xids = ((code, "a", None) for code in (45, 31, 63, 109, 154))
        assert self.marks(*xids) == [False, False, False, True, False]

    def test_nvlink_events_say_it_themselves(self) -> None:
        assert self.marks((149, "a", False), (149, "a", True), (144, "b", None)) == [False, True, True]

    def test_a_code_nobody_knows_leaves_its_own_mark_open(self) -> None:
        assert self.marks((901, "a", None), (119, "a", None)) == [Unread, True]


def test_completing_twice_changes_nothing() -> None:
    once = completed({"torch.version": "2.5.1", "driver.version": "550.54.15", **LINUX}, gpu=gpus("Tesla T4"))
    assert complete(once) == once


def test_the_given_snapshot_is_left_as_it_was() -> None:
    given = Snapshot(Target("report", "case"), {"driver.version": Known("570.10", "case")}, {"gpu": gpus("Tesla T4")})
    complete(given)
    assert set(given.facts) == {"driver.version"}
    assert given.groups["gpu"] == gpus("Tesla T4")
