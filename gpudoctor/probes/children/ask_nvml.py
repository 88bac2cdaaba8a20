"""Ask NVML everything, one call at a time, saying each call before it is made.

Run as ``python -I -S ask_nvml.py OURS FOLDER [OPTIONS]``. OURS is the folder of this file, which it cannot tell inside
a zip file; FOLDER holds pynvml; OPTIONS is a JSON object (see `OPTIONS`). Each line is ``@gpudoctor`` and a JSON
object: ``{"ask": call, "gpu": index or null}`` before each call, then ``{"gpu": ..., "call": ..., "is": answer}``, or
NVML's ``"code"`` and ``"text"``; NOT_SUPPORTED is not told. Calls and answers are those of a record's section ``nvml``:
the name of pynvml's function with its arguments behind the handle in parentheses.

Nothing but a GPU's first handle starts that GPU, which takes seconds where no daemon keeps it awake. Until all handles
are open, ``{"starting": call, "seconds": ...}`` and ``{"waking": gpu, "of": how many, "seconds": ...}`` twice a second
say that the wait is meant; then ``{"opened": how many}``, and ``{"gpu": ..., "unopened": seconds}`` of each GPU that
was not open in time. ``{"done": true}`` is the last line. Standard library and pynvml only; Python 3.8.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

    from gpudoctor.probes.children.nvml_calls import OPEN, Asker, Field, format_call, protocol
else:
    sys.path.insert(0, sys.argv[1])
    from nvml_calls import OPEN, Asker, format_call, protocol

OPTIONS: Dict[str, Any] = {
    "left_out": [],  # [gpu, call] that an earlier child did not survive: call * is all of that GPU, gpu null is any
    "seconds": 3600.0,  # for all GPUs to open
    "awake": None,  # PCI addresses of the GPUs to open, where others must be left asleep; null: all
    "unprivileged": False,  # give up the right to load kernel modules and to make device files
}
LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",  # WSL, where the loader's configuration was lost
    "/run/opengl-driver/lib/libnvidia-ml.so.1",  # NixOS
)
WINDOWS = (
    ("SYSTEMROOT", "System32\\nvml.dll"),
    ("PROGRAMFILES", "NVIDIA Corporation\\NVSMI\\nvml.dll"),  # drivers of before 2019
)
"""Where drivers for Windows keep it, by a variable's folder; it is loaded by its full path, as pynvml does."""
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

LINK_COUNTERS, LINK_SPEED, LINK_STATE = (163, 161, 162, 219, 214), 164, 165
"""Of one link: CRC, replay and recovery errors; of NVLink 5 effective errors and recoveries that failed. Its speed; its
state, which NCCL, too, asks for from Hopper on.
"""
INACTIVE, ACTIVE, ASLEEP = 0, 1, 2
HOPPER = 9
SWITCH, NVLINK, OK = 2, 2, 0
"""A kind of device at a link's other end; of P2PStatus, NVLink's number and the answer that the pair can use it."""

RETIRED_PAGES = ("RetiredPages(0)", "RetiredPages(1)", "RetiredPagesPendingStatus")
LINK_COUNT, RETIRED, DRAM, SRAM = (91,), (29,), 2, 7
OLD_LOCATIONS = (0, 1, 3, 4)  # L1, L2, registers, texture: told apart before Ampere
VGPU = 2
TICK = 0.5
"""Seconds between two lines that say what is waited for."""
NEXT = 10.0
"""Seconds after which a GPU that has not opened does not keep the next one waiting."""
CAP_SYS_MODULE, CAP_MKNOD = 16, 27
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION_3 = 0x20080522
MOST_GPUS = MOST_LINKS = MOST_NAMES = 64


