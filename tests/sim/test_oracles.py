"""The simulated NVML is faithful: gpustat reads from it what the scenario holds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.sim import clients


def test_gpustat_reads_the_scenario(tmp_path: Path) -> None:
    """Two GPUs at work, no two alike."""
    nvml = clients.hgx()
    for index, gpu in enumerate(nvml["gpus"]):
        gpu["nvmlDeviceGetUtilizationRates"] = {"gpu": 90 + index, "memory": 40 + index}
        gpu["nvmlDeviceGetTemperature(0)"] = 61 + index
        gpu["nvmlDeviceGetPowerUsage"] = 512_000 + 1000 * index
        memory = nvml["every"]["nvmlDeviceGetMemoryInfo"]
        used = (index + 1) << 34
        free = memory["total"] - memory["reserved"] - used
        gpu["nvmlDeviceGetMemoryInfo"] = {**memory, "used": used, "free": free}
    nvml["gpus"][1]["nvmlDeviceGetComputeRunningProcesses"] = [{"pid": os.getpid(), "usedGpuMemory": 3 << 30}]
    told = gpustat(nvml, tmp_path)
    assert told["driver_version"] == "580.95.05"
    for index, (got, own) in enumerate(zip(told["gpus"], nvml["gpus"], strict=True)):
        assert got["name"] == "NVIDIA H100 80GB HBM3"
        assert got["uuid"] == own["nvmlDeviceGetUUID"]
        assert got["temperature.gpu"] == 61 + index
        assert got["fan.speed"] is None, "an SXM board has no fan to ask about"
        assert got["utilization.gpu"] == 90 + index
        assert (got["power.draw"], got["enforced.power.limit"]) == (512 + index, 700)
        assert (got["memory.used"], got["memory.total"]) == ((index + 1) << 14, 81559)
    assert told["gpus"][0]["processes"] == []
    assert [(each["pid"], each["gpu_memory_usage"]) for each in told["gpus"][1]["processes"]] == [(os.getpid(), 3072)]


def test_gpustat_sees_a_lost_gpu_as_lost(tmp_path: Path) -> None:
    told = gpustat(clients.hgx(faults=[{"call": "*", "gpu": 1, "do": 15}]), tmp_path)["gpus"]
    assert [one["name"] for one in told] == ["NVIDIA H100 80GB HBM3", "((GPU is lost))"]


def gpustat(nvml: dict[str, Any], folder: Path) -> Any:
    return json.loads(clients.run(["-m", "gpustat", "--json"], clients.environ(folder, nvml)).stdout)
