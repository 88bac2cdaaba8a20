"""Ask NVML everything, one call at a time, saying each call before it is made.

Run as ``python -I -S ask_nvml.py FOLDER [LEFT_OUT]``. FOLDER holds pynvml; LEFT_OUT is a JSON list of ``[gpu, call]``
that an earlier child did not survive: the call ``*`` stands for all of that GPU, the GPU null for any. Each line is
``@gpudoctor`` and a JSON object: ``{"ask": call, "gpu": index or null}`` before each call, then ``{"gpu": ...,
"call": ..., "is": answer}``, or NVML's ``"code"`` and ``"text"``; NOT_SUPPORTED is not told. ``{"done": true}`` is the
last. Calls and answers are those of a record's section ``nvml``: the name of pynvml's function with its arguments
behind the handle in parentheses. Empty lines say that the wait is meant: NVML is starting. Standard library and pynvml
only; Python 3.8.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import sys
import time
import types
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",  # WSL, where the loader's configuration was lost
    "/run/opengl-driver/lib/libnvidia-ml.so.1",  # NixOS
)
SYSTEM = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion")
TABLE = """
Name UUID PciInfo CudaComputeCapability MemoryInfo MigMode VirtualizationMode ComputeMode

EccMode TotalEccErrors(1,0) TotalEccErrors(0,0) TotalEccErrors(1,1) TotalEccErrors(0,1) RemappedRows
CurrPcieLinkGeneration MaxPcieLinkGeneration CurrPcieLinkWidth MaxPcieLinkWidth PcieReplayCounter
CurrentClocksEventReasons Temperature(0) ClockInfo(1) MaxClockInfo(1) PowerUsage EnforcedPowerLimit
PowerManagementDefaultLimit UtilizationRates GpuFabricInfoV PersistenceMode PerformanceState

Brand Architecture Serial MinorNumber VbiosVersion InforomImageVersion DisplayActive BAR1MemoryInfo
GpuMaxPcieLinkGeneration ClockInfo(2) MaxClockInfo(2) ApplicationsClock(0) PowerManagementLimitConstraints
TemperatureThreshold(0) TemperatureThreshold(1) TemperatureThreshold(3) MarginTemperature MemoryAffinity(0) CpuAffinity
SramEccErrorStatus RowRemapperHistogram
"""
IDENTITY, HEALTH, DEPTH = (part.split() for part in TABLE.split("\n\n"))
MIG = ("UUID", "Name", "GpuInstanceId", "ComputeInstanceId", "Attributes", "MemoryInfo")
PROCESSES = ("ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses")
FIELDS = ((230,), (82,), (91,), (29,), (30,), (31,))
"""Recovery action, memory temperature, number of NVLinks, pages retired: single bit, double bit, pending."""

LINK_FIELDS = (163, 161, 162, 219, 214)
"""Of one link: CRC, replay and recovery errors; of NVLink 5 effective errors and recoveries that failed."""

RETIRED_PAGES = ("RetiredPages(0)", "RetiredPages(1)", "RetiredPagesPendingStatus")
LINK_COUNT, RETIRED, DRAM, SRAM = (91,), (29,), 2, 7
OLD_LOCATIONS = (0, 1, 3, 4)  # L1, L2, registers, texture: told apart before Ampere
NOT_SUPPORTED, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, LOST, OTHER_VERSION = 3, 7, 13, 15, 25
VGPU = 2
UNKNOWN_MEMORY = (1 << 64) - 1
MOST_GPUS = MOST_LINKS = MOST_NAMES = 64
MOST_PROCESSES = 256
VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
SLOW = 0.5
"""Seconds from which on an answer tells the time that it took."""

_protocol = os.dup(1)
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


Field = Tuple[int, ...]
"""A number of NVML's, or number and scope."""

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
            else:
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
        if code == LOST and gpu is not None:
            self.left_out.add((gpu, "*"))
        if code != NOT_SUPPORTED:
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
        os.write(_protocol, self.untold.encode())
        self.untold = ""


def called(name: str, arguments: Sequence[int]) -> str:
    return "%s(%s)" % (name, ",".join(map(str, arguments)))


def parted(call: str) -> Tuple[str, List[int]]:
    name, _, rest = call.rstrip(")").partition("(")
    return name, [int(word) for word in rest.split(",")] if rest else []


def ask_everything(ask: Asker) -> None:
    """What matters most for all GPUs first, so that a call that does not return costs little."""
    count = ask.machine("nvmlDeviceGetCount") or 0
    for gpu in range(min(count, MOST_GPUS)):
        open_gpu(ask, gpu)
    for call in SYSTEM:
        ask.machine(call)
    gpus = list(ask.handles)
    identity = {gpu: {what: ask.gpu(gpu, what) for what in IDENTITY} for gpu in gpus}
    fields: Dict[int, Dict[Field, Any]] = {}
    for gpu in gpus:
        fields[gpu] = ask.fields(gpu, FIELDS)
        for what in HEALTH:
            ask.gpu(gpu, what)
    for gpu in gpus:
        ask_depth(ask, gpu, fields[gpu])
        if identity[gpu]["VirtualizationMode"] == VGPU:
            ask.gpu(gpu, "GridLicensableFeatures")
        if (identity[gpu]["MigMode"] or [0])[0]:
            ask_mig(ask, gpu)
    for gpu in gpus:
        ask_links(ask, gpu, min(fields[gpu].get(LINK_COUNT, 0), MOST_LINKS))
    for gpu in gpus:
        for peer in gpus:
            if peer > gpu:
                ask.pair(gpu, peer, "TopologyCommonAncestor")
            if peer != gpu:
                for capability in range(4):
                    ask.pair(gpu, peer, "P2PStatus", capability)
    ask_processes(ask, gpus)


