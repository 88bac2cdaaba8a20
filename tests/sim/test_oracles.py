"""The simulated NVML is faithful: programs and bindings that others wrote read from it what the scenario holds."""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim import clients

LINKS = (0, 3, 17)
ARGUMENTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "nvmlDeviceGetNvLinkState": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkVersion": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkRemoteDeviceType": tuple((link,) for link in LINKS),
    "nvmlDeviceGetP2PStatus": tuple(itertools.product((0, 1), range(4))),
    "nvmlDeviceGetTopologyCommonAncestor": ((0,), (1,)),
    "nvmlDeviceOnSameBoard": ((0,), (1,)),
}
"""Arguments with which to ask the functions that the scenario answers whatever they are."""

NOT_ON_H100: dict[str, Any] = {
    "nvmlDeviceGetNvLinkState(3)": 77,
    "nvmlDeviceGetP2PStatus(*,2)": 78,
    "nvmlDeviceGetP2PStatus(1,*)": 79,
    "nvmlDeviceGetFieldValues(138,3)": 80,
    "nvmlDeviceGetFieldValues(138)": 81,
    "nvmlDeviceGetFieldValues(83)": 1 << 40,
    "nvmlDeviceGetFieldValues(900)": 0.25,
    "nvmlDeviceGetFieldValues(901)": {"code": 23},
    "nvmlDeviceGetNumFans": 2,
    "nvmlDeviceGetFanSpeed": 40,
    "nvmlDeviceGetFanSpeed(1)": 41,
    "nvmlDeviceGetTargetFanSpeed(1)": 42,
    "nvmlDeviceGetMinMaxFanSpeed": [43, 44],
    "nvmlDeviceGetFanControlPolicy(0)": 45,
    "nvmlDeviceGetFanSpeedRPM": 1546,
    "nvmlDeviceGetRetiredPages(0)": [1 << 33, 4096],
    "nvmlDeviceGetRetiredPages(1)": [],
    "nvmlDeviceGetRetiredPagesPendingStatus": 1,
    "nvmlDeviceGetGpuOperationMode": [46, 47],
    "nvmlDeviceGetDriverModel": [48, 49],
    "nvmlDeviceGetAutoBoostedClocksEnabled": [50, 51],
    "nvmlDeviceGetEncoderCapacity(0)": 52,
    "nvmlDeviceGetGpcClkVfOffset": -53,
    "nvmlDeviceGetMemClkVfOffset": 54,
    "nvmlDeviceGetGpcClkMinMaxVfOffset": [-55, 56],
    "nvmlDeviceGetMemClkMinMaxVfOffset": [-57, 58],
    "nvmlDeviceGetNumaNodeId": 59,
    "nvmlDeviceGetHostVgpuMode": 60,
    "nvmlDeviceGetIndex": 61,
    "nvmlDeviceGetDetailedEccErrors(0,1)": {"l1Cache": 1, "l2Cache": 2, "deviceMemory": 3, "registerFile": 4},
    "nvmlDeviceGetPdi": 1 << 63,
    "nvmlDeviceGetGpuInstanceId": 62,
    "nvmlDeviceGetComputeInstanceId": 63,
    "nvmlDeviceGetGpuInstanceRemainingCapacity(19)": 64,
    "nvmlDeviceGetAttributes": {"multiprocessorCount": 16, "gpuInstanceSliceCount": 1, "memorySizeMB": 9856},
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": {"total": 3, "free": 2, "used": 1},
    "nvmlDeviceGetPlatformInfo": {
        "ibGuid": "00ff" * 8,
        "chassisSerialNumber": "3132" * 8,
        "slotNumber": 7,
        "moduleId": 3,
    },
    "nvmlDeviceGetGpuFabricInfoV": {
        "clusterUuid": "00a1" * 8,
        "status": 999,
        "cliqueId": 5,
        "state": 2,
        "healthMask": 9,
    },
    "nvmlDeviceGetComputeRunningProcesses": [
        {"pid": 101, "usedGpuMemory": 1 << 34, "gpuInstanceId": 3, "computeInstanceId": 0},
        {"pid": 102, "usedGpuMemory": None, "gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF},
    ],
    "nvmlDeviceGetGraphicsRunningProcesses": [{"pid": 103, "usedGpuMemory": 65536}],
    "nvmlDeviceGetMPSComputeRunningProcesses": [{"pid": 104, "usedGpuMemory": 0}],
    "nvmlDeviceGetRunningProcessDetailList(1)": [{"pid": 105, "usedGpuMemory": 7, "usedGpuCcProtectedMemory": 8}],
    "nvmlDeviceGetProcessUtilization": [{"pid": 106, "timeStamp": 1 << 50, "smUtil": 91, "memUtil": 92}],
    "nvmlDeviceGetGridLicensableFeatures": {
        "isGridLicenseSupported": 1,
        "licensableFeaturesCount": 1,
        "gridLicensableFeatures": [
            {"featureCode": 3, "featureState": 1, "productName": "NVIDIA RTX Virtual Workstation", "featureEnabled": 1}
        ],
    },
}
"""Answers of every shape that an H100 does not give, or gives too plainly to tell one field from another."""


@pytest.fixture(scope="module")
def distinct() -> dict[str, Any]:
    """Two GPUs on which no two numbers are the same, so that none can be taken for another."""
    numbers = itertools.count(1001)

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner) for inner in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return -next(numbers) if value < 0 else next(numbers) + (1 << 40 if value >> 32 else 0)
        return value

    nvml = clients.hgx()
    kept = {"nvmlDeviceGetFieldValues(91)": 18, "nvmlDeviceGetProcessUtilization": {"code": 6}}
    gpus = [changed(copy.deepcopy(gpu)) for gpu in nvml["gpus"]]
    return {**nvml, "every": {**changed(nvml["every"]), **kept, **NOT_ON_H100}, "gpus": gpus}


