"""NVML's calls made one by one through pynvml, each announced before it is made and told as JSON has it.

Imported by ask_nvml.py, which says how the lines read. Standard library and pynvml only; Python 3.8.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

Field = Tuple[int, ...]
"""A number of NVML's, or number and scope."""

OPEN = "nvmlDeviceGetHandleByIndex"
NOT_SUPPORTED, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, LOST, OTHER_VERSION = 3, 7, 13, 15, 25
OF_TWO = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor")
"""Calls about two GPUs, either of which may be the one that is lost."""

UNKNOWN_MEMORY = (1 << 64) - 1
MOST_PROCESSES = 256
VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
SLOW = 0.5
"""Seconds from which on an answer tells the time that it took."""

FORMS = {
    "nvmlSystemGetCudaDriverVersion": ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"),
    "nvmlDeviceGetMemoryInfo": ("nvmlDeviceGetMemoryInfo nvmlMemory_v2", "nvmlDeviceGetMemoryInfo"),
    "nvmlDeviceGetTemperature": ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
    "nvmlDeviceGetCurrentClocksEventReasons": (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
    "nvmlDeviceGetPerformanceState": ("nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerState"),
    "nvmlDeviceGetGpuFabricInfoV": (
        "nvmlDeviceGetGpuFabricInfoV c_nvmlGpuFabricInfo_v3_t",
        "nvmlDeviceGetGpuFabricInfoV c_nvmlGpuFabricInfo_v2_t",
        "nvmlDeviceGetGpuFabricInfo c_nvmlGpuFabricInfo_t",
    ),
    "nvmlDeviceGetSramEccErrorStatus": ("nvmlDeviceGetSramEccErrorStatus c_nvmlEccSramErrorStatus_v1_t",),
}
"""Calls of which there are several, newest first, or that take a version of the binding or a struct of it to fill."""

SIZES = {"nvmlDeviceGetMemoryAffinity": 4, "nvmlDeviceGetCpuAffinity": 16}
"""Words of 64 bits to ask for, which are no part of the call's name: 256 NUMA nodes, 1024 CPUs."""

protocol = os.dup(1)
os.dup2(2, 1)  # whatever a library prints is no answer


class Process(ctypes.Structure):
    """nvmlProcessInfo_t from version 2 on."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


def plain(value: Any) -> Any:
    """What pynvml returns, as JSON has it: structs as objects, characters as text, ids of bytes as hex text."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, ctypes.Structure):  # not by getattr: the binding's own decodes strictly
        parts = ((field[0], ctypes.Structure.__getattribute__(value, field[0])) for field in value._fields_)
        return {name: plain(part) for name, part in parts if name != "version"}
    if isinstance(value, ctypes.Array) and value._type_ is ctypes.c_ubyte:
        return bytes(value).hex()
    return [plain(part) for part in value]


def called(name: str, arguments: Sequence[int]) -> str:
    return "%s(%s)" % (name, ",".join(map(str, arguments)))


def parted(call: str) -> Tuple[str, List[int]]:
    name, _, rest = call.rstrip(")").partition("(")
    return name, [int(word) for word in rest.split(",")] if rest else []


class Asker:
    """Makes NVML's calls about the machine (the GPU is None) or about a GPU, and tells each and its answer."""

    def __init__(self, nvml: Any, left_out: Sequence[Sequence[Any]]) -> None:
        self.nvml = nvml
        self.handles: Dict[int, Any] = {}
        self.left_out = {(gpu, call) for gpu, call in left_out}
        self.untold = ""

    def machine(self, call: str) -> Any:
        """``nvmlDeviceGetCount`` or ``nvmlSystemGetProcessName(4242)``."""
        name, arguments = parted(call)
        return self.tell(None, call, lambda: self.call(name, *arguments))

    def gpu(self, gpu: int, what: str) -> Any:
        """``PciInfo`` or ``Temperature(0)`` of this GPU."""
        call = "nvmlDeviceGet" + what
        name, arguments = parted(call)
        return self.tell(gpu, call, lambda: self.call(name, self.handles[gpu], *arguments))

    def pair(self, gpu: int, peer: int, what: str, *arguments: int) -> Any:
        """``P2PStatus`` between two GPUs."""
        name = "nvmlDeviceGet" + what
        if self.avoids(peer, "*"):
            return None
        call = called(name, (peer, *arguments))
        return self.tell(gpu, call, lambda: self.call(name, self.handles[gpu], self.handles[peer], *arguments))

    def fields(self, gpu: int, wanted: Sequence[Field]) -> Dict[Field, Any]:
        """Field values: asked at once, each told as the answer to a call of its own."""
        name = "nvmlDeviceGetFieldValues"
        asked = [field if len(field) > 1 else field[0] for field in wanted]
        values = self.tell(gpu, name, lambda: self.nvml.nvmlDeviceGetFieldValues(self.handles[gpu], asked), whole=False)
        found: Dict[Field, Any] = {}
        for field, value in zip(wanted, values or ()):  # noqa: B905 - Python 3.8
            call = called(name, field)
            if value.nvmlReturn:
                self.failed(gpu, call, self.nvml.NVMLError(value.nvmlReturn))
            elif value.valueType < len(VALUE_TYPES):
                found[field] = getattr(value.value, VALUE_TYPES[value.valueType])
                self.say(gpu=gpu, call=call, **{"is": found[field]})
        return found

    def avoids(self, gpu: Optional[int], call: str) -> bool:
        left = self.left_out
        return bool(left) and not left.isdisjoint({(gpu, call), (gpu, "*"), (None, call.partition("(")[0])})

    def tell(
        self, gpu: Optional[int], call: str, getter: Callable[[], Any], whole: bool = True, mig: Optional[int] = None
    ) -> Any:
        """Announce the call, make it, and tell what it returns (`whole`) or how it failed; None where it failed."""
        if self.avoids(gpu, call):
            return None
        self.say(ask=call, gpu=gpu) if mig is None else self.say(ask=call, gpu=gpu, mig=mig)
        self.flush()
        began = time.monotonic()
        try:
            value = getter()
        except Exception as error:
            if mig is None:
                self.failed(gpu, call, error)
            return None
        seconds = time.monotonic() - began
        if seconds > SLOW:
            self.say(slow=call, gpu=gpu, seconds=round(seconds, 1))
        if whole:
            self.say(gpu=gpu, call=call, **{"is": value})
        return value

    def failed(self, gpu: Optional[int], call: str, error: Exception) -> None:
        """NVML's code and words; NOT_SUPPORTED is what silence means. A GPU that is lost is asked nothing more."""
        code = getattr(error, "value", None) if isinstance(error, self.nvml.NVMLError) else None
        if code == LOST and gpu is not None and not call.startswith(OF_TWO):
            self.left_out.add((gpu, "*"))
        if code != NOT_SUPPORTED or call == OPEN:
            text = "%s: %s" % (type(error).__name__, error) if code is None else self.words(code)
            self.say(gpu=gpu, call=call, code=code, text=text)

    def words(self, code: int) -> str:
        """The library's own words for the code, in its own spelling."""
        try:
            return str(plain(self.nvml.nvmlErrorString(code)))
        except Exception:
            return "code %d" % code

    def call(self, name: str, *arguments: Any) -> Any:
        """What the newest form of the call returns that both the binding and the driver have."""
        forms = FORMS.get(name, (name,))
        for form in forms[:-1]:
            try:
                return self.made(form, arguments)
            except (AttributeError, TypeError):
                continue
            except self.nvml.NVMLError as error:
                if error.value not in (FUNCTION_NOT_FOUND, OTHER_VERSION):
                    raise
        return self.made(forms[-1], arguments)

    def made(self, form: str, arguments: Sequence[Any]) -> Any:
        name, _, more = form.partition(" ")
        function = getattr(self.nvml, name)
        function = getattr(function, "__wrapped__", function)  # its wrapper decodes strictly
        if name in SIZES:
            arguments = [arguments[0], SIZES[name], *arguments[1:]]
        if not more:
            return plain(function(*arguments))
        what = getattr(self.nvml, more)
        if isinstance(what, int):
            return plain(function(*arguments, what))
        room = what()  # the binding sets its version
        function(*arguments, ctypes.byref(room))
        return plain(room)

    def processes(self, gpu: int, what: str) -> Tuple[List[Any], int]:
        """The processes, of a flood the first, and how many there are; pynvml itself takes seconds for a million."""
        try:
            function = self.nvml._nvmlGetFunctionPointer("nvmlDeviceGet%s_v3" % what)  # noqa: SLF001
        except self.nvml.NVMLError:
            function = self.nvml._nvmlGetFunctionPointer("nvmlDeviceGet%s_v2" % what)  # noqa: SLF001
        count = ctypes.c_uint(0)
        code = function(self.handles[gpu], ctypes.byref(count), None)
        listed = (Process * (min(count.value, 1 << 20) * 2 + 5))()  # more may have come since
        if code == INSUFFICIENT_SIZE:
            count.value = len(listed)
            code = function(self.handles[gpu], ctypes.byref(count), listed)
        if code:
            raise self.nvml.NVMLError(code)
        told = [plain(entry) for entry in listed[: min(count.value, MOST_PROCESSES)]]
        for entry in told:
            entry["usedGpuMemory"] = None if entry["usedGpuMemory"] == UNKNOWN_MEMORY else entry["usedGpuMemory"]
        return told, count.value

    def say(self, **entry: Any) -> None:
        self.untold += "@gpudoctor " + json.dumps(entry) + "\n"

    def flush(self) -> None:
        """Everything told since the last time, in one write."""
        os.write(protocol, self.untold.encode())
        self.untold = ""
