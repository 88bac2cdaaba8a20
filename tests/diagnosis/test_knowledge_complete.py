"""What follows from a snapshot's own facts, links that are lost among it, and what must never be filled in."""

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
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

    @pytest.mark.parametrize(
        ("read", "capability"),
        [
            (Unread("not supported"), Known("3.7", "table gpus: Tesla K80")),
            (Known("9.9", "nvml"), Known("9.9", "nvml")),
        ],
    )
    def test_what_was_read_stands_and_an_old_drivers_nvml_does_not_give_it(self, read: Fact, capability: Fact) -> None:
        rows = completed(kind="local", gpu=gpus("Tesla K80", compute_capability=read)).rows("gpu")
        assert isinstance(rows, tuple)
        assert rows[0]["compute_capability"] == capability

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
    def test_consequences_are_skipped_and_no_xid_leaves_it_open(self) -> None:
        xids = tuple({"code": Known(code, f"line {code}")} for code in (45, 154, 79, 31))
        assert completed(xid=xids).get("kernel_log.first_xid") == Known(79, "line 79")
        assert isinstance(completed(xid=xids[:1]).get("kernel_log.first_xid"), Absent)
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


def test_completing_twice_changes_nothing_and_leaves_what_was_given() -> None:
    once = completed({"torch.version": "2.5.1", "driver.version": "550.54.15", **LINUX}, gpu=gpus("Tesla T4"))
    assert complete(once) == once
    given = Snapshot(Target("report", "case"), {"driver.version": Known("570.10", "case")}, {"gpu": gpus("Tesla T4")})
    complete(given)
    assert set(given.facts) == {"driver.version"}
    assert given.groups["gpu"] == gpus("Tesla T4")


class TestTorchBuild:
    @pytest.mark.parametrize(
        ("version", "flavor", "cuda"),
        [("2.4.0+cu121", "cuda", "12.1"), ("2.7.0.dev20250310+cu128", "cuda", "12.8"), ("2.4.0+cpu", "cpu", None)],
    )
    def test_local_part(self, version: str, flavor: str, cuda: str | None) -> None:
        snapshot = completed({"torch.version": version})
        assert value(snapshot, "torch.flavor") == flavor
        if cuda:
            assert value(snapshot, "torch.cuda") == cuda
        else:
            assert snapshot.get("torch.cuda") == Absent(f"a cpu build: local part of torch {version}")
        assert isinstance(snapshot.get("torch.hip"), Absent)

    def test_rocm(self) -> None:
        snapshot = completed({"torch.version": "2.5.1+rocm6.2"})
        assert (value(snapshot, "torch.flavor"), value(snapshot, "torch.hip")) == ("rocm", "6.2")
        assert isinstance(snapshot.get("torch.cuda"), Absent)

    def test_plain_version_is_the_default_of_its_platform_and_says_so(self) -> None:
        snapshot = completed({"torch.version": "2.4.0", **LINUX})
        assert snapshot.get("torch.cuda") == Known("12.1", "table torch: the default Linux x86_64 wheel of 2.4.0")
        windows = completed({"torch.version": "2.4.0", "host.platform": "windows"})
        assert windows.get("torch.flavor") == Known("cpu", "table torch: the default Windows wheel of 2.4.0")
        mac = completed({"torch.version": "2.4.0", "host.platform": "macos"})
        assert value(mac, "torch.flavor") == "mps"
        arm = completed({"torch.version": "2.4.0", "host.arch": "aarch64", **LINUX})
        assert value(arm, "torch.flavor") == "cpu"

    def test_plain_version_says_nothing_on_an_unknown_platform_or_from_conda(self) -> None:
        assert isinstance(completed({"torch.version": "2.4.0"}).get("torch.flavor"), Unread)
        conda: Rows = ({"name": Known("pytorch", "line 3"), "installer": Known("conda", "line 3")},)
        assert isinstance(completed({"torch.version": "2.4.0", **LINUX}, package=conda).get("torch.flavor"), Unread)

    def test_flavor_from_what_torch_says_of_itself(self) -> None:
        """collect_env prints "CUDA used to build PyTorch" beside a version without local part."""
        snapshot = completed({"torch.version": "2.4.0", "torch.cuda": "12.4", **LINUX})
        assert value(snapshot, "torch.flavor") == "cuda"
        assert value(snapshot, "torch.cuda") == "12.4"
        none = completed({"torch.cuda": Absent("None"), "torch.hip": Absent("N/A"), "torch.version": "2.4.0", **LINUX})
        assert value(none, "torch.flavor") == "cpu"

    def test_no_torch_no_build(self) -> None:
        snapshot = completed({"torch.version": Absent("torch is not installed")})
        assert snapshot.get("torch.cuda") == Absent("torch is not installed")
        assert snapshot.get("torch.archs") == Absent("torch is not installed")

    def test_who_looked_and_failed_is_not_talked_over(self) -> None:
        failed = Unread("the probe torch_build was stopped after 8 s")
        snapshot = completed({"torch.version": "2.4.0+cu121", "torch.archs": failed, "torch.cuda": failed})
        assert snapshot.get("torch.cuda") == failed
        assert snapshot.get("torch.archs") == failed


