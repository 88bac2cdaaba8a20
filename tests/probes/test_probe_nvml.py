"""NVML asked through a real library: what it answers, how it fails, and nvidia-smi as the second witness."""

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import nvml
from gpudoctor.target import child
from tests.probes.nvml_machine import Ask, asker, faulty, h100, known, rows, values, why


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asker(tmp_path, monkeypatch)


def test_every_column_of_a_healthy_gpu(ask: Ask, tmp_path: Path) -> None:
    facts = ask(h100(), smi=f": > {tmp_path}/asked")
    assert not (tmp_path / "asked").exists()
    assert [known(facts[f"nvml.{name}"]) for name in ("state", "code", "library_version")] == ["ok", 0, "13.580.95.05"]
    assert isinstance(facts["nvml.message"], Absent)
    assert (known(facts["driver.version"]), known(facts["driver.cuda_version"])) == ("580.95.05", "13.0")
    assert (known(facts["gpu.count"]), facts["gpu_process"]) == (2, ())
    second = rows(facts)[1]
    found = values(second)
    assert found.pop("index") == 1
    assert str(found.pop("uuid")).startswith("GPU-")
    own = ("serial", "address", "temperature_c", "temperature_memory_c", "temperature_margin_c", "power_w")
    assert all(found.pop(name) for name in own)
    assert found == {
        "name": "NVIDIA H100 80GB HBM3",
        "brand": "NVIDIA",
        "architecture": "Hopper",
        "minor": 1,
        "compute_capability": "9.0",
        "vbios": "96.00.74.00.01",
        "inforom": "G520.0200.00.05",
        "memory_mib": 81559,
        "memory_used_mib": 1,
        "memory_reserved_mib": 454,
        "bar1_mib": 131072,
        "bar1_used_mib": 1,
        "persistence": True,
        "display": False,
        "compute_mode": "Default",
        "virtual": False,
        "virtualization": "none",
        "mps": False,
        "processes": 0,
        "mig": False,
        "mig_pending": False,
        "mig_instances": 0,
        "ecc": True,
        "ecc_pending": True,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "ecc_uncorrected_in": (),
        "ecc_corrected_aggregate": 0,
        "ecc_uncorrected_aggregate": 0,
        "sram_threshold_exceeded": False,
        "remapped_corrected": 0,
        "remapped_uncorrected": 0,
        "remap_pending": False,
        "remap_failed": False,
        "remap_banks_max": 2560,
        "remap_banks_high": 0,
        "remap_banks_partial": 0,
        "remap_banks_low": 0,
        "remap_banks_none": 0,
        "recovery_action": "none",
        "throttle_reasons": ("gpu_idle",),
        "pstate": 0,
        "temperature_slowdown_c": 89,
        "temperature_shutdown_c": 95,
        "temperature_max_c": 87,
        "link_generation": 5,
        "link_generation_max": 5,
        "link_generation_device_max": 5,
        "link_width": 16,
        "link_width_max": 16,
        "link_replays": 0,
        "clock_mhz": 345,
        "clock_max_mhz": 1980,
        "memory_clock_mhz": 2619,
        "memory_clock_max_mhz": 2619,
        "application_clock_mhz": 1980,
        "power_limit_w": 700,
        "power_limit_default_w": 700,
        "power_limit_min_w": 200,
        "power_limit_max_w": 700,
        "utilization": 0,
        "fabric_state": "completed",
        "fabric_status": 0,
        "fabric_health": (),
        "fabric_cluster": "00000000-0000-0000-0000-000000000000",
        "fabric_clique": 0,
        "numa_node": 0,
        "cpu_affinity": "0-55",
    }
    assert why(second["retired_pending"]) == "this GPU does not report it"
    assert why(second["license"]) == "only a vGPU needs a licence"
    assert why(second["error"]) == "it answers"


