"""Ask NVML again and again what the GPUs do, until standard input ends.

Run as ``python -I -S watch_nvml.py OURS FOLDER SECONDS LEFT_OUT ALOUD``: OURS and FOLDER as in ask_nvml.py, the seconds
between two rounds, the GPUs that are not to be asked as a JSON list of indices, and ``aloud`` where each call is to be
told before it is made, since the child before died of one. Each line is ``@gpudoctor`` and a JSON object:

``{"seconds": unix clock, "gpus": {"0": {call: answer}}, "errors": {"2": why it does not answer}}`` after each round,
with what is new: an answer, null for what this GPU does not report, or NVML's ``{"code": ..., "text": ...}``;
``{"opened": how many GPUs}`` once, before the first; ``{"waits": call, "gpu": index, "seconds": ...}`` each second
while a call does not return; ``{"ask": call, "gpu": index}`` aloud; ``{"gpu": null, "call": ..., "code": ...,
"text": ...}`` where NVML does not start: then it ends.

What moves is asked each round, the rest now and then. Standard library and pynvml only; Python 3.8.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from gpudoctor.probes.children.ask_nvml import MIG, MOST_GPUS, import_pynvml, load
    from gpudoctor.probes.children.nvml_calls import LOST, NOT_SUPPORTED, Asker, parse_call, protocol
    from gpudoctor.probes.children.process_names import ProcessNames
else:
    sys.path.insert(0, sys.argv[1])
    from ask_nvml import MIG, MOST_GPUS, import_pynvml, load
    from nvml_calls import LOST, NOT_SUPPORTED, Asker, parse_call, protocol
    from process_names import ProcessNames

PATIENCE = 1.0
ONCE = ("Name", "UUID", "PciInfo")
TABLE = """
UtilizationRates MemoryInfo PowerUsage Temperature(0) ClockInfo(1) ClockInfo(2) CurrentClocksEventReasons

