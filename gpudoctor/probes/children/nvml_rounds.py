"""What is asked of each GPU in each round of watch_nvml.py, and what of it is new.

What moves is asked each round, the rest now and then. Standard library and pynvml only; Python 3.8.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from gpudoctor.probes.children.ask_nvml import MIG, MOST_GPUS
    from gpudoctor.probes.children.nvml_calls import LOST, NOT_SUPPORTED, VALUE_TYPES, Asker, parted
    from gpudoctor.probes.children.nvml_people import People
else:
    from ask_nvml import MIG, MOST_GPUS
    from nvml_calls import LOST, NOT_SUPPORTED, VALUE_TYPES, Asker, parted
    from nvml_people import People

ONCE = ("Name", "UUID", "PciInfo")
TABLE = """
UtilizationRates MemoryInfo PowerUsage Temperature(0) ClockInfo(1) ClockInfo(2) CurrentClocksEventReasons

EnforcedPowerLimit MaxClockInfo(1) MaxClockInfo(2) TemperatureThreshold(1) TotalEccErrors(0,0) TotalEccErrors(1,0)
RemappedRows CurrPcieLinkGeneration MaxPcieLinkGeneration CurrPcieLinkWidth MaxPcieLinkWidth MigMode
"""
MOVING, SLOW = (part.split() for part in TABLE.split("\n\n"))
FIELDS = ((82,), (91,), (29,), (30,))
"""Memory temperature, number of NVLinks, pages retired: single bit, double bit."""

ALL_LINKS = 0xFFFFFFFF
TRAFFIC = ((138, ALL_LINKS), (139, ALL_LINKS))
"""KiB sent and received over all NVLinks together."""

THROUGHPUT = ("PcieThroughput(0)", "PcieThroughput(1)")
"""Each takes the driver 20 ms: one GPU a round."""

SLOWLY, LISTED = 10, 4
"""Rounds between two looks at what is slow, and at processes and MIG devices."""

MOST_INSTANCES = 16


class Watcher(Asker):
    """What each GPU answers, told where it has changed. `step` is the call on its way, since when, of which GPU."""

    def __init__(self, nvml: Any, aloud: bool) -> None:
        super().__init__(nvml, [])
        self.aloud = aloud
        self.step: Optional[Tuple[str, int, float]] = None
        self.known: Dict[int, Dict[str, Any]] = {}
        self.news: Dict[int, Dict[str, Any]] = {}
        self.errors: Dict[int, str] = {}
        self.mig: Dict[int, List[Tuple[Any, Dict[str, Any]]]] = {}
        self.people = People()

    def make(self, gpu: int, call: str, getter: Any) -> Any:
        """Make a call, so that whoever waits for it knows which it is; raises what it raises."""
        self.step = (call, gpu, time.monotonic())
        if self.aloud:
            self.say(ask=call, gpu=gpu)
            self.flush()
        try:
            return getter()
        finally:
            self.step = None

    def learn(self, gpu: int, what: str, getter: Any) -> Any:
        """Make a call and keep its answer, if it is new; what is not supported is not asked again."""
        known = self.known.setdefault(gpu, {})
        if known.get(what, "") is None or gpu in self.errors:
            return None
        try:
            answer = self.make(gpu, what, getter)
        except Exception as error:
            code = getattr(error, "value", None) if isinstance(error, self.nvml.NVMLError) else None
            if code == LOST:
                self.errors[gpu] = self.words(code)
            failed = {"code": code, "text": str(error) if code is None else self.words(code)}
            self.note(gpu, what, None if code == NOT_SUPPORTED else failed)
            return None
        self.note(gpu, what, answer)
        return answer

    def note(self, gpu: int, what: str, answer: Any) -> None:
        """Keep an answer; it is told in this round if it is new."""
        known = self.known.setdefault(gpu, {})
        if what not in known or known[what] != answer:
            known[what] = answer
            self.news.setdefault(gpu, {})[what] = answer

    def get(self, gpu: int, what: str) -> Any:
        """``PciInfo`` or ``Temperature(0)``."""
        name, arguments = parted("nvmlDeviceGet" + what)
        return self.learn(gpu, what, lambda: self.call(name, self.handles[gpu], *arguments))

    def values(self, gpu: int, wanted: Any) -> None:
        """Field values, asked at once; each is an answer of its own."""
        if gpu in self.errors or self.known.get(gpu, {}).get("FieldValues", "") is None:
            return
        asked = [field if len(field) > 1 else field[0] for field in wanted]
        try:
            ask = partial(self.nvml.nvmlDeviceGetFieldValues, self.handles[gpu], asked)
            found = self.make(gpu, "FieldValues", ask)
        except self.nvml.NVMLError as error:
            if error.value in (NOT_SUPPORTED, LOST):
                self.note(gpu, "FieldValues", None)
            return
        for field, value in zip(wanted, found):  # noqa: B905 - Python 3.8
            name = "FieldValues(%d)" % field[0]
            known = not value.nvmlReturn and value.valueType < len(VALUE_TYPES)
            self.note(gpu, name, getattr(value.value, VALUE_TYPES[value.valueType]) if known else None)

    def open(self, count: int, left_out: List[int]) -> None:
        """The handles of all GPUs but those left out."""
        for gpu in range(min(count, MOST_GPUS)):
            if gpu in left_out:
                self.errors[gpu] = "not asked any more: a call about it did not return"
                continue
            try:
                ask = partial(self.nvml.nvmlDeviceGetHandleByIndex, gpu)
                self.handles[gpu] = self.make(gpu, "HandleByIndex", ask)
            except self.nvml.NVMLError as error:
                self.errors[gpu] = self.words(error.value)

    def round(self, number: int) -> None:
        """Ask what is due in this round, and tell what is new."""
        for gpu in self.handles:
            first = number == 0
            for what in ONCE if first else ():
                self.get(gpu, what)
            for what in MOVING:
                self.get(gpu, what)
            self.values(gpu, TRAFFIC)
            if first or (number + gpu) % SLOWLY == 0:
                self.slowly(gpu)
            if first or (number + gpu) % LISTED == 0:
                self.listed(gpu)
        gpus = list(self.handles)
        if number and gpus:
            for what in THROUGHPUT:
                self.get(gpus[number % len(gpus)], what)
        self.say(seconds=time.time(), gpus=self.news, errors=self.errors)
        self.flush()
        self.news = {}

    def slowly(self, gpu: int) -> None:
        """What changes with a reset, an error or a hand."""
        for what in SLOW:
            self.get(gpu, what)
        self.values(gpu, FIELDS)
        links = self.known[gpu].get("FieldValues(91)")
        if links and gpu not in self.errors:
            states = [self.get(gpu, "NvLinkState(%d)" % link) for link in range(min(int(links), 64))]
            self.note(gpu, "links_up", sum(1 for state in states if state))

    def listed(self, gpu: int) -> None:
        """Processes, and the MIG devices with their memory."""
        found: Dict[int, Any] = {}
        for what in ("ComputeRunningProcesses", "GraphicsRunningProcesses"):
            try:
                told, _ = self.make(gpu, what, partial(self.processes, gpu, what))
            except Exception:
                if what.startswith("Compute"):
                    return
                continue
            for entry in told:
                found.setdefault(entry["pid"], entry["usedGpuMemory"])
        rows = [[pid, *self.person(gpu, pid), memory] for pid, memory in found.items()]
        self.people.keep(gpu, list(found))
        self.note(gpu, "processes", rows)
        if (self.known[gpu].get("MigMode") or [0])[0]:
            self.note(gpu, "mig", self.instances(gpu))

    def person(self, gpu: int, pid: int) -> Tuple[str, str]:
        """Name and user of a process: NVML's name for it where the system has none."""
        ask = partial(self.call, "nvmlSystemGetProcessName", pid)
        return self.people.of(pid, lambda: str(self.make(gpu, "nvmlSystemGetProcessName", ask)))

    def instances(self, gpu: int) -> List[Dict[str, Any]]:
        """The MIG devices; what does not change of them is asked once."""
        if gpu not in self.mig:
            self.mig[gpu] = []
            for place in range(MOST_INSTANCES):
                try:
                    handle = self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handles[gpu], place)
                except self.nvml.NVMLError:
                    continue
                self.mig[gpu].append((handle, {what: self.of(handle, what) for what in MIG}))
        return [{**told, "MemoryInfo": self.of(handle, "MemoryInfo")} for handle, told in self.mig[gpu]]

    def of(self, handle: Any, what: str) -> Any:
        """What a MIG device answers, or None."""
        try:
            return self.call("nvmlDeviceGet" + what, handle)
        except Exception:
            return None
