"""What NVML says of links, peers, memory errors, MIG devices, processes, licences and the fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Known
from gpudoctor.target import child
from tests.probes.nvml_machine import Ask, asker, h100, known, rows, values, why


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asker(tmp_path, monkeypatch)


def without(section: dict[str, Any], *names: str) -> dict[str, Any]:
    """The section without the answers to these functions."""
    for part in (section["every"], *section["gpus"]):
        for call in [call for call in part if call.partition("(")[0] in names]:
            del part[call]
    return section


def test_a_link_that_is_down_among_links_that_are_up(ask: Ask) -> None:
    section = h100(2, **{"FieldValues(91)": 4})
    section["gpus"][1]["nvmlDeviceGetNvLinkState(2)"] = 0
    section["gpus"][0]["nvmlDeviceGetFieldValues(163,3)"] = 12
    facts = ask(section)
    links = {(row["gpu"], row["link"]): row for row in rows(facts, "nvlink")}
    assert len(links) == 8
    down = links[Known(1, "NVML"), Known(2, "NVML")]
    assert known(down["active"]) is False
    assert why(down["version"]) == why(down["crc_errors"]) == "the link is down"
    counting = values(links[Known(0, "NVML"), Known(3, "NVML")])
    assert counting.pop("remote_address")
    assert counting == {
        "gpu": 0,
        "link": 3,
        "active": True,
        "version": "4.0",
        "remote": "switch",
        "crc_errors": 12,
        "replay_errors": 0,
        "recovery_errors": 0,
    }
    assert known(facts["topology.pairs"]) == ("GPU0-GPU1 NV3",)


def test_links_of_drivers_before_field_values_had_their_errors(ask: Ask) -> None:
    section = h100(1, **{"FieldValues(91)": 2, "NvLinkErrorCounter(*,2)": 3, "NvLinkErrorCounter(*,3)": 4})
    for field in (161, 162, 163):
        section["every"][f"nvmlDeviceGetFieldValues({field})"] = {"code": 3}
    section["every"]["nvmlDeviceGetNvLinkErrorCounter(*,0)"] = 5
    first, second = rows(ask(section), "nvlink")
    assert (known(first["crc_errors"]), known(second["replay_errors"])) == (7, 5)


def test_links_between_gpus_are_counted_by_their_other_end(ask: Ask) -> None:
    """As in a DGX-1 or with a bridge: no switch, some pairs without any link."""
    section = without(
        h100(3, **{"FieldValues(91)": 2, "NvLinkRemoteDeviceType": 0}), "nvmlDeviceGetNvLinkRemotePciInfo"
    )
    section["every"]["nvmlDeviceGetTopologyCommonAncestor"] = 40
    for gpu, peer in ((0, 1), (1, 0)):
        address = section["gpus"][peer]["nvmlDeviceGetPciInfo"]
        section["gpus"][gpu]["nvmlDeviceGetNvLinkRemotePciInfo"] = address
    section["gpus"][2]["nvmlDeviceGetFieldValues(91)"] = {"code": 3}
    facts = ask(section)
    pairs = known(facts["topology.pairs"])
    assert isinstance(pairs, tuple)
    assert pairs[0] == "GPU0-GPU1 NV2"
    assert [pair.rpartition(" ")[0] for pair in map(str, pairs)] == ["GPU0-GPU1", "GPU0-GPU2", "GPU1-GPU2"]
    assert not str(pairs[1]).endswith("NV2")
    assert {known(row["remote"]) for row in rows(facts, "nvlink")} == {"gpu"}


@pytest.mark.parametrize(
    ("level", "path"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (7, "unknown (7)")],
)
def test_gpus_without_nvlink_meet_at_a_bridge(ask: Ask, level: int, path: str) -> None:
    section = without(h100(2, P2PStatus=1), "nvmlDeviceGetTopologyCommonAncestor")
    section["every"].update({"nvmlDeviceGetTopologyCommonAncestor": level, "nvmlDeviceGetFieldValues(91)": {"code": 3}})
    facts = ask(section)
    assert known(facts["topology.pairs"]) == (f"GPU0-GPU1 {path}",)
    assert why(facts["nvlink"]) == "no GPU here has NVLink"
    row = rows(facts, "p2p")[1]
    assert [known(row[name]) for name in ("gpu", "peer", "path", "read")] == [1, 0, path, "chipset not supported"]


def test_one_gpu_has_no_peer(ask: Ask) -> None:
    facts = ask(h100(1))
    assert facts["p2p"] == facts["topology.pairs"] == Absent("a single GPU has no peer")


def test_memory_errors_by_place_of_a_gpu_that_tells_sram_apart(ask: Ask) -> None:
    found = [values(row) for row in rows(ask(h100(1, **{"MemoryErrorCounter(1,1,7)": 3})), "gpu_ecc")]
    assert len(found) == 8
    assert {row["location"] for row in found} == {"dram", "sram"}
    assert [row for row in found if row["count"]] == [
        {"gpu": 0, "kind": "uncorrected", "since": "ever", "location": "sram", "count": 3}
    ]


def test_memory_errors_by_place_of_an_older_gpu(ask: Ask) -> None:
    section = without(h100(1), "nvmlDeviceGetMemoryErrorCounter")
    section["every"].update(
        {f"nvmlDeviceGetMemoryErrorCounter(0,0,{location})": location for location in (0, 1, 2, 3, 4)}
    )
    found = {known(row["location"]): known(row["count"]) for row in rows(ask(section), "gpu_ecc")}
    assert found == {"dram": 2, "l1": 0, "l2": 1, "register": 3, "texture": 4}


@pytest.mark.parametrize(
    "answers",
    [
        {"FieldValues(29)": 2, "FieldValues(30)": 1, "FieldValues(31)": 1},
        {"RetiredPages(0)": [4096, 8192], "RetiredPages(1)": [1 << 33], "RetiredPagesPendingStatus": 1},
    ],
    ids=["field values", "lists"],
)
def test_retired_pages(ask: Ask, answers: dict[str, Any]) -> None:
    (row,) = rows(ask(h100(1, **answers)))
    told = [known(row[f"retired_{name}"]) for name in ("single_bit", "double_bit", "pending")]
    assert told == [2, 1, True]


def test_mig_devices(ask: Ask) -> None:
    section = h100(2)
    section["gpus"][1]["nvmlDeviceGetMigMode"] = [1, 1]
    section["gpus"][1]["mig"] = [
        {"nvmlDeviceGetUUID": "MIG-1", "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 3g.40gb"},
        {
            "nvmlDeviceGetUUID": "MIG-2",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetAttributes": {
                "gpuInstanceSliceCount": 1,
                "computeInstanceSliceCount": 1,
                "memorySizeMB": 9856,
            },
        },
    ]
    facts = ask(section)
    assert [values(row) for row in rows(facts, "mig")] == [
        {"gpu": 1, "profile": "3g.40gb", "uuid": "MIG-1"},
        {"gpu": 1, "profile": "1g.10gb", "uuid": "MIG-2"},
    ]
    whole, divided = rows(facts)
    assert (known(whole["mig_instances"]), known(divided["mig_instances"])) == (0, 2)
    assert known(divided["mig"]) is True


def test_errors_since_the_driver_loaded_are_told_from_those_of_all_time(ask: Ask) -> None:
    counts = {"TotalEccErrors(0,0)": 1, "TotalEccErrors(1,0)": 2, "TotalEccErrors(0,1)": 30, "TotalEccErrors(1,1)": 40}
    (gpu,) = rows(ask(h100(1, **counts)))
    names = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate")
    assert [known(gpu[name]) for name in names] == [1, 2, 30, 40]


def test_processes_and_who_they_are(ask: Ask) -> None:
    section = h100(1, ComputeRunningProcesses=[{"pid": 5_004_242, "usedGpuMemory": 3 << 30}])
    section["every"]["nvmlDeviceGetMPSComputeRunningProcesses"] = [{"pid": 5_000_077, "usedGpuMemory": None}]
    section["system"]["nvmlSystemGetProcessName(5004242)"] = "python3 \x1b[2J"
    facts = ask(section)
    first, second = (values(row) for row in rows(facts, "gpu_process"))
    assert first == {"gpu": 0, "pid": 5_004_242, "name": "python3 \\x1b[2J", "memory_mib": 3072, "kind": "compute"}
    assert (second["pid"], second["kind"]) == (5_000_077, "mps")
    assert "memory_mib" not in second, "the driver does not know it"
    (gpu,) = rows(facts)
    assert (known(gpu["processes"]), known(gpu["mps"])) == (2, True)


def test_a_flood_of_processes_is_counted_and_cut(ask: Ask) -> None:
    listed = [{"pid": pid, "usedGpuMemory": 1 << 20} for pid in range(5_000_001, 5_020_001)]  # beyond any real one
    facts = ask(h100(1, ComputeRunningProcesses=listed))
    assert known(rows(facts)[0]["processes"]) == 20_000
    assert len(rows(facts, "gpu_process")) == 256
    assert known(facts["nvml.state"]) == "ok"


def test_our_own_children_on_a_gpu_are_no_users_of_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of level standard run while NVML is asked."""
    monkeypatch.setattr(child, "begun", {4242})
    listed = [{"pid": pid, "usedGpuMemory": 1 << 29} for pid in (4242, 4243)]
    facts = ask(h100(1, ComputeRunningProcesses=listed))
    assert [known(row["pid"]) for row in rows(facts, "gpu_process")] == [4243]
    assert known(rows(facts)[0]["processes"]) == 1


