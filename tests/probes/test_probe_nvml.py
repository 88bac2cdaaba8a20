"""NVML asked through a real shared library: what it answers, how its failures are named, what it says that is odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from tests.probes.nvml_machine import Ask, asker, faulty, h100, known, rows, values, why


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asker(tmp_path, monkeypatch)


def test_every_column_of_a_healthy_gpu(ask: Ask) -> None:
    facts = ask(h100())
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


def test_a_missing_library_is_no_missing_gpu(ask: Ask) -> None:
    facts = ask(None)
    assert known(facts["nvml.state"]) == "library not found"
    assert "libnvidia-ml.so.1" in str(known(facts["nvml.message"]))
    assert isinstance(facts["gpu"], Unread)
    assert isinstance(facts["gpu.count"], Unread)


def test_a_damaged_library_is_told_from_a_missing_one(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    facts = ask(None)
    assert known(facts["nvml.state"]) == "library unusable"
    assert "file too short" in str(known(facts["nvml.message"]))


def test_no_gpu_at_all_is_knowledge(ask: Ask) -> None:
    facts = ask(h100(0))
    assert known(facts["gpu.count"]) == 0
    assert facts["gpu"] == Absent("NVML lists no GPU")
    assert isinstance(facts["p2p"], Absent)


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


def test_a_gpu_lost_between_two_calls_says_so_and_is_asked_no_more(ask: Ask) -> None:
    (row,) = rows(ask(faulty("nvmlDeviceGetTemperature", 15, gpus=1)))
    assert known(row["error"]) == "GPU is lost"
    assert known(row["name"]) == "NVIDIA H100 80GB HBM3"
    assert why(row["serial"]) == "NVML: GPU is lost"


def test_a_call_about_two_gpus_blames_neither(ask: Ask) -> None:
    facts = ask(faulty("nvmlDeviceGetP2PStatus", 15, gpu=0))
    assert all(isinstance(row["error"], Absent) for row in rows(facts))
    assert why(rows(facts, "p2p")[0]["read"]) == "NVML: GPU is lost (code 15)"


def test_a_gpu_that_must_be_reset_still_answers(ask: Ask) -> None:
    (row,) = rows(ask(faulty("nvmlDeviceGetClockInfo", 16, gpus=1)))
    assert "restart" in str(known(row["error"])) or "reset" in str(known(row["error"])).lower()
    assert known(row["recovery_action"]) == "none"
    assert known(row["serial"])


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


def test_a_count_beyond_belief_gives_no_more_rows_than_a_machine_can_have(ask: Ask) -> None:
    section = h100(1)
    section["system"]["nvmlDeviceGetCount"] = 4_000_000_000
    facts = ask(section)
    assert known(facts["gpu.count"]) == 4_000_000_000
    assert len(rows(facts)) == 64


@pytest.mark.parametrize("name", ["NVIDIA \x1b[31mA100\n", "NVIDIA A100\udcff"], ids=["control", "no utf-8"])
def test_what_is_no_plain_text_is_escaped(ask: Ask, name: str) -> None:
    told = str(known(rows(ask(h100(1, Name=name)))[0]["name"]))
    assert told.startswith("NVIDIA ")
    assert "A100" in told
    assert told.isprintable()