@pytest.mark.parametrize(
    ("code", "state", "message"),
    [
        (4, "no permission", "Insufficient Permissions"),
        (9, "driver not loaded", "Driver Not Loaded"),
        (15, "gpu is lost", "GPU is lost"),
        (17, "", ""),
        (18, "version mismatch", "Driver/library version mismatch"),
        (999, "unknown error", "Unknown Error"),
    ],
)
def test_init_that_fails_is_named_and_leaves_the_gpus_unread(ask: Ask, code: int, state: str, message: str) -> None:
    facts = ask({**h100(), "init": code})
    told = str(known(facts["nvml.message"]))
    assert known(facts["nvml.state"]) == (state or told.rstrip(".").lower())
    assert message in told
    assert known(facts["nvml.code"]) == code
    for name in ("gpu", "gpu.count", "nvlink", "p2p", "gpu_ecc", "gpu_process", "mig", "topology.pairs"):
        assert isinstance(facts[name], Unread)
        assert message in why(facts[name])


def test_a_missing_library_is_told_from_a_damaged_one_and_neither_is_a_missing_gpu(ask: Ask, tmp_path: Path) -> None:
    facts = ask(None)
    assert known(facts["nvml.state"]) == "library not found"
    assert "libnvidia-ml.so.1" in str(known(facts["nvml.message"]))
    assert isinstance(facts["gpu"], Unread)
    assert isinstance(facts["gpu.count"], Unread)
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    facts = ask(None)
    assert known(facts["nvml.state"]) == "library unusable"
    assert "file too short" in str(known(facts["nvml.message"]))


def test_no_gpu_and_no_peer_are_knowledge(ask: Ask) -> None:
    facts = ask(h100(0))
    assert known(facts["gpu.count"]) == 0
    assert facts["gpu"] == Absent("NVML lists no GPU")
    assert isinstance(facts["p2p"], Absent)
    facts = ask(h100(1))
    assert facts["p2p"] == facts["topology.pairs"] == Absent("a single GPU has no peer")


def test_one_lost_gpu_of_eight_leaves_seven(ask: Ask) -> None:
    facts = ask(faulty("nvmlDeviceGetHandleByIndex", 15, gpu=5, gpus=8))
    assert known(facts["nvml.state"]) == "ok"
    assert known(facts["gpu.count"]) == 8
    group = rows(facts)
    assert [row["index"] for row in group if isinstance(row["name"], Unread)] == [Known(5, "NVML")]
    assert len([row for row in group if isinstance(row["error"], Absent)]) == 7
    assert known(group[5]["error"]) == "nvmlDeviceGetHandleByIndex: GPU is lost (code 15)"
    assert known(group[5]["error_code"]) == 15
    assert isinstance(group[4]["error_code"], Absent)
    assert why(group[5]["name"]) == "NVML: GPU is lost"
    assert isinstance(group[5]["mps"], Unread)


def test_a_failing_getter_costs_one_column(ask: Ask) -> None:
    section = faulty("nvmlDeviceGetTemperature", 999, gpus=1)
    section["faults"].append({"call": "nvmlDeviceGetMarginTemperature", "do": 13})
    (row,) = rows(ask(section))
    assert why(row["temperature_c"]) == "NVML: Unknown Error (code 999)"
    assert why(row["temperature_margin_c"]) == "the driver's NVML is too old to tell"
    assert known(row["utilization"]) == 0


def test_a_gpu_lost_or_to_be_reset_between_two_calls_says_so(ask: Ask) -> None:
    (row,) = rows(ask(faulty("nvmlDeviceGetTemperature", 15, gpus=1)))
    assert known(row["error"]) == "GPU is lost"
    assert known(row["name"]) == "NVIDIA H100 80GB HBM3"
    assert why(row["serial"]) == "NVML: GPU is lost"
    (row,) = rows(ask(faulty("nvmlDeviceGetClockInfo", 16, gpus=1)))
    assert "restart" in str(known(row["error"])) or "reset" in str(known(row["error"])).lower()
    assert known(row["recovery_action"]) == "none"
    assert known(row["serial"])
    facts = ask(faulty("nvmlDeviceGetP2PStatus", 15, gpu=0))
    assert all(isinstance(row["error"], Absent) for row in rows(facts))
    assert why(rows(facts, "p2p")[0]["read"]) == "NVML: GPU is lost (code 15)"


