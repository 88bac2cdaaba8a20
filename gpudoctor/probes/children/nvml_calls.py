"""NVML's calls made one by one through pynvml, each announced before it is made and told as JSON has it.

Imported by ask_nvml.py, which says how the lines read. Standard library and pynvml only; Python 3.8.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    Field = Tuple[int, ...]
    """A number of NVML's, or number and scope."""

OPEN = "nvmlDeviceGetHandleByIndex"
NOT_SUPPORTED, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, LOST, OTHER_VERSION = 3, 7, 13, 15, 25
OF_TWO = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor")
"""Calls about two GPUs, either of which may be the one that is lost."""

UNKNOWN_MEMORY = (1 << 64) - 1
MOST_PROCESSES = 256
FIELD_VALUE = struct.Struct("IIqqII8s")
"""NVML's nvmlFieldValue_t: field and scope, timestamp and latency, type of the value, return code, the value."""
VALUE_TYPES = tuple(struct.Struct(letter) for letter in "dILQqiH")
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
    """NVML's nvmlProcessInfo_t, version 2 and newer."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


def to_json_value(value: Any) -> Any:
    """A value of pynvml as JSON has it: structs as objects without ``version``, bytes as text, byte arrays as
    hexadecimal text, other sequences as lists. Bytes that are no UTF-8 are replaced.
    """
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, ctypes.Structure):  # not by getattr: the binding's own decodes strictly
        parts = ((field[0], ctypes.Structure.__getattribute__(value, field[0])) for field in value._fields_)
        return {name: to_json_value(part) for name, part in parts if name != "version"}
    if isinstance(value, ctypes.Array) and value._type_ is ctypes.c_ubyte:
        return bytes(value).hex()
    return [to_json_value(part) for part in value]


def end_as_crashed(error: Exception) -> None:
    """End this process as a crash if `error` is an access violation, which ctypes on Windows raises; else nothing."""
    if sys.platform == "win32" and isinstance(error, OSError) and str(error).startswith("exception: "):
        ctypes.windll.kernel32.TerminateProcess(ctypes.c_void_p(-1), 0xC0000005)


def format_call(name: str, arguments: Sequence[int]) -> str:
    """The key of a call: the name and its arguments, ``Name(1,2)``."""
    return "%s(%s)" % (name, ",".join(map(str, arguments)))


@lru_cache(maxsize=None)
def parse_call(call: str) -> Tuple[str, List[int]]:
    """Function name and integer arguments of a call's key; no arguments if it has no parentheses."""
    name, _, rest = call.rstrip(")").partition("(")
    return name, [int(word) for word in rest.split(",")] if rest else []


@lru_cache(maxsize=256)
def packed(wanted: Tuple[Field, ...]) -> bytes:
    """The array of nvmlFieldValue_t that asks for these fields; a field without a scope has scope 0."""
    return b"".join(FIELD_VALUE.pack(field[0], (*field, 0)[1], 0, 0, 0, 0, b"") for field in wanted)


