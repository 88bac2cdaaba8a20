"""The simulated NVML is faithful: gpustat and NVIDIA's second binding read from it what the scenario holds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.sim import clients


@pytest.fixture
def busy() -> dict[str, Any]:
    """Two GPUs at work, no two alike: MIG devices on the first, errors and a dark link on the second."""
    nvml = clients.hgx()
    for index, gpu in enumerate(nvml["gpus"]):
        gpu["nvmlDeviceGetUtilizationRates"] = {"gpu": 90 + index, "memory": 40 + index}
        gpu["nvmlDeviceGetTemperature(0)"] = 61 + index
        gpu["nvmlDeviceGetPowerUsage"] = 512_000 + 1000 * index
        gpu["nvmlDeviceGetClockInfo(1)"] = 1755 + 15 * index
        used = (index + 1) << 34
        memory = nvml["every"]["nvmlDeviceGetMemoryInfo"]
        free = memory["total"] - memory["reserved"] - used
        gpu["nvmlDeviceGetMemoryInfo"] = {**memory, "used": used, "free": free}
    first, second = nvml["gpus"]
    process = {"pid": os.getpid(), "usedGpuMemory": 3 << 30}
    second["nvmlDeviceGetComputeRunningProcesses"] = [process]
    second["nvmlDeviceGetTotalEccErrors(1,0)"] = 4
    second["nvmlDeviceGetRemappedRows"] = [1, 2, 1, 0]
    second["nvmlDeviceGetNvLinkState(7)"] = 0
    second["nvmlDeviceGetNvLinkErrorCounter(7,2)"] = 55
    part = {"total": 10 << 30, "reserved": 0, "free": 9 << 30, "used": 1 << 30}
    first["nvmlDeviceGetMigMode"] = [1, 1]
    first["mig"] = [
        {
            "nvmlDeviceGetUUID": f"MIG-{index}",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "nvmlDeviceGetMemoryInfo": part,
            "nvmlDeviceGetGpuInstanceId": 7 + index,
            "nvmlDeviceGetComputeInstanceId": 0,
        }
        for index in range(2)
    ]
    return nvml


def test_gpustat_reads_the_scenario(busy: dict[str, Any], tmp_path: Path) -> None:
    done = clients.run(["-m", "gpustat", "--json"], clients.environ(tmp_path, busy))
    told = json.loads(done.stdout)
    assert told["driver_version"] == "580.95.05"
    for index, (got, own) in enumerate(zip(told["gpus"], busy["gpus"], strict=True)):
        assert got["name"] == "NVIDIA H100 80GB HBM3"
        assert got["uuid"] == own["nvmlDeviceGetUUID"]
        assert got["temperature.gpu"] == 61 + index
        assert got["fan.speed"] is None, "an SXM board has no fan to ask about"
        assert got["utilization.gpu"] == 90 + index
        assert (got["power.draw"], got["enforced.power.limit"]) == (512 + index, 700)
        assert (got["memory.used"], got["memory.total"]) == ((index + 1) << 14, 81559)
    assert told["gpus"][0]["processes"] == []
    assert [(each["pid"], each["gpu_memory_usage"]) for each in told["gpus"][1]["processes"]] == [(os.getpid(), 3072)]


def test_the_cuda_binding_reads_the_scenario(busy: dict[str, Any], tmp_path: Path) -> None:
    told = clients.read("read_bindings", clients.environ(tmp_path, busy))
    assert (told["driver"], told["cuda"]) == ("580.95.05", 13000)
    for index, (got, own) in enumerate(zip(told["gpus"], busy["gpus"], strict=True)):
        memory = own["nvmlDeviceGetMemoryInfo"]
        assert got["uuid"] == own["nvmlDeviceGetUUID"]
        assert got["address"] == own["nvmlDeviceGetPciInfo"]["busId"]
        assert got["memory"] == [memory["total"], memory["reserved"], memory["free"], memory["used"]]
        assert (got["temperature"], got["power"]) == (61 + index, 512_000 + 1000 * index)
        assert (got["utilization"], got["ecc"]) == (90 + index, [1, 1])
    first, second = told["gpus"]
    assert (first["mig"], second["mig"]) == ([1, 1], [0, 0])
    assert (first["ecc_uncorrected"], second["ecc_uncorrected"]) == (0, 4)
    assert (first["remapped"], second["remapped"]) == ([0, 0, 0, 0], [1, 2, 1, 0])
    assert first["links"] == [1] * 18 + ["InvalidArgumentError"] * 2
    assert second["links"] == [1] * 7 + [0] + [1] * 10 + ["InvalidArgumentError"] * 2
    assert second["link_errors"] == [0] * 7 + [55] + [0] * 10
    assert (first["processes"], second["processes"]) == ([], [[os.getpid(), 3 << 30]])


def test_both_see_a_lost_gpu_as_lost(tmp_path: Path) -> None:
    env = clients.environ(tmp_path, clients.hgx(faults=[{"call": "*", "gpu": 1, "do": 15}]))
    gpustat = json.loads(clients.run(["-m", "gpustat", "--json"], env).stdout)["gpus"]
    binding = clients.read("read_bindings", env)["gpus"]
    assert [gpustat[0]["name"], gpustat[1]["name"]] == ["NVIDIA H100 80GB HBM3", "((GPU is lost))"]
    assert binding[0]["name"] == "NVIDIA H100 80GB HBM3"
    assert binding[1] == {"handle": "GpuIsLostError"}