EnforcedPowerLimit MaxClockInfo(1) MaxClockInfo(2) TemperatureThreshold(1)
RemappedRows CurrPcieLinkGeneration MaxPcieLinkGeneration CurrPcieLinkWidth MaxPcieLinkWidth MigMode
"""
MOVING, SLOW = (part.split() for part in TABLE.split("\n\n"))
COUNTERS = ("TotalEccErrors(0,0)", "TotalEccErrors(1,0)", "PcieReplayCounter")
LINK_COUNTERS = {"nvlink_crc": (163,), "nvlink_replays": (161,), "nvlink_failures": (162, 214, 219)}
"""Sums over all NVLinks of a GPU: CRC errors; packets sent again; trained again, or not recovered, or left wrong."""

FIELDS = ((82,), (91,), (29,), (30,))
"""Memory temperature, number of NVLinks, pages retired: single bit, double bit."""

ALL_LINKS = 0xFFFFFFFF
TRAFFIC = ((138, ALL_LINKS), (139, ALL_LINKS))
"""KiB sent and received over all NVLinks together."""

THROUGHPUT = ("PcieThroughput(0)", "PcieThroughput(1)")
"""Each takes the driver 20 ms: one GPU a round."""

SLOWLY, LISTED, COUNTED = 10, 4, 2
"""Rounds between two looks at what is slow, at processes and MIG devices, and at counters of errors."""

MOST_INSTANCES = 16


class Watcher(Asker):
    """Asks each GPU in rounds and sends answers that changed. `step`: current call, its GPU and start time, or None."""

    def __init__(self, nvml: Any, announce: bool) -> None:
        """`announce`: send each call before it is made."""
        super().__init__(nvml, [])
        self.announce = announce
        self.step: Optional[Tuple[str, int, float]] = None
        self.known: Dict[int, Dict[str, Any]] = {}
        self.changed: Dict[int, Dict[str, Any]] = {}
        self.errors: Dict[int, str] = {}
        self.mig: Dict[int, List[Tuple[Any, Dict[str, Any]]]] = {}
        self.process_names = ProcessNames()

    def make(self, gpu: int, call: str, getter: Any) -> Any:
        """Make a call and return its answer, with `step` set meanwhile; raises what the call raises."""
        self.step = (call, gpu, time.monotonic())
        if self.announce:
            self.send(ask=call, gpu=gpu)
            self.flush()
        try:
            return getter()
        finally:
            self.step = None

    def ask_if_supported(self, gpu: int, what: str, getter: Any) -> Any:
        """Make the call `getter` about a GPU and keep its answer or failure as `what`; the answer, None if it failed.

        Not asked again: what the GPU does not support, and a GPU that was lost.
        """
        known = self.known.setdefault(gpu, {})
        if known.get(what, "") is None or gpu in self.errors:
            return None
        try:
            answer = self.make(gpu, what, getter)
        except Exception as error:
            code = getattr(error, "value", None) if isinstance(error, self.nvml.NVMLError) else None
            if code == LOST:
                self.errors[gpu] = self.error_text(code)
            failed = {"code": code, "text": str(error) if code is None else self.error_text(code)}
            self.record(gpu, what, None if code == NOT_SUPPORTED else failed)
            return None
        self.record(gpu, what, answer)
        return answer

    def record(self, gpu: int, what: str, answer: Any) -> None:
        """Keep a GPU's answer to the call `what`; the first, or one that differs from the one kept before, is sent at
        the end of this round.
        """
        known = self.known.setdefault(gpu, {})
        if what not in known or known[what] != answer:
            known[what] = answer
            self.changed.setdefault(gpu, {})[what] = answer

    def get(self, gpu: int, what: str) -> Any:
        """Ask a GPU for ``PciInfo`` or ``Temperature(0)``, names without ``nvmlDeviceGet``; None if it failed."""
        name, arguments = parse_call("nvmlDeviceGet" + what)
        return self.ask_if_supported(gpu, what, lambda: self.call(name, self.handles[gpu], *arguments))

    def ask_fields(self, gpu: int, wanted: Any) -> None:
        """Ask for NVML field values in one call; each is kept by itself, ``FieldValues(82)``, None if it failed."""
        if gpu in self.errors or self.known.get(gpu, {}).get("FieldValues", "") is None:
            return
        try:
            found = self.make(gpu, "FieldValues", partial(self.field_values, gpu, wanted))
        except self.nvml.NVMLError as error:
            if error.value in (NOT_SUPPORTED, LOST):
                self.record(gpu, "FieldValues", None)
            return
        for field, (_, value) in zip(wanted, found):  # noqa: B905 - Python 3.8
            self.record(gpu, "FieldValues(%d)" % field[0], value)

    def open(self, count: int, left_out: List[int]) -> None:
        """Open the first `count` GPUs but those in `left_out`; keeps their handles, or why not in `errors`."""
        for gpu in range(min(count, MOST_GPUS)):
            if gpu in left_out:
                self.errors[gpu] = "not asked any more: a call about it did not return"
                continue
            try:
                ask = partial(self.nvml.nvmlDeviceGetHandleByIndex, gpu)
                self.handles[gpu] = self.make(gpu, "HandleByIndex", ask)
            except self.nvml.NVMLError as error:
                self.errors[gpu] = self.error_text(error.value)

    def round(self, number: int) -> None:
        """Make the calls due in round `number` (0: all but PCIe throughput), then send what changed and all errors."""
        for gpu in self.handles:
            first = number == 0
            for what in ONCE if first else ():
                self.get(gpu, what)
            for what in MOVING:
                self.get(gpu, what)
            self.ask_fields(gpu, TRAFFIC)
            if first or (number + gpu) % SLOWLY == 0:
                self.ask_slow(gpu)
            if first or (number + gpu) % COUNTED == 0:
                self.ask_counters(gpu)
            if first or (number + gpu) % LISTED == 0:
                self.ask_lists(gpu)
        gpus = list(self.handles)
        if number and gpus:
            for what in THROUGHPUT:
                self.get(gpus[number % len(gpus)], what)
        self.send(seconds=time.time(), gpus=self.changed, errors=self.errors)
        self.flush()
        self.changed = {}

    def ask_slow(self, gpu: int) -> None:
        """Ask a GPU for what only a reset, an error or an administrator changes, and how many NVLinks are up."""
        for what in SLOW:
            self.get(gpu, what)
        self.ask_fields(gpu, FIELDS)
        links = self.known[gpu].get("FieldValues(91)")
        if links and gpu not in self.errors:
            states = [self.get(gpu, "NvLinkState(%d)" % link) for link in range(min(int(links), 64))]
            self.record(gpu, "links_up", sum(1 for state in states if state))

    def ask_counters(self, gpu: int) -> None:
        """Ask a GPU for its counters of errors, memory's, PCIe's, and sums over all its NVLinks, and keep them."""
        for what in COUNTERS:
            self.get(gpu, what)
        links, name = self.known[gpu].get("FieldValues(91)"), next(iter(LINK_COUNTERS))
        if not links or gpu in self.errors or self.known[gpu].get(name, "") is None:
            return
        numbers = [number for numbers in LINK_COUNTERS.values() for number in numbers]
        asked = [(number, link) for number in numbers for link in range(min(int(links), 64))]
        try:
            found = self.make(gpu, "FieldValues", partial(self.field_values, gpu, asked))
        except self.nvml.NVMLError:
            self.record(gpu, name, None)
            return
        for name, numbers_of in LINK_COUNTERS.items():
            counts = [
                value
                for (number, _), (_, value) in zip(asked, found)  # noqa: B905 - Python 3.8
                if number in numbers_of and value is not None
            ]
            self.record(gpu, name, sum(counts) if counts else None)

    def ask_lists(self, gpu: int) -> None:
        """Ask a GPU for its processes (pid, name, user and bytes of memory each) and MIG devices, and keep them."""
        found: Dict[int, Any] = {}
        for what in ("ComputeRunningProcesses", "GraphicsRunningProcesses"):
            try:
                entries, _ = self.make(gpu, what, partial(self.processes, gpu, what))
            except Exception:
                if what.startswith("Compute"):
                    return
                continue
            for entry in entries:
                found.setdefault(entry["pid"], entry["usedGpuMemory"])
        rows = [[pid, *self.name_and_user(gpu, pid), memory] for pid, memory in found.items()]
        self.process_names.forget_ended(gpu, list(found))
        self.record(gpu, "processes", rows)
        if (self.known[gpu].get("MigMode") or [0])[0]:
            self.record(gpu, "mig", self.mig_instances(gpu))

    def name_and_user(self, gpu: int, pid: int) -> Tuple[str, str]:
        """Name and user of a process, by /proc; NVML's name for it if /proc has none."""
        ask = partial(self.call, "nvmlSystemGetProcessName", pid)
        return self.process_names.name_and_user(pid, lambda: str(self.make(gpu, "nvmlSystemGetProcessName", ask)))

    def mig_instances(self, gpu: int) -> List[Dict[str, Any]]:
        """Answers, by call, of each of the GPU's MIG devices; only their memory is asked for anew."""
        if gpu not in self.mig:
            self.mig[gpu] = []
            for place in range(MOST_INSTANCES):
                try:
                    handle = self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handles[gpu], place)
                except self.nvml.NVMLError:
                    continue
                self.mig[gpu].append((handle, {what: self.mig_answer(handle, what) for what in MIG}))
        return [{**entries, "MemoryInfo": self.mig_answer(handle, "MemoryInfo")} for handle, entries in self.mig[gpu]]

    def mig_answer(self, handle: Any, what: str) -> Any:
        """One answer of a MIG device; None if the call failed."""
        try:
            return self.call("nvmlDeviceGet" + what, handle)
        except Exception:
            return None


