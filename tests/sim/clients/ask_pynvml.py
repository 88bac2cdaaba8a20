"""Ask NVML through nvidia-ml-py: questions ``[[gpu or null, function, [arguments]], ...]`` as JSON on stdin.

Prints a list with an answer for each in a scenario's terms: the JSON of what the binding returns, or ``{"code": n}``.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import pynvml

WORDS = 16
"""How many 64-bit words of an affinity mask are asked for."""

FILLED_BY_THE_CALL = {
    "nvmlDeviceGetGpuFabricInfoV": "c_nvmlGpuFabricInfo_v3_t",
    "nvmlDeviceGetSramEccErrorStatus": "c_nvmlEccSramErrorStatus_v1_t",
    "nvmlDeviceGetPlatformInfo": "c_nvmlPlatformInfo_v2_t",
}
"""Calls that fill a struct of the caller's."""


def call(gpu: int | None, function: str, arguments: list[Any]) -> Any:
    """One call, in the way that the binding wants it."""
    if gpu is None:
        return getattr(pynvml, function)(*arguments)
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    if function == "nvmlDeviceGetFieldValues":
        return field(
            pynvml.nvmlDeviceGetFieldValues(handle, [tuple(arguments) if len(arguments) > 1 else arguments[0]])[0]
        )
    if function in ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceOnSameBoard"):
        peer = pynvml.nvmlDeviceGetHandleByIndex(arguments[0])
        return getattr(pynvml, function)(handle, peer, *arguments[1:])
    if function in FILLED_BY_THE_CALL:
        struct = getattr(pynvml, FILLED_BY_THE_CALL[function])()
        code = getattr(pynvml, function)(handle, ctypes.byref(struct))
        return struct if code == 0 else {"code": code}
    if function == "nvmlDeviceGetMemoryInfo":
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    if function == "nvmlDeviceGetCpuAffinity":
        return pynvml.nvmlDeviceGetCpuAffinity(handle, WORDS)
    if function in ("nvmlDeviceGetCpuAffinityWithinScope", "nvmlDeviceGetMemoryAffinity"):
        return getattr(pynvml, function)(handle, WORDS, *arguments)
    if function == "nvmlDeviceGetProcessUtilization":
        return pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
    if function == "nvmlDeviceGetRunningProcessDetailList":
        version = pynvml.nvmlProcessDetailList_v1
        return pynvml.nvmlDeviceGetRunningProcessDetailList(handle, version, *arguments)
    if arguments and function in ("nvmlDeviceGetFanSpeed", "nvmlDeviceGetFanControlPolicy"):
        function += "_v2"
    return getattr(pynvml, function)(handle, *arguments)


def field(value: Any) -> Any:
    """A field's value by its own type, or its own code."""
    if value.nvmlReturn:
        return {"code": value.nvmlReturn}
    members = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
    return getattr(value.value, members[value.valueType])


def plain(value: Any) -> Any:
    """The JSON of what the binding returned."""
    if isinstance(value, ctypes.Structure):
        return {name: plain_member(value, name) for name, *_ in value._fields_}
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, ctypes.Array):
        return (
            bytes(value).hex()
            if issubclass(value._type_, (ctypes.c_ubyte, ctypes.c_char))
            else [plain(at) for at in value]
        )
    if isinstance(value, (list, tuple)):
        return [plain(at) for at in value]
    if hasattr(value, "__dict__"):  # the binding's friendly objects
        return {name: plain(at) for name, at in vars(value).items()}
    return value


def plain_member(struct: ctypes.Structure, name: str) -> Any:
    """A struct's member; what the binding calls characters, but are bytes, as hex, or one alone as a number."""
    place = getattr(type(struct), name)
    raw = bytes(struct)[place.offset : place.offset + place.size]
    if name in ("clusterUuid", "ibGuid", "chassisSerialNumber"):
        return raw.hex()
    return raw[0] if place.size == 1 else plain(getattr(struct, name))


def main() -> None:
    """Answer all the questions in one process."""
    pynvml.nvmlInit()
    answers = []
    for gpu, function, arguments in json.load(sys.stdin):
        try:
            answers.append(plain(call(gpu, function, arguments)))
        except pynvml.NVMLError as error:
            answers.append({"code": error.value})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