class Asker:
    """Makes NVML's calls about the machine (GPU None) or a GPU, and sends each call and its answer."""

    def __init__(self, nvml: Any, left_out: Sequence[Sequence[Any]]) -> None:
        """`left_out`: pairs of GPU and call that are not made; call ``*`` is all of that GPU, GPU None is any GPU."""
        self.nvml = nvml
        self.handles: Dict[int, Any] = {}
        self.left_out = {(gpu, call) for gpu, call in left_out}
        self.unsent = ""

    def machine(self, call: str) -> Any:
        """Make a call about the machine, ``nvmlSystemGetProcessName(4242)``, and send its answer; None if it failed."""
        name, arguments = parse_call(call)
        return self.report(None, call, lambda: self.call(name, *arguments))

    def gpu(self, gpu: int, what: str) -> Any:
        """Ask a GPU for ``PciInfo`` or ``Temperature(0)`` (the name without ``nvmlDeviceGet``) and send the answer.

        The answer; None if it failed or is left out.
        """
        call = "nvmlDeviceGet" + what
        name, arguments = parse_call(call)
        return self.report(gpu, call, lambda: self.call(name, self.handles[gpu], *arguments))

    def pair(self, gpu: int, peer: int, what: str, *arguments: int) -> Any:
        """Make a call such as ``P2PStatus`` about two GPUs and send its answer; None if it failed or is left out."""
        name = "nvmlDeviceGet" + what
        if self.is_left_out(peer, "*"):
            return None
        call = format_call(name, (peer, *arguments))
        return self.report(gpu, call, lambda: self.call(name, self.handles[gpu], self.handles[peer], *arguments))

    def fields(self, gpu: int, wanted: Sequence[Field]) -> Dict[Field, Any]:
        """Field values by field, asked for in one call and sent as one answer each; fields that fail are left out."""
        name = "nvmlDeviceGetFieldValues"
        values = self.report(gpu, name, lambda: self.field_values(gpu, wanted), send_answer=False)
        found: Dict[Field, Any] = {}
        for field, (code, value) in zip(wanted, values or ()):  # noqa: B905 - Python 3.8
            call = format_call(name, field)
            if code:
                self.report_failure(gpu, call, self.nvml.NVMLError(code))
            elif value is not None:
                found[field] = value
                self.send(gpu=gpu, call=call, **{"is": value})
        return found

    def field_values(self, gpu: int, wanted: Sequence[Field]) -> List[Tuple[int, Any]]:
        """NVML's return code and value of each field, asked for in one call; raises `NVMLError`.

        The value is None where the field failed or is of an unknown type. pynvml itself takes ten times as long.
        """
        function = self.nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")  # noqa: SLF001
        asked = packed(tuple(wanted))
        values = ctypes.create_string_buffer(asked, len(asked))
        code = function(self.handles[gpu], ctypes.c_int(len(wanted)), values)
        if code:
            raise self.nvml.NVMLError(code)
        return [
            (code, VALUE_TYPES[kind].unpack_from(value)[0] if not code and kind < len(VALUE_TYPES) else None)
            for _, _, _, _, kind, code, value in FIELD_VALUE.iter_unpack(values)
        ]

    def is_left_out(self, gpu: Optional[int], call: str) -> bool:
        """True if `left_out` holds the call about this GPU, all calls of the GPU, or the function for every GPU."""
        left = self.left_out
        return bool(left) and not left.isdisjoint({(gpu, call), (gpu, "*"), (None, call.partition("(")[0])})

    def report(
        self,
        gpu: Optional[int],
        call: str,
        getter: Callable[[], Any],
        send_answer: bool = True,
        mig: Optional[int] = None,
    ) -> Any:
        """Announce the call, make it by `getter`, and send its answer (unless `send_answer` is False) or its failure.

        The answer; None if it failed or is left out. `mig`: index of the MIG device it is about, whose failures are not
        sent.
        """
        if self.is_left_out(gpu, call):
            return None
        self.send(ask=call, gpu=gpu) if mig is None else self.send(ask=call, gpu=gpu, mig=mig)
        self.flush()
        began = time.monotonic()
        try:
            value = getter()
        except Exception as error:
            if mig is None:
                self.report_failure(gpu, call, error)
            return None
        seconds = time.monotonic() - began
        if seconds > SLOW:
            self.send(slow=call, gpu=gpu, seconds=round(seconds, 1))
        if send_answer:
            self.send(gpu=gpu, call=call, **{"is": value})
        return value

    def report_failure(self, gpu: Optional[int], call: str, error: Exception) -> None:
        """Send a failed call's NVML code and message (code None for another exception).

        Nothing is sent for NOT_SUPPORTED, unless the call opens a GPU. A GPU that is lost is left out from then on. On
        Windows ends the process if the error is an access violation.
        """
        end_as_crashed(error)
        code = getattr(error, "value", None) if isinstance(error, self.nvml.NVMLError) else None
        if code == LOST and gpu is not None and not call.startswith(OF_TWO):
            self.left_out.add((gpu, "*"))
        if code != NOT_SUPPORTED or call == OPEN:
            text = "%s: %s" % (type(error).__name__, error) if code is None else self.error_text(code)
            self.send(gpu=gpu, call=call, code=code, text=text)

    def error_text(self, code: int) -> str:
        """NVML's message for a code; ``code N`` if it has none."""
        try:
            return str(to_json_value(self.nvml.nvmlErrorString(code)))
        except Exception:
            return "code %d" % code

    def call(self, name: str, *arguments: Any) -> Any:
        """Make an NVML call in the newest form that pynvml and the driver have, and return its answer as JSON has it.

        Raises what pynvml raises.
        """
        forms = FORMS.get(name, (name,))
        for form in forms[:-1]:
            try:
                return self.call_form(form, arguments)
            except (AttributeError, TypeError):
                continue
            except self.nvml.NVMLError as error:
                if error.value not in (FUNCTION_NOT_FOUND, OTHER_VERSION):
                    raise
        return self.call_form(forms[-1], arguments)

    def call_form(self, form: str, arguments: Sequence[Any]) -> Any:
        """Make a call in one form, ``name`` or ``name constant``, and return its answer as JSON has it.

        The constant is pynvml's version number for the call, or the struct that it fills. Raises what pynvml raises.
        """
        name, _, struct_name = form.partition(" ")
        function = getattr(self.nvml, name)
        function = getattr(function, "__wrapped__", function)  # its wrapper decodes strictly
        if name in SIZES:
            arguments = [arguments[0], SIZES[name], *arguments[1:]]
        if not struct_name:
            return to_json_value(function(*arguments))
        what = getattr(self.nvml, struct_name)
        if isinstance(what, int):
            return to_json_value(function(*arguments, what))
        struct = what()  # the binding sets its version
        function(*arguments, ctypes.byref(struct))
        return to_json_value(struct)

    def processes(self, gpu: int, what: str) -> Tuple[List[Any], int]:
        """At most MOST_PROCESSES entries of a GPU's list of processes, and how many there are; raises `NVMLError`.

        `what`: ``ComputeRunningProcesses`` or the like. pynvml itself takes seconds for a million.
        """
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
        entries = [to_json_value(entry) for entry in listed[: min(count.value, MOST_PROCESSES)]]
        for entry in entries:
            entry["usedGpuMemory"] = None if entry["usedGpuMemory"] == UNKNOWN_MEMORY else entry["usedGpuMemory"]
        return entries, count.value

    def send(self, **entry: Any) -> None:
        """Append the entry as a protocol line to what `flush` will write."""
        self.unsent += "@gpudoctor " + json.dumps(entry) + "\n"

    def flush(self) -> None:
        """Write all lines that have not been sent yet, in one write."""
        os.write(protocol, self.unsent.encode())
        self.unsent = ""