def ask_everything(ask: Asker) -> None:
    """Make and send all calls, what matters most for all GPUs first, so that a call that never returns costs little."""
    for call in SYSTEM:
        ask.machine(call)
    gpus = list(ask.handles)
    identity = {gpu: {what: ask.gpu(gpu, what) for what in IDENTITY} for gpu in gpus}
    fields: Dict[int, Dict[Field, Any]] = {}
    remaps = set()
    for gpu in gpus:
        fields[gpu] = ask.fields(gpu, FIELDS)
        for what in HEALTH:
            if ask.gpu(gpu, what) is not None and what == "RemappedRows":
                remaps.add(gpu)
    for gpu in gpus:
        if sys.platform == "win32":
            ask.gpu(gpu, "DriverModel")
        ask_depth(ask, gpu, RETIRED in fields[gpu] or gpu in remaps)
        if identity[gpu]["VirtualizationMode"] == VGPU:
            ask.gpu(gpu, "GridLicensableFeatures")
        if (identity[gpu]["MigMode"] or [0])[0]:
            ask_mig(ask, gpu)
    switched = set()
    for gpu in gpus:
        links = range(min(int(fields[gpu].get(LINK_COUNT, 0)), MOST_LINKS))
        capability = identity[gpu]["CudaComputeCapability"] or [0]
        if SWITCH in ask_links(ask, gpu, links, by_fields=capability[0] >= HOPPER):
            switched.add(gpu)
    for gpu in gpus:
        for peer in gpus:
            if peer > gpu:
                ask_pair(ask, gpu, peer, {gpu, peer} <= switched)
    ask_processes(ask, gpus)