def test_answers_that_contradict_each_other_are_reported(ask: Ask) -> None:
    section = h100(2, MemoryInfo={"total": 0, "free": 1 << 40, "used": 1 << 50, "reserved": 0}, Brand=4711)
    section["system"]["nvmlDeviceGetCount"] = 3
    section["faults"] = [{"call": "nvmlDeviceGetHandleByIndex", "gpu": 2, "do": 2}]
    section["every"]["nvmlDeviceGetFieldValues(91)"] = 1_000_000
    facts = ask(section)
    first, _, third = rows(facts)
    assert why(first["memory_mib"]).endswith("which makes no sense")
    assert known(first["memory_used_mib"]) == 1 << 30
    assert known(first["brand"]) == "unknown (4711)"
    assert isinstance(third["name"], Unread)
    assert known(third["error"]) == "nvmlDeviceGetHandleByIndex: Invalid Argument (code 2)"


def test_floods_of_gpus_and_processes_are_counted_and_cut(ask: Ask) -> None:
    section = h100(1)
    section["system"]["nvmlDeviceGetCount"] = 4_000_000_000
    facts = ask(section)
    assert known(facts["gpu.count"]) == 4_000_000_000
    assert len(rows(facts)) == 64
    listed = [{"pid": pid, "usedGpuMemory": 1 << 20} for pid in range(5_000_001, 5_020_001)]  # beyond any real one
    facts = ask(h100(1, ComputeRunningProcesses=listed))
    assert known(rows(facts)[0]["processes"]) == 20_000
    assert len(rows(facts, "gpu_process")) == 256
    assert known(facts["nvml.state"]) == "ok"


@pytest.mark.parametrize("name", ["NVIDIA \x1b[31mA100\n", "NVIDIA A100\udcff"], ids=["control", "no utf-8"])
def test_what_is_no_plain_text_is_escaped(ask: Ask, name: str) -> None:
    told = str(known(rows(ask(h100(1, Name=name)))[0]["name"]))
    assert told.startswith("NVIDIA ")
    assert "A100" in told
    assert told.isprintable()


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
        "speed_mbps": 26562,
        "remote": "switch",
        "crc_errors": 12,
        "replay_errors": 0,
        "recovery_errors": 0,
    }
    assert known(facts["topology.pairs"]) == ("GPU0-GPU1 NV3",)


@pytest.mark.parametrize(
    "every",
    [{"FieldValues(165,*)": {"code": 2}}, {"FieldValues(165,1)": 3}, {"CudaComputeCapability": [8, 0]}],
    ids=["a driver that does not know the field", "a state that it does not tell", "a GPU before Hopper"],
)
def test_links_whose_state_no_field_tells_are_asked_for_one_by_one(ask: Ask, every: dict[str, Any]) -> None:
    section = h100(2, **{"FieldValues(91)": 4, **every})
    section["gpus"][1]["nvmlDeviceGetNvLinkState(1)"] = 0
    states = [known(row["active"]) for row in rows(ask(section), "nvlink")]
    assert states == [True, True, True, True, True, False, True, True]


def test_a_link_that_sleeps_is_up(ask: Ask) -> None:
    section = h100(1, **{"FieldValues(91)": 2, "FieldValues(165,0)": 2, "FieldValues(165,1)": 0})
    assert [known(row["active"]) for row in rows(ask(section), "nvlink")] == [True, False]


def test_links_to_unlike_devices_have_each_its_own_kind(ask: Ask) -> None:
    """Links 0 and 1 lead to one switch, link 2 to a GPU; the address of links 3 and 4 is that of no device."""
    section = without(h100(1, **{"FieldValues(91)": 5}), "nvmlDeviceGetNvLinkRemotePciInfo")
    kinds = {0: 2, 1: 2, 2: 0, 3: 1, 4: 255}
    for link, kind in kinds.items():
        section["every"][f"nvmlDeviceGetNvLinkRemoteDeviceType({link})"] = kind
        address = {"busId": f"00000000:{0 if link > 2 else 5 + link // 2:02X}:00.0", "pciDeviceId": int(link < 3)}
        section["every"][f"nvmlDeviceGetNvLinkRemotePciInfo({link})"] = address
    found = [(known(row["remote"]), known(row["remote_address"])) for row in rows(ask(section), "nvlink")]
    switch = ("switch", "0000:05:00.0")
    assert found == [switch, switch, ("gpu", "0000:06:00.0"), ("npu", "0000:00:00.0"), ("unknown", "0000:00:00.0")]


