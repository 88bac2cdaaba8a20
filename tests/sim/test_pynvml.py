"""nvidia-ml-py, over the simulated NVML, returns for every key of a scenario what the scenario says."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim import clients, scenario

LINKS = (0, 3, 17)
ARGUMENTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "nvmlDeviceGetNvLinkState": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkVersion": tuple((link,) for link in LINKS),
    "nvmlDeviceGetNvLinkRemoteDeviceType": tuple((link,) for link in LINKS),
    "nvmlDeviceGetP2PStatus": tuple(itertools.product((0, 1), range(5))),
    "nvmlDeviceGetTopologyCommonAncestor": ((0,), (1,)),
    "nvmlDeviceOnSameBoard": ((0,), (1,)),
    "nvmlDeviceGetMemoryErrorCounter": ((1, 1, 2),),
    "nvmlDeviceGetNvLinkErrorCounter": tuple(itertools.product(LINKS, range(4))),
    "nvmlDeviceGetNvLinkCapability": tuple(itertools.product(LINKS, range(6))),
    "nvmlDeviceGetTotalEccErrors": ((0, 0), (1, 1)),
    "nvmlDeviceGetMemoryAffinity": ((0,), (1,)),
    "nvmlDeviceGetCpuAffinityWithinScope": ((0,), (1,)),
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


BETWEEN_GPUS = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceOnSameBoard")
LINK = "nvmlDeviceGetNvLink"


def questions(nvml: dict[str, Any]) -> Iterator[clients.Question]:
    """One for each key of the scenario at least, where it has the GPU that the key names."""
    gpus = range(nvml["system"].get("nvmlDeviceGetCount", len(nvml["gpus"])))
    for key in nvml["system"]:
        function, arguments = parsed(key)
        yield None, function, tuple(map(int, arguments))
    for gpu in gpus:
        for key in {**nvml["every"], **nvml["gpus"][gpu]}:
            function, arguments = parsed(key)
            among = list(itertools.product(*((LINKS if at == "*" else (int(at),)) for at in arguments)))
            for each in among if arguments else ARGUMENTS.get(function, ((),)):
                if key != "mig" and (function not in BETWEEN_GPUS or each[0] in gpus):
                    yield gpu, function, each


def parsed(key: str) -> tuple[str, list[str]]:
    """A key's function, and its arguments."""
    function, _, arguments = key.rstrip(")").partition("(")
    return function, arguments.split(",") if arguments else []


def expected(nvml: dict[str, Any], question: clients.Question) -> Any:
    """The scenario's answer, found as its format says: the GPU's own before every GPU's, the exact key first."""
    gpu, function, arguments = question
    if gpu is None:
        return nvml["system"][function + (f"({','.join(map(str, arguments))})" if arguments else "")]
    links = expected(nvml, (gpu, "nvmlDeviceGetFieldValues", (91,))) if function.startswith(LINK) else None
    if isinstance(links, int) and arguments[0] >= links:
        return {"code": 2}
    masks = sorted(itertools.product((0, 1), repeat=len(arguments)), key=lambda mask: (sum(mask), mask[::-1]))
    for section in (nvml["gpus"][gpu], nvml["every"]):
        for mask in masks:
            shown = ["*" if star else str(at) for star, at in zip(mask, arguments, strict=True)]
            while shown:
                if (key := f"{function}({','.join(shown)})") in section:
                    return {"code": 3} if section[key] is None else section[key]
                if shown.pop() != "*":
                    break
        if function in section:
            return {"code": 3} if section[function] is None else section[function]
    return {"code": 3}


def holds(got: Any, wanted: Any) -> bool:
    """Whether the answer is what is wanted; of an object, the members that the scenario gives."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(name in got and holds(got[name], value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        padded = wanted + [0] * (len(got) - len(wanted)) if wanted and isinstance(wanted[0], int) else wanted
        return len(got) >= len(padded) and all(map(holds, got, padded))
    return bool(got == wanted)


def wrongly_told(nvml: dict[str, Any], folder: Path) -> list[tuple[clients.Question, Any, Any]]:
    """Every question whose answer is not the scenario's: with what it is, and what it should be."""
    asked = [each for each in questions(nvml) if each[1] != "nvmlDeviceValidateInforom"]  # it tells by its code alone
    assert len(asked) > len(nvml["every"])
    told = clients.ask(asked, clients.environ(folder, nvml))
    wanted = [expected(nvml, each) for each in asked]
    return [found for found in zip(asked, told, wanted, strict=True) if not holds(*found[1:])]


def test_every_answer_is_the_scenarios(distinct: dict[str, Any], tmp_path: Path) -> None:
    assert wrongly_told(distinct, tmp_path) == []


@pytest.mark.parametrize("profile", scenario.names(scenario.PROFILES))
def test_every_answer_of_a_profile_is_the_profiles(profile: str, tmp_path: Path) -> None:
    nvml = scenario.load(scenario.PROFILES / f"{profile}.json").nvml
    assert nvml, "every profile has a driver"
    assert wrongly_told({"every": {}, **nvml}, tmp_path) == []


def test_every_version_of_a_call_answers_from_the_same_key(distinct: dict[str, Any], tmp_path: Path) -> None:
    """What bindings of other years call; memory that the driver reserves counted as used in the first version."""
    script = """
import pynvml as n
from ctypes import byref, c_uint, create_string_buffer
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
memory = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
print(memory[0].used == memory[1].used + memory[1].reserved, memory[0].total == memory[1].total)
print(n.nvmlDeviceGetTemperature(h, 0) == n.nvmlDeviceGetTemperatureV(h, 0))
print(n.nvmlDeviceGetCurrentClocksThrottleReasons(h) == n.nvmlDeviceGetCurrentClocksEventReasons(h))
print([n.nvmlDeviceGetFanSpeed(h), n.nvmlDeviceGetFanSpeed_v2(h, 0), n.nvmlDeviceGetFanSpeed_v2(h, 1)])
print([each["address"] for each in n.nvmlDeviceGetRetiredPages_v2(h, 0)] == n.nvmlDeviceGetRetiredPages(h, 0))
for version in ("v2", "v3"):
    print([(p.pid, p.usedGpuMemory) for p in getattr(n, "nvmlDeviceGetComputeRunningProcesses_" + version)(h)])
first = (n.c_ulonglong * 4)()
print(n.nvmlLib.nvmlDeviceGetComputeRunningProcesses(h, byref(c_uint(2)), first), first[0], first[1], first[2])
for name in ("c_nvmlGpuFabricInfo_t", "c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t"):
    struct = getattr(n, name)()
    ask = n.nvmlDeviceGetGpuFabricInfo if name.endswith("Info_t") else n.nvmlDeviceGetGpuFabricInfoV
    print(ask(h, byref(struct)), struct.state, struct.status, struct.cliqueId)
struct.version = 0x09000000
print(n.nvmlLib.nvmlDeviceGetGpuFabricInfoV(h, byref(struct)))
pci = create_string_buffer(bytes([170]) * 68)
print(n.nvmlLib.nvmlDeviceGetPciInfo_v2(h, pci), pci.raw[:12].decode(), pci.raw[36:68] == bytes([170]) * 32)
"""
    done = clients.run(["-c", script], clients.environ(tmp_path, distinct))
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "True True",
        "True",
        "True",
        "[40, 40, 41]",
        "True",
        "[(101, 17179869184), (102, None)]",
        "[(101, 17179869184), (102, None)]",
        "0 101 17179869184 102",
        *["0 2 999 5"] * 3,
        "25",
        "0 0000:18:00.0 True",
    ]