class Task:
    """A call running in a thread of its own, so that it can be timed and need not be waited for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: Any = None
        self.began = time.monotonic()
        self._running = _thread.allocate_lock()
        self._running.acquire()
        _thread.start_new_thread(self._run, (call,))

    def _run(self, call: Callable[[], Any]) -> None:
        """Make the call, keep its result or its exception, and release the lock that `ends` waits for."""
        try:
            self.result = call()
        except Exception as error:
            self.error = error
        self._running.release()

    @property
    def seconds(self) -> float:
        """Seconds since the call began, to one decimal."""
        return round(time.monotonic() - self.began, 1)

    def ends(self, until: float, report: Callable[[float], None]) -> bool:
        """Wait for the call; False if it has not returned by `until` (`time.monotonic`).

        `report(seconds)` is called twice a second with the seconds since it began.
        """
        while not self._running.acquire(timeout=max(0.0, min(TICK, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
            report(self.seconds)
        self._running.release()
        return True


def open_gpus(ask: Asker, gpus: Sequence[Tuple[int, Callable[[], Any]]], seconds: float) -> None:
    """Open the GPUs one after the other.

    Those that are not open after `seconds` in all are left out and sent as unopened. One that is slow to open does not
    keep the next ones waiting: it goes on opening in a thread.
    """
    until = time.monotonic() + seconds
    late: List[Tuple[int, Any]] = []
    for gpu, call in gpus:
        if ask.is_left_out(gpu, OPEN):
            continue
        if late and time.monotonic() >= until:
            late.append((gpu, None))
        else:
            ask.send(ask=OPEN, gpu=gpu)
            ask.flush()
            task = Task(call)
            patience = max(TICK, min(NEXT, seconds / 4, until - task.began))
            if not wait_until_open(ask, gpu, task, len(gpus), task.began + patience):
                late.append((gpu, task))
    for gpu, task in late:
        if task is None or not wait_until_open(ask, gpu, task, len(gpus), until):
            ask.left_out.add((gpu, "*"))
            ask.send(gpu=gpu, unopened=seconds)
    ask.send(opened=len(ask.handles))


def wait_until_open(ask: Asker, gpu: int, task: Task, count: int, until: float) -> bool:
    """Wait until `until` for one GPU to open; False if it has not.

    True once NVML has given its handle, which is kept in `ask.handles`, or an error, which is sent.
    """

    def report(seconds: float) -> None:
        """Send that the GPU is still waking."""
        ask.send(waking=gpu, of=count, seconds=seconds)
        ask.flush()

    if not task.ends(until, report):
        return False
    if task.error is None:
        ask.handles[gpu] = task.result
    else:
        ask.report_failure(gpu, OPEN, task.error)
    return True


def gpus_to_open(ask: Asker, awake: Any) -> List[Tuple[int, Callable[[], Any]]]:
    """Index and opening call of each GPU that NVML counts, or of those in `awake` (pairs of index, PCI address)."""
    nvml = ask.nvml
    count = min(ask.machine("nvmlDeviceGetCount") or 0, MOST_GPUS)
    if awake is None:
        return [(gpu, partial(nvml.nvmlDeviceGetHandleByIndex, gpu)) for gpu in range(count)]
    return [(int(gpu), partial(nvml.nvmlDeviceGetHandleByPciBusId, address.encode())) for gpu, address in awake]


def give_up_privileges() -> None:
    """Drop the rights to load kernel modules and make device files, also for what it starts; not on Windows."""
    if sys.platform == "win32":
        return  # Windows loads its drivers when it starts
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # nvidia-modprobe is setuid root
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same of the capabilities from 32 on
    if libc.capget(header, sets) == 0:
        for capability in (CAP_SYS_MODULE, CAP_MKNOD):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            for place in range(3):
                sets[place] &= ~(1 << capability)
        libc.capset(header, sets)


def ask_depth(ask: Asker, gpu: int, retired: bool) -> None:
    """Ask one GPU for its names and limits, retired pages and memory errors by location, and send what it answers.

    `retired`: retired pages are known, or it has none: GPUs that remap rows (Ampere and newer) retire no pages.
    """
    for what in DEPTH:
        ask.gpu(gpu, what)
    if not retired:
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
    """Ask for a GPU's MIG devices; they are sent together as the answer to ``mig``, as a recording holds them.

    No ``mig`` is sent if NVML does not say how many there can be, or says 0.
    """
    most = ask.gpu(gpu, "MaxMigDeviceCount")
    if not most:
        return  # with MIG on there can be some: none were listed because NVML does not say how many to ask for
    devices = []
    open_mig = partial(ask.nvml.nvmlDeviceGetMigDeviceHandleByIndex, ask.handles[gpu])
    for place in range(min(most, MOST_GPUS)):
        call = format_call("nvmlDeviceGetMigDeviceHandleByIndex", (place,))
        handle = ask.report(gpu, call, partial(open_mig, place), send_answer=False)
        if handle is None:
            continue
        answers = {}
        for name in ("nvmlDeviceGet" + what for what in MIG):
            answers[name] = ask.report(gpu, name, partial(ask.call, name, handle), send_answer=False, mig=place)
        devices.append({name: answer for name, answer in answers.items() if answer is not None})
    ask.send(gpu=gpu, call="mig", **{"is": devices})


def ask_links(ask: Asker, gpu: int, links: Sequence[int], by_fields: bool) -> Set[int]:
    """Ask for and send the state of a GPU's NVLinks, and of those that are up version, remote end, speed and error
    counts; returns the kinds of devices at the remote ends.

    `by_fields`: the states of all links are asked for in one call, and singly only where that does not tell. The
    version, one for all links of a GPU, is asked of the first that tells it, and the kind of a remote device of the
    first link that leads to it.
    """
    states: Dict[int, Any] = {}
    if by_fields and links:
        found = ask.fields(gpu, [(LINK_STATE, link) for link in links])
        states = {link: state for (_, link), state in found.items() if state in (INACTIVE, ACTIVE, ASLEEP)}
    for link in links:
        if link not in states:
            states[link] = ask.gpu(gpu, "NvLinkState(%d)" % link)
    active = [link for link in links if states[link]]
    next((link for link in active if ask.gpu(gpu, "NvLinkVersion(%d)" % link) is not None), None)
    kinds: Dict[str, int] = {}
    for link in active:
        pci = ask.gpu(gpu, "NvLinkRemotePciInfo(%d)" % link) or {}
        end = pci["busId"] if pci.get("pciDeviceId") else "link %d" % link  # an address of no device names none
        if end not in kinds:
            kind = ask.gpu(gpu, "NvLinkRemoteDeviceType(%d)" % link)
            kinds.update({} if kind is None else {end: kind})
    if active:
        wanted = [(field, link) for link in active for field in (LINK_SPEED, *LINK_COUNTERS)]
        counted = any(field != LINK_SPEED for field, _ in ask.fields(gpu, wanted))
        for link in () if counted else active:
            if [ask.gpu(gpu, "NvLinkErrorCounter(%d,%d)" % (link, counter)) for counter in range(4)] == [None] * 4:
                break
    return set(kinds.values())


def ask_pair(ask: Asker, gpu: int, peer: int, switched: bool) -> None:
    """Ask for and send what two GPUs can do in each other's memory, and where their PCIe paths meet.

    One direction tells both: the driver judges the two as a set. `switched`: both have NVLinks to switches; where they
    can use these, that is their path, and the other is not asked for.
    """
    states = [ask.pair(gpu, peer, "P2PStatus", capability) for capability in range(4)]
    if not switched or states[NVLINK] != OK:
        ask.pair(gpu, peer, "TopologyCommonAncestor")


def ask_processes(ask: Asker, gpus: Sequence[int]) -> None:
    """Ask for and send the processes on each GPU and their names."""
    pids: Dict[int, None] = {}
    for gpu in gpus:
        for what in PROCESSES:
            listed = ask.report(gpu, "nvmlDeviceGet" + what, partial(ask.processes, gpu, what), send_answer=False)
            if listed is not None:
                pids.update((entry["pid"], None) for entry in listed[0])
                ask.send(gpu=gpu, call="nvmlDeviceGet" + what, of=listed[1], **{"is": listed[0]})
    for pid in list(pids)[:MOST_NAMES]:
        ask.machine("nvmlSystemGetProcessName(%d)" % pid)


def library_candidates() -> Sequence[str]:
    """Names or paths under which NVML's library may be loaded on this system, the most likely first."""
    if sys.platform != "win32":
        return LIBRARIES
    return [os.path.join(os.environ[name], place) for name, place in WINDOWS if name in os.environ]