def questions(nvml: dict[str, Any]) -> Iterator[clients.Question]:
    """One for each key of the scenario at least."""
    for key in nvml["system"]:
        function, _, arguments = key.rstrip(")").partition("(")
        yield None, function, tuple(map(int, arguments.split(","))) if arguments else ()
    for gpu, own in enumerate(nvml["gpus"]):
        for key in {**nvml["every"], **own}:
            function, _, arguments = key.rstrip(")").partition("(")
            if arguments:
                choices: list[tuple[int, ...]] = [LINKS if at == "*" else (int(at),) for at in arguments.split(",")]
                if "P2P" in function or "Topology" in function:  # these GPUs, not links or any GPU
                    choices[0] = (0, 1)
                yield from ((gpu, function, each) for each in itertools.product(*choices))
            else:
                yield from ((gpu, function, each) for each in ARGUMENTS.get(function, ((),)))


def expected(nvml: dict[str, Any], question: clients.Question) -> Any:
    """The scenario's answer, found as its format says: the GPU's own before every GPU's, the exact key first."""
    gpu, function, arguments = question
    if gpu is None:
        return nvml["system"][function + (f"({','.join(map(str, arguments))})" if arguments else "")]
    masks = sorted(itertools.product((0, 1), repeat=len(arguments)), key=lambda mask: (sum(mask), mask[::-1]))
    for section in (nvml["gpus"][gpu], nvml["every"]):
        for mask in masks:
            shown = ["*" if star else str(at) for star, at in zip(mask, arguments, strict=True)]
            while shown:
                if (key := f"{function}({','.join(shown)})") in section:
                    return section[key]
                if shown.pop() != "*":
                    break
        if function in section:
            return section[function]
    return {"code": 3}


def holds(got: Any, wanted: Any) -> bool:
    """Whether the answer is what is wanted; of an object, the members that the scenario gives."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(name in got and holds(got[name], value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        padded = wanted + [0] * (len(got) - len(wanted)) if wanted and isinstance(wanted[0], int) else wanted
        return len(got) >= len(padded) and all(map(holds, got, padded))
    return bool(got == wanted)


def test_the_official_binding_returns_every_answer_of_the_scenario(distinct: dict[str, Any], tmp_path: Path) -> None:
    asked = [each for each in questions(distinct) if each[1] != "nvmlDeviceValidateInforom"]
    answers = clients.ask(asked, clients.environ(tmp_path, distinct))
    wrong = [
        (question, got, expected(distinct, question))
        for question, got in zip(asked, answers, strict=True)
        if not holds(got, expected(distinct, question))
    ]
    assert not wrong
    assert len(asked) > 2 * len(distinct["every"])


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


def test_nvitop_reads_the_scenario(busy: dict[str, Any], tmp_path: Path) -> None:
    told = clients.read("read_nvitop", clients.environ(tmp_path, busy))
    assert (told["driver"], told["cuda"]) == ("580.95.05", "13.0")
    for index, (got, own) in enumerate(zip(told["gpus"], busy["gpus"], strict=True)):
        memory = own["nvmlDeviceGetMemoryInfo"]
        assert got["name"] == "NVIDIA H100 80GB HBM3"
        assert got["uuid"] == own["nvmlDeviceGetUUID"]
        assert got["address"] == own["nvmlDeviceGetPciInfo"]["busId"]
        assert got["memory"] == [memory["total"], memory["used"], memory["free"]]
        assert (got["temperature"], got["power"], got["power_limit"]) == (61 + index, 512_000 + 1000 * index, 700_000)
        assert (got["persistence"], got["compute_mode"], got["performance"]) == ("Enabled", "Default", "P0")
        assert (got["capability"], got["clocks"], got["fan"]) == ([9, 0], [1755 + 15 * index, 1980], "N/A")
    first, second = told["gpus"]
    assert second["utilization"] == 91
    assert second["ecc_uncorrected"] == 4
    assert second["processes"] == {str(os.getpid()): 3 << 30}
    assert second["mig"] == []
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert first["mig"] == [
        {"uuid": "MIG-0", "name": name, "memory": 10 << 30, "ids": [7, 0]},
        {"uuid": "MIG-1", "name": name, "memory": 10 << 30, "ids": [8, 0]},
    ]


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


def test_all_of_them_see_a_lost_gpu_as_lost(tmp_path: Path) -> None:
    env = clients.environ(tmp_path, clients.hgx(faults=[{"call": "*", "gpu": 1, "do": 15}]))
    gpustat = json.loads(clients.run(["-m", "gpustat", "--json"], env).stdout)["gpus"]
    nvitop = clients.read("read_nvitop", env)["gpus"]
    binding = clients.read("read_bindings", env)["gpus"]
    assert [gpustat[0]["name"], gpustat[1]["name"]] == ["NVIDIA H100 80GB HBM3", "((GPU is lost))"]
    assert [nvitop[0]["name"], nvitop[1]["name"]] == ["NVIDIA H100 80GB HBM3", "ERROR: GPU is Lost"]
    assert binding[0]["name"] == "NVIDIA H100 80GB HBM3"
    assert binding[1] == {"handle": "GpuIsLostError"}