class TestTorchArchs:
    def test_by_release_and_cuda(self) -> None:
        snapshot = completed({"torch.version": "2.6.0+cu124"})
        assert snapshot.get("torch.archs") == Known(
            ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
            "table torch: the cu124 Linux x86_64 wheel of 2.6.0",
        )

    def test_platforms_differ(self) -> None:
        """Windows wheels up to CUDA 12 list sm_61, Arm wheels begin at sm_80."""
        windows = completed({"torch.version": "2.5.1+cu124", "host.platform": "windows"})
        assert "sm_61" in str(value(windows, "torch.archs"))
        arm = completed({"torch.version": "2.9.0+cu128", "host.arch": "aarch64", **LINUX})
        assert value(arm, "torch.archs") == ("sm_80", "sm_90", "sm_100", "sm_120")

    def test_open_where_the_table_has_no_list(self) -> None:
        for facts in ({"torch.version": "2.7.0+cu128", "host.platform": "windows"}, {"torch.version": "2.99.0+cu128"}):
            assert isinstance(completed(dict(facts)).get("torch.archs"), Unread)


def packages(*listed: str) -> Rows:
    """Rows of what ``pip list`` prints: ``torch 2.4.0``."""
    pairs = [line.split() for line in listed]
    return tuple({"name": Known(name, "pip list"), "version": Known(version, "pip list")} for name, version in pairs)


class TestCompanions:
    @pytest.mark.parametrize(
        ("torch", "companion", "unmet"),
        [
            ("2.4.0", "torchvision 0.19.0", ()),
            ("2.4.1", "torchvision 0.19.0", ()),  # patch releases take each other
            ("2.4.0", "torchvision 0.15.2", ("torchvision 0.15.2 is for torch 2.0",)),
            ("1.13.1", "torchaudio 2.0.2", ("torchaudio 2.0.2 is for torch 2.0",)),
            ("2.13.0", "torchaudio 2.11.0", ()),  # the last torchaudio takes any torch
            ("2.4.0+cu121", "torchvision 0.19.0+cu124", ()),
            (
                "2.4.0+cu121",
                "torchvision 0.19.0+cpu",
                ("torchvision 0.19.0+cpu is a cpu build, torch 2.4.0+cu121 a cuda build",),
            ),
        ],
    )
    def test_listed_beside_one_torch(self, torch: str, companion: str, unmet: tuple[str, ...]) -> None:
        twice = packages(f"torch {torch}", companion, companion)  # as collect_env has it from pip and conda
        snapshot = completed({"torch.version": torch}, package=twice)
        assert value(snapshot, "torch.companions_unmet") == unmet

    @pytest.mark.parametrize(
        ("torch", "listed"),
        [
            ("2.4.0", ()),
            ("2.4.0", ("torch 2.1.0", "torchvision 0.15.2")),  # which of two torches?
            ("2.7.0a0+nv25.02", ("torchvision 0.22.0a0",)),  # vendor images pair commits
        ],
    )
    def test_open_where_nothing_follows(self, torch: str, listed: tuple[str, ...]) -> None:
        snapshot = completed({"torch.version": torch}, package=packages(*listed))
        assert isinstance(snapshot.get("torch.companions_unmet"), Unread)