@pytest.mark.parametrize(
    ("enabled", "state", "end", "word"),
    [
        (1, 5, 4, "licensed"),
        (0, 4, 0, "unlicensed"),
        (0, 3, 2, "expired"),
        (0, 3, 0, "unlicensed (restricted)"),
        (0, 0, 0, "unlicensed"),
    ],
)
def test_the_licence_of_a_vgpu(ask: Ask, enabled: int, state: int, end: int, word: str) -> None:
    day = {"year": 2021, "month": 3, "day": 1, "hour": 0, "min": 0, "sec": 0, "status": end}
    feature = {
        "featureCode": 1,
        "featureState": state,
        "licenseInfo": "",
        "productName": "NVIDIA Virtual Compute Server",
        "featureEnabled": enabled,
        "licenseExpiry": day,
    }
    features = {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [feature]}
    (row,) = rows(ask(h100(1, VirtualizationMode=2, GridLicensableFeatures=features)))
    assert (known(row["virtualization"]), known(row["virtual"])) == ("vgpu", True)
    assert known(row["license"]) == word


def test_what_the_fabric_complains_of(ask: Ask) -> None:
    mask = 1 | 2 << 2 | 1 << 4 | 2 << 6 | 5 << 8  # bandwidth, no recovery, route, no timeout, too few links
    fabric = {"clusterUuid": "00112233445566778899aabbccddeeff", "status": 0, "cliqueId": 3, "state": 2}
    (row,) = rows(ask(h100(1, GpuFabricInfoV={**fabric, "healthMask": mask})))
    assert known(row["fabric_state"]) == "in progress"
    assert known(row["fabric_health"]) == ("degraded bandwidth", "route unhealthy", "incorrect configuration")
    assert known(row["fabric_cluster"]) == "00112233-4455-6677-8899-aabbccddeeff"
    assert known(row["fabric_clique"]) == 3