def test_links_of_drivers_before_field_values_had_their_errors(ask: Ask) -> None:
    section = h100(1, **{"FieldValues(91)": 2, "NvLinkErrorCounter(*,2)": 3, "NvLinkErrorCounter(*,3)": 4})
    for field in ("161", "162", "163", "164,*"):
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


def test_memory_errors_by_place(ask: Ask) -> None:
    found = [values(row) for row in rows(ask(h100(1, **{"MemoryErrorCounter(1,1,7)": 3})), "gpu_ecc")]
    assert len(found) == 8
    assert {row["location"] for row in found} == {"dram", "sram"}
    assert [row for row in found if row["count"]] == [
        {"gpu": 0, "kind": "uncorrected", "since": "ever", "location": "sram", "count": 3}
    ]
    section = without(h100(1), "nvmlDeviceGetMemoryErrorCounter")
    section["every"].update(
        {f"nvmlDeviceGetMemoryErrorCounter(0,0,{location})": location for location in (0, 1, 2, 3, 4)}
    )
    older = {known(row["location"]): known(row["count"]) for row in rows(ask(section), "gpu_ecc")}
    assert older == {"dram": 2, "l1": 0, "l2": 1, "register": 3, "texture": 4}


@pytest.mark.parametrize(
    "answers",
    [
        {"FieldValues(29)": 2, "FieldValues(30)": 1, "FieldValues(31)": 1},
        {"RetiredPages(0)": [4096, 8192], "RetiredPages(1)": [1 << 33], "RetiredPagesPendingStatus": 1},
    ],
    ids=["field values", "lists"],
)
def test_retired_pages(ask: Ask, answers: dict[str, Any]) -> None:
    (row,) = rows(ask(without(h100(1, **answers), "nvmlDeviceGetRemappedRows")))
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


@pytest.mark.parametrize(
    ("answer", "column", "words"),
    [
        ({"CurrentClocksEventReasons": 0}, "throttle_reasons", ()),
        ({"CurrentClocksEventReasons": 0x48}, "throttle_reasons", ("hw_slowdown", "hw_thermal_slowdown")),
        ({"FieldValues(230)": 0}, "recovery_action", "none"),
        ({"FieldValues(230)": 1}, "recovery_action", "reset"),
        ({"FieldValues(230)": 3}, "recovery_action", "drain p2p"),
        ({"FieldValues(230)": 99}, "recovery_action", "unknown (99)"),
    ],
)
def test_codes_become_words(ask: Ask, answer: dict[str, int], column: str, words: object) -> None:
    assert known(rows(ask(h100(1, **answer)))[0][column]) == words


BANNER = """\
Tue Mar  4 11:02:31 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                    0 |
| N/A   31C    P0             70W /  700W |       1MiB /  81559MiB |      0%      Default |
|   1  NVIDIA GeForce RTX 3050 ...    Off |   00000000:5E:00.0 Off |                  N/A |
"""
HEADER = (
    "index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], mig.mode.current, compute_mode,"
    " ecc.errors.uncorrected.volatile.total, temperature.gpu, pcie.link.gen.current, pcie.link.gen.max,"
    " pcie.link.width.current, pcie.link.width.max, utilization.gpu [%]\n"
)
SECOND = (
    "1, NVIDIA GeForce RTX 3050 Laptop GPU, GPU-c7d2, 00000000:5E:00.0, 4096 MiB, 5 MiB, [N/A], Default, [N/A],"
    " [GPU is lost], 1, 4, 8, 16, 0 %\n"
)
CSV = (
    HEADER
    + "0, NVIDIA H100 80GB HBM3, GPU-a5b1, 00000000:3B:00.0, 81559 MiB, 1 MiB, Disabled, Default, 0, 31, 1, 5, 16, 16,"
    " 0 %\n" + SECOND
)


def printing(text: str, status: int = 0) -> str:
    return f"cat <<'END'\n{text}END\nexit {status}\n"