class TestPins:
    def unmet(self, **wheels: str) -> object:
        facts: dict[str, object] = {**LINUX, "torch.version": "2.4.0", "torch.cuda": "12.1", "torch.flavor": "cuda"}
        listed = (f"{name.replace('_', '-')} {version}" for name, version in wheels.items())
        return value(completed(facts, package=packages("torch 2.4.0", *listed)), "torch.pins_unmet")

    def test_a_wheel_of_another_version_than_the_release_pins_is_told(self) -> None:
        """torch 2.4.0's METADATA pins nvidia-cudnn-cu12==9.1.0.70 and nvidia-nccl-cu12==2.20.5."""
        told = self.unmet(nvidia_cudnn_cu12="8.9.2.26", nvidia_nccl_cu12="2.20.5")
        assert told == ("nvidia-cudnn-cu12 wants 9.1.0.70, has 8.9.2.26",)

    def test_the_pinned_wheels_and_those_of_another_cuda_are_not(self) -> None:
        told = self.unmet(nvidia_cudnn_cu12="9.1.0.70", nvidia_nccl_cu12="2.20.5", nvidia_cudnn_cu13="9.9.0")
        assert isinstance(told, Unread)


def gpu(index: int, name: str = "NVIDIA A100-SXM4-80GB", **columns: Fact) -> Row:
    row: Row = {"index": Known(index, "NVML"), "name": Known(name, "NVML"), "error": Absent("it answers")}
    return {**row, **columns}


def link(of: int, at: int, active: Fact, remote: str = "switch") -> Row:
    return {"gpu": Known(of, "NVML"), "link": Known(at, "NVML"), "active": active, "remote": Known(remote, "NVML")}


def links(of: int, states: str, remote: str = "switch") -> tuple[Row, ...]:
    """``"110"``: two links up, the third down."""
    return tuple(link(of, at, Known(state == "1", "NVML"), remote) for at, state in enumerate(states))


def lost(gpus: tuple[Row, ...], nvlink: Rows, kind: str = "local", column: str = "links_lost") -> list[object]:
    rows = complete(Snapshot(Target(kind, "case"), {}, {"gpu": gpus, "nvlink": nvlink})).rows("gpu")
    assert isinstance(rows, tuple)
    return [state.value if isinstance(state := row[column], Known) else type(state).__name__ for row in rows]


def test_siblings_tell_which_links_are_lost() -> None:
    both = (gpu(0), gpu(1))
    states = (*links(0, "1111"), *links(1, "1001"))
    assert lost(both, states) == [(), (1, 2)]
    assert lost(both, states, column="links_down") == [(), (1, 2)]
    assert lost(both, states, column="links") == [4, 4]
    assert lost((gpu(0), gpu(1, "NVIDIA A800-SXM4-80GB")), (*links(0, "1111"), *links(1, "1100"))) == [(), ()]
    sliced = gpu(1, mig=Known(True, "NVML"))
    assert lost((gpu(0), sliced), (*links(0, "11"), *links(1, "00"))) == [(), "Absent"]


def test_what_was_not_read_is_unread_and_what_is_not_there_is_absent() -> None:
    silent = gpu(1, error=Known("GPU is lost", "NVML"))
    assert lost((gpu(0), silent), links(0, "11")) == [(), "Unread"]
    assert lost((gpu(0), gpu(1)), links(0, "11")) == [(), "Absent"]
    assert lost((gpu(0), gpu(1)), links(0, "11"), kind="report") == [(), "Unread"]
    assert lost((gpu(0),), Absent("no GPU here has NVLink")) == ["Absent"]
    assert lost((gpu(0),), (*links(0, "1"), link(0, 1, Unread("hung")))) == ["Unread"]