@pytest.mark.parametrize(("answer", "text"), [([0b1111, 1], "0-3,64"), ([5, 0], "0,2"), ([0, 0], None)])
def test_the_cpus_nearest_to_a_gpu(ask: Ask, answer: list[int], text: str | None) -> None:
    section = without(h100(1), "nvmlDeviceGetCpuAffinity")
    section["every"]["nvmlDeviceGetCpuAffinity"] = answer
    state = rows(ask(section))[0]["cpu_affinity"]
    assert (known(state) if text else why(state)) == (text or "this GPU does not report it")


@pytest.mark.parametrize(("bits", "names"), [(0, ()), (0x48, ("hw_slowdown", "hw_thermal_slowdown"))])
def test_clock_event_reasons(ask: Ask, bits: int, names: tuple[str, ...]) -> None:
    assert known(rows(ask(h100(1, CurrentClocksEventReasons=bits)))[0]["throttle_reasons"]) == names


@pytest.mark.parametrize(("code", "word"), [(0, "none"), (1, "reset"), (3, "drain p2p"), (99, "unknown (99)")])
def test_the_recovery_action(ask: Ask, code: int, word: str) -> None:
    assert known(rows(ask(h100(1, **{"FieldValues(230)": code})))[0]["recovery_action"]) == word