def test_nvidia_smi_answers_where_no_library_is_found(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(BANNER)}'
    facts = ask(None, smi)
    assert known(facts["nvml.state"]) == "library not found"
    assert facts["driver.version"] == Known("570.86.15", "nvidia-smi")
    assert facts["driver.cuda_version"] == Known("12.8", "nvidia-smi")
    assert known(facts["gpu.count"]) == 2
    first, second = rows(facts)
    assert known(first["memory_mib"]) == 81559
    assert known(first["address"]) == "0000:3b:00.0"
    assert known(first["mig"]) is False
    assert known(second["name"]) == "NVIDIA GeForce RTX 3050 Laptop GPU"
    assert isinstance(second["mig"], Absent)
    assert isinstance(second["temperature_c"], Unread)
    assert isinstance(second["remap_failed"], Unread)


def test_the_banners_own_table_serves_where_the_query_fails(ask: Ask, tmp_path: Path) -> None:
    facts = ask(None, f'[ -n "$1" ] && exit 2\n{printing(BANNER)}')
    first, second = rows(facts)
    assert known(first["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(second["name"], Unread), "a name that the table cuts short is not known"
    assert known(second["address"]) == "0000:5e:00.0"


def test_an_error_sentence_of_nvidia_smi_becomes_state_message_and_text(ask: Ask) -> None:
    """Which sentence tells which state is the readers' matter."""
    sentence = "Failed to initialize NVML: Driver/library version mismatch"
    facts = ask(None, printing(f"{sentence}\nNVML library version: 535.129\n", status=9))
    assert facts["nvml.state"] == Known("version mismatch", "nvidia-smi")
    assert known(facts["nvml.message"]) == sentence
    assert isinstance(facts["gpu"], Unread)
    assert [known(row["line"]) for row in rows(facts, "text")] == [sentence, "NVML library version: 535.129"]


def test_nvidia_smi_is_heard_beside_an_nvml_that_fails(ask: Ask) -> None:
    sentence = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n"
    facts = ask({**h100(), "init": 18}, printing(sentence, status=18))
    assert facts["nvml.state"] == Known("version mismatch", "NVML")
    assert facts["nvml.message"] == Known("Driver/library version mismatch", "NVML")
    assert known(rows(facts, "text")[1]["line"]) == "NVML library version: 570.133"


def test_rows_are_matched_by_index_where_nvidia_smi_leaves_a_gpu_out(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(HEADER + SECOND)}fi\n{printing(BANNER)}'
    section = faulty("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    section["faults"].append({"call": "nvmlDeviceGetUUID", "gpu": 1, "do": 999})
    facts = ask(section, smi)
    lost, alive = rows(facts)
    assert known(facts["gpu.count"]) == 2
    assert known(lost["error"]) == "nvmlDeviceGetHandleByIndex: GPU is lost (code 15)"
    assert isinstance(lost["name"], Unread)
    assert known(alive["uuid"]) == "GPU-c7d2"


def test_no_devices_were_found_is_knowledge(ask: Ask, tmp_path: Path) -> None:
    facts = ask(None, printing("No devices were found\n", status=6))
    assert known(facts["gpu.count"]) == 0
    assert isinstance(facts["gpu"], Absent)
    assert known(facts["nvml.state"]) == "library not found"


@pytest.mark.parametrize("noise", [printing("hello\n"), "head -c 4096 /dev/urandom\n", "exit 1\n", "exec sleep 60\n"])
def test_a_program_that_is_no_nvidia_smi_is_never_believed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    monkeypatch.setattr(nvml, "_SMI_SECONDS", 1.0)
    facts = ask(None, noise)
    assert known(facts["nvml.state"]) == "library not found"
    assert isinstance(facts["gpu"], Unread)
    assert str(tmp_path / "nvidia-smi") in why(facts["gpu"])
    assert not isinstance(facts["driver.version"], Known)
    assert "text" not in facts


def test_nvidia_smi_completes_what_a_crash_cut_off(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(BANNER)}'
    facts = ask(faulty("nvmlDeviceGetUUID", "crash", gpu=1), smi)
    assert known(facts["nvml.state"]) == "crashed"
    first, second = rows(facts)
    assert first["utilization"] == Known(0, "NVML")
    assert second["uuid"] == Known("GPU-c7d2", "nvidia-smi")