def load(ask: Asker) -> bool:
    """Load NVML by the loader's rules, else from where WSL and NixOS keep it, so that pynvml finds it; send its name.

    False, with the first error sent, if it cannot be loaded. It is asked for GPUs, not for the parts of them that MPS
    lends, whatever the session sets.
    """
    os.environ.pop("NVML_MPS_DEVICE_ENUMERATION", None)
    first = ""
    for name in library_candidates():
        ask.send(ask="library", gpu=None, path=name)
        ask.flush()
        try:
            if sys.platform == "win32" and not os.path.isfile(name):
                raise FileNotFoundError("%s: No such file or directory" % name)
            ctypes.CDLL(name)
        except OSError as error:
            first = first or str(error)
            continue
        ask.send(gpu=None, call="library", **{"is": name})
        return True
    ask.send(gpu=None, call="library", code=None, text=first)
    return False


def import_pynvml(folder: str) -> Any:
    """Import pynvml from `folder` and return it; without ctypes.util, unused and half of the import's time."""
    unused = types.ModuleType("ctypes.util")
    unused.find_library = None  # type: ignore[attr-defined]
    sys.modules.setdefault("ctypes.util", unused)
    sys.path.insert(0, folder)
    import pynvml

    return pynvml


def main(folder: str, options_json: str = "{}") -> None:
    """Load NVML, initialise it, open the GPUs and ask for everything, printing each call and answer as it goes.

    `folder`: where pynvml is; `options_json`: see `OPTIONS`.
    """
    options = dict(OPTIONS, **json.loads(options_json))
    if options["unprivileged"]:
        give_up_privileges()
    ask = Asker(None, options["left_out"])
    started: List[bool] = []  # what comes before the first GPU waits while another process starts GPUs
    began = time.monotonic()

    def report_starting() -> None:
        """Send twice a second that NVML is starting, until it has."""
        time.sleep(TICK)
        while not started:
            entry = {"starting": "nvmlInit" if ask.nvml else "library", "seconds": round(time.monotonic() - began, 1)}
            os.write(protocol, ("@gpudoctor %s\n" % json.dumps(entry)).encode())
            time.sleep(TICK)

    _thread.start_new_thread(report_starting, ())
    if load(ask):
        ask.nvml = import_pynvml(folder)
        ready = ask.report(None, "nvmlInit", lambda: ask.nvml.nvmlInit() or 0)
        gpus = gpus_to_open(ask, options["awake"]) if ready is not None else []
        started.append(True)
        if ready is not None:
            open_gpus(ask, gpus, float(options["seconds"]))
            ask_everything(ask)
            ask.send(done=True)
    ask.flush()


if __name__ == "__main__":
    main(*sys.argv[2:])
    os._exit(0)  # what the library does at the end of a process is none of ours