def exit_at_end_of_input() -> None:
    """Wait for the end of standard input, then end the process at once: exit status 0, no cleanup."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def report_stuck_calls(watcher: Watcher) -> None:
    """Send, twice a second, which call has not returned for longer than PATIENCE seconds; never returns."""
    while True:
        time.sleep(PATIENCE / 2)
        step = watcher.step
        if step and time.monotonic() - step[2] > PATIENCE:
            line = {"waits": step[0], "gpu": step[1], "seconds": round(time.monotonic() - step[2], 1)}
            os.write(protocol, ("@gpudoctor %s\n" % json.dumps(line)).encode())


def main(folder: str, seconds: str, left_out: str, aloud: str) -> None:
    """Load NVML, initialise it, and ask in rounds every `seconds`; returns only if NVML does not start.

    `folder`: where pynvml is; `left_out`: indices of GPUs as a JSON list; `aloud`: ``aloud`` if calls are announced.
    """
    _thread.start_new_thread(exit_at_end_of_input, ())
    watcher = Watcher(None, aloud == "aloud")
    _thread.start_new_thread(report_stuck_calls, (watcher,))
    watcher.step = ("the load of the library", -1, time.monotonic())
    if not load(watcher):
        watcher.flush()
        return
    watcher.nvml = import_pynvml(folder)
    watcher.step = ("nvmlInit", -1, time.monotonic())
    if watcher.report(None, "nvmlInit", lambda: watcher.nvml.nvmlInit() or 0) is None:
        watcher.flush()
        return
    watcher.step = None
    watcher.open(int(watcher.machine("nvmlDeviceGetCount") or 0), json.loads(left_out))
    watcher.send(opened=len(watcher.handles))
    watcher.flush()
    number, due = 0, time.monotonic()
    while True:
        watcher.round(number)
        number += 1
        due = max(due + float(seconds), time.monotonic() + float(seconds) / 4)
        time.sleep(due - time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[2:])
    os._exit(0)