def open_gpu(ask: Asker, gpu: int) -> None:
    """Keep the handle, which is no JSON."""
    call = "nvmlDeviceGetHandleByIndex"
    handle = ask.tell(gpu, call, lambda: ask.nvml.nvmlDeviceGetHandleByIndex(gpu), whole=False)
    if handle is not None:
        ask.handles[gpu] = handle


def ask_depth(ask: Asker, gpu: int, fields: Dict[Field, Any]) -> None:
    """What names and limits it, and its memory errors by place."""
    for what in DEPTH:
        ask.gpu(gpu, what)
    if RETIRED not in fields:
        for what in RETIRED_PAGES:
            ask.gpu(gpu, what)
    for since in range(2):
        for kind in range(2):
            place = "MemoryErrorCounter(%d,%d,%%d)" % (kind, since)
            ask.gpu(gpu, place % DRAM)
            if ask.gpu(gpu, place % SRAM) is None:
                for location in OLD_LOCATIONS:
                    ask.gpu(gpu, place % location)


def ask_mig(ask: Asker, gpu: int) -> None:
    """The MIG devices, told together as a record has them."""
    devices = []
    open_mig = partial(ask.nvml.nvmlDeviceGetMigDeviceHandleByIndex, ask.handles[gpu])
    for place in range(ask.gpu(gpu, "MaxMigDeviceCount") or 0):
        call = called("nvmlDeviceGetMigDeviceHandleByIndex", (place,))
        handle = ask.tell(gpu, call, partial(open_mig, place), whole=False)
        if handle is None:
            continue
        told = {}
        for name in ("nvmlDeviceGet" + what for what in MIG):
            told[name] = ask.tell(gpu, name, partial(ask.call, name, handle), whole=False, mig=place)
        devices.append({name: answer for name, answer in told.items() if answer is not None})
    ask.say(gpu=gpu, call="mig", **{"is": devices})


def ask_links(ask: Asker, gpu: int, count: int) -> None:
    """Each NVLink, and where it leads."""
    active = []
    for link in range(count):
        if ask.gpu(gpu, "NvLinkState(%d)" % link):
            active.append(link)
            for what in ("NvLinkVersion(%d)", "NvLinkRemoteDeviceType(%d)", "NvLinkRemotePciInfo(%d)"):
                ask.gpu(gpu, what % link)
    if active and not ask.fields(gpu, [(field, link) for link in active for field in LINK_FIELDS]):
        for link in active:
            if [ask.gpu(gpu, "NvLinkErrorCounter(%d,%d)" % (link, counter)) for counter in range(4)] == [None] * 4:
                break


def ask_processes(ask: Asker, gpus: Sequence[int]) -> None:
    """Who uses the GPUs, and by what name."""
    pids: Dict[int, None] = {}
    for gpu in gpus:
        for what in PROCESSES:
            told = ask.tell(gpu, "nvmlDeviceGet" + what, partial(ask.processes, gpu, what), whole=False)
            if told is not None:
                pids.update((entry["pid"], None) for entry in told[0])
                ask.say(gpu=gpu, call="nvmlDeviceGet" + what, of=told[1], **{"is": told[0]})
    for pid in list(pids)[:MOST_NAMES]:
        ask.machine("nvmlSystemGetProcessName(%d)" % pid)


def load(ask: Asker) -> bool:
    """Load the library by the loader's rules, else from where WSL and NixOS keep it; pynvml then finds it loaded."""
    first = ""
    for name in LIBRARIES:
        ask.say(ask="library", gpu=None, path=name)
        ask.flush()
        try:
            ctypes.CDLL(name)
        except OSError as error:
            first = first or str(error)
            continue
        ask.say(gpu=None, call="library", **{"is": name})
        return True
    ask.say(gpu=None, call="library", code=None, text=first)
    return False


def binding(folder: str) -> Any:
    """pynvml. It names ctypes.util and never uses it; the real one brings half of what its import costs."""
    unused = types.ModuleType("ctypes.util")
    unused.find_library = None  # type: ignore[attr-defined]
    sys.modules.setdefault("ctypes.util", unused)
    sys.path.insert(0, folder)
    import pynvml

    return pynvml


def main(folder: str, left_out: str = "[]") -> None:
    """Load, initialise, ask; until NVML has started, an empty line now and then says that the wait is meant."""
    started: List[bool] = []

    def wait() -> None:
        time.sleep(0.5)
        while not started:
            os.write(_protocol, b"\n")
            time.sleep(0.5)

    _thread.start_new_thread(wait, ())
    ask = Asker(None, json.loads(left_out))
    if load(ask):
        ask.nvml = binding(folder)
        ready = ask.tell(None, "nvmlInit", lambda: ask.nvml.nvmlInit() or 0)
        started.append(True)
        if ready is not None:
            ask_everything(ask)
            ask.say(done=True)
    ask.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # what the library does at the end of a process is none of ours
