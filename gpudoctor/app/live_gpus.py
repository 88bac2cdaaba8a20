"""The GPUs as they are now, twice a second: a child asks NVML; one that hangs or dies is seen, said, and replaced.

A call that does not return costs the GPU it is about, not the others: the next child leaves that GPU out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.core.sample import GPU, NUMBERS, Instance, Process, Sample
from gpudoctor.probes._nvml import values
from gpudoctor.probes._nvml.client import child_argv
from gpudoctor.probes._nvml.columns import COLUMNS
from gpudoctor.target.child import Stream
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import answers, printable

SAMPLE_SECONDS = 0.5
HANG_SECONDS = 15.0
"""Seconds after which a call that has not returned is given up: it may wait while a job opens a GPU."""

START_SECONDS = 30.0
"""Seconds that NVML may take to start, and each GPU to open: it wakes where no daemon keeps the driver loaded."""

RESTART_SECONDS = (0.0, 2.0, 10.0, 30.0)
"""Seconds before another child is started, from the first failure on; the last one again and again."""

_QUIET_SECONDS = 1.0
_SOUND_SAMPLES = 20
"""Samples after which a child counts as sound: the next failure is a first one again."""

OnSample = Callable[[Sample], None]
_GPU_MARKS = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")


def has_gpus() -> bool:
    """Whether the NVIDIA driver's files (/dev/nvidiactl, /dev/dxg, its version in /proc) show that NVML may answer."""
    return any(Path(mark).exists() for mark in _GPU_MARKS)


def watch(on_sample: OnSample, target: Local | None = None, interval: float = SAMPLE_SECONDS) -> Callable[[], None]:
    """Call `on_sample` with every NVML sample, in a thread, `interval` seconds apart, until the result is called."""
    watcher = Watcher(on_sample, target or Local(), interval)
    threading.Thread(target=watcher.run, name="watch", daemon=True).start()
    return watcher.stop


class Shared:
    """One sampling child shared by several watchers: started for the first, ended with the last."""

    def __init__(self, target: Local | None = None) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._listeners: list[OnSample] = []
        self._end: Callable[[], None] = lambda: None
        self._last: Sample | None = None

    def watch(self, on_sample: OnSample) -> Callable[[], None]:
        """Call `on_sample` with the latest sample, if any, and with each later one, until the result is called."""
        with self._lock:
            self._listeners.append(on_sample)
            if len(self._listeners) == 1:
                self._last, self._end = None, watch(self._tell, self._target)
            last = self._last
        if last:
            on_sample(last)
        return lambda: self._leave(on_sample)

    def _tell(self, sample: Sample) -> None:
        """Keep the sample as the latest, and pass it to every listener."""
        with self._lock:
            self._last, listeners = sample, list(self._listeners)
        for listener in listeners:
            listener(sample)

    def _leave(self, on_sample: OnSample) -> None:
        """Stop calling `on_sample`; end the child that samples NVML if no listener is left."""
        with self._lock:
            if on_sample in self._listeners:
                self._listeners.remove(on_sample)
                if not self._listeners:
                    self._end()


@dataclass(slots=True)
class _Failure:
    """Why a child process failed: the message, and the NVML call and GPU where they are known.

    `final` means that no other child is to be started.
    """

    why: str
    gpu: int | None = None
    call: str = ""
    crashed: bool = False
    final: bool = False


class Watcher:
    """Keeps one child process sampling NVML, and starts another where it hangs or dies."""

    def __init__(self, on_sample: OnSample, target: Local, interval: float) -> None:
        self._on_sample = on_sample
        self._target = target
        self._interval = interval
        self._stopped = threading.Event()
        self._left_out: dict[int, str] = {}
        """GPUs that are not asked any more, and why."""
        self._announce_calls = False

    def stop(self) -> None:
        """Have the watcher end its child, which samples NVML; returns at once."""
        self._stopped.set()

    def run(self) -> None:
        """Run children that sample NVML one after another until `stop`, or a final failure.

        Each failure is passed on as a sample with `trouble`. A GPU on which one hung or crashed is left out from then
        on; pauses grow with failures in a row.
        """
        failures = 0
        while not self._stopped.is_set():
            state = _ChildState()
            fault = self._run_child(state)
            if self._stopped.is_set():
                return
            failures = 1 if state.samples > _SOUND_SAMPLES else failures + 1
            if fault.gpu is not None and fault.gpu >= 0:
                self._left_out[fault.gpu] = fault.why
            self._announce_calls = fault.crashed and not fault.call
            self._report_trouble(fault.why)
            if fault.final:
                return
            self._stopped.wait(RESTART_SECONDS[min(failures, len(RESTART_SECONDS)) - 1])

    def _report_trouble(self, trouble: str) -> None:
        """Pass a sample without GPUs, whose `trouble` is this text, to `on_sample`."""
        self._on_sample(Sample(time.time(), trouble=trouble))

    def _run_child(self, state: _ChildState) -> _Failure:
        """Start a child that samples NVML and read its samples until it ends; returns why it ended."""
        left_out, announce = json.dumps(sorted(self._left_out)), "aloud" if self._announce_calls else ""
        argv = child_argv("watch_nvml.py", f"{self._interval:g}", left_out, announce)
        if not argv:
            return _Failure("the package nvidia-ml-py is not installed beside gpudoctor", final=True)
        try:
            stream = self._target.stream(argv)
        except OSError as error:
            return _Failure(f"the child that asks NVML could not be started: {error.strerror or error}")
        fault = None
        try:
            fault = self._read_samples(stream, state)
        finally:
            status, last = stream.end()
        if status is None:
            what = fault.why if fault else "the child that asks NVML does not end"
            return _Failure(f"{what} (pid {stream.pid} cannot be stopped and is left behind)", final=True)
        return fault or state.fault(status, last)

    def _read_samples(self, stream: Stream, state: _ChildState) -> _Failure | None:
        """Pass on a sample for each round of the child; the failure that ended it, None at end of file or on `stop`.

        While a call is slow, its name is reported as `trouble`.
        """
        last_message = time.monotonic()
        while not self._stopped.is_set():
            try:
                line = stream.line(_QUIET_SECONDS)
            except EOFError:
                return None
            now = time.monotonic()
            for entry in answers(line) if line else ():
                before = state.step
                if state.add_message(entry):
                    self._on_sample(state.sample(self._left_out))
                if state.step != before or "gpus" in entry:
                    last_message = now
            if fault := state.timeout_failure(now - last_message):
                return fault
            if now - last_message > _QUIET_SECONDS and state.waits:
                self._report_trouble(state.waits)
        return None


@dataclass(slots=True)
class _ChildState:
    """State of one child: the latest answers and errors of each GPU, its pending call, and its traffic counters."""

    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0
    waits: str = ""
    step: tuple[str, int | None] = ("", None)
    """The call that has been announced and has not returned, and its GPU."""
    _failed: str = ""
    _carried: dict[tuple[int, str], tuple[float, int, float | None]] = field(default_factory=dict)

    def add_message(self, entry: Mapping[str, Any]) -> bool:
        """Update the state by one message of the child that samples NVML; True if it completes a round."""
        if "waits" in entry:
            self.step = (str(entry["waits"]), entry["gpu"])
            waking = self.step[0] == "HandleByIndex"
            self.waits = f"GPU {self.step[1]} is waking" if waking else f"{_call_label(*self.step)} has not returned"
        elif "opened" in entry:
            self.step = ("", None)
        elif "ask" in entry:
            self.step = (str(entry["ask"]), entry.get("gpu"))
        elif "code" in entry:
            self._failed = printable(entry.get("text", ""))
        elif "gpus" in entry:
            self.waits, self.step = "", ("", None)
            self.samples += 1
            self.seconds = float(entry["seconds"])
            self.errors = {int(gpu): printable(why) for gpu, why in entry["errors"].items()}
            for gpu, news in entry["gpus"].items():
                self.answers.setdefault(int(gpu), {}).update(news)
            return True
        return False

    def timeout_failure(self, silent: float) -> _Failure | None:
        """The failure to report after `silent` seconds without a message of NVML's child; None within the limits.

        30 s for its start, or a GPU that is waking; else 15 s for a call.
        """
        call, gpu = self.step
        starting = not self.samples and (gpu is None or gpu < 0 or call == "HandleByIndex")
        limit = START_SECONDS if starting else HANG_SECONDS
        if silent < limit:
            return None
        if not call:
            return _Failure(f"the child that asks NVML has said nothing for {limit:g} s")
        return _Failure(f"{_call_label(call, gpu)} did not return within {limit:g} s", gpu, call)

    def fault(self, status: int, last: str) -> _Failure:
        """Why a child that ended with this exit status did; `last` is the end of its output."""
        if self._failed:
            return _Failure(self._failed)
        call, gpu = self.step
        if status < 0:
            where = _call_label(call, gpu) if call else "NVML"
            return _Failure(f"{where} crashed (signal {-status})", gpu if call else None, call, crashed=True)
        return _Failure(printable(f"the child that asks NVML ended: exit {status} {last}".strip()))

    def sample(self, left_out: Mapping[int, str]) -> Sample:
        """A sample of all GPUs by their newest answers; `left_out` gives why GPUs are not asked any more."""
        gpus = []
        for index in sorted({*self.answers, *self.errors}):
            answers = self.answers.get(index, {})
            rates = {name: self._rate(index, name, answers.get(call)) for name, call in TRAFFIC}
            gpus.append(gpu(index, answers, left_out.get(index) or self.errors.get(index, ""), rates))
        return Sample(self.seconds, tuple(gpus))

    def _rate(self, index: int, name: str, kib: object) -> float | None:
        """MB/s of a link from its KiB counter; None before the counter was read twice, or after it went back."""
        if not isinstance(kib, int):
            return None
        before = self._carried.get((index, name))
        if before is None or kib < before[1]:
            self._carried[index, name] = (self.seconds, kib, None)
            return None
        seconds, last, rate = before
        if self.seconds > seconds:
            rate = (kib - last) * 1024 / 1e6 / (self.seconds - seconds)
            self._carried[index, name] = (self.seconds, kib, rate)
        return rate


def _call_label(call: str, gpu: int | None) -> str:
    """Name of an NVML call for messages: ``nvmlDeviceGetName of GPU 0``."""
    name = call.partition("(")[0]
    if gpu is None or gpu < 0:
        return name
    return f"{name if name.startswith('nvml') else f'nvmlDeviceGet{name}'} of GPU {gpu}"


# ---- The answers of NVML about a GPU, as one reading of a sample ----

TRAFFIC = (("nvlink_send_mb_s", "FieldValues(138)"), ("nvlink_receive_mb_s", "FieldValues(139)"))
"""Rates, and the counters of KiB that they follow from."""

_READ = {*NUMBERS, "name", "uuid", "address", "throttle_reasons"}


_FIELDS: Sequence[tuple[str, Sequence[str], values.Reading]] = (
    *(
        (column.name, [call.removeprefix("nvmlDeviceGet") for call in column.calls], column.read)
        for column in COLUMNS
        if column.name in _READ and column.calls
    ),
    ("links", ("FieldValues(91)",), values.as_int),
    ("pcie_replays", ("PcieReplayCounter",), values.as_int),
    *((name, (name,), values.as_int) for name in ("nvlink_crc", "nvlink_replays", "nvlink_failures")),
    ("pcie_send_mb_s", ("PcieThroughput(0)",), lambda kb_s: int(kb_s) / 1000),
    ("pcie_receive_mb_s", ("PcieThroughput(1)",), lambda kb_s: int(kb_s) / 1000),
)
"""Fields of a GPU, with the calls that tell them and how each is read."""


def gpu(index: int, replies: Mapping[str, Any], error: str, rates: Mapping[str, float | None]) -> GPU:
    """One GPU's reading in a sample, from the newest answer to each NVML call.

    Fields whose call failed or whose answer is malformed are listed in `unanswered` with the reason.
    """
    answered: dict[str, Any] = {}
    unanswered: dict[str, str] = {}
    for name, calls, read in _FIELDS:
        answer: Any = next((replies[call] for call in calls if replies.get(call) is not None), None)
        if _failed(answer):
            unanswered[name] = printable(answer["text"])
        elif answer is not None:
            try:
                answered[name] = read(answer)
            except values.MALFORMED_ERRORS:
                unanswered[name] = f"an answer of another shape: {printable(answer, 40)}"
    return GPU(
        index=index,
        **{**answered, **rates},
        links_up=replies.get("links_up"),
        instances=tuple(_instance(place, device) for place, device in enumerate(replies.get("mig") or ())),
        processes=_processes(replies.get("processes")),
        error=error,
        unanswered=unanswered,
    )


def _failed(answer: Any) -> bool:
    """True if the answer is an NVML error: a dict of exactly ``code`` and ``text``."""
    return isinstance(answer, dict) and answer.keys() == {"code", "text"}


def _instance(place: int, replies: Mapping[str, Any]) -> Instance:
    """A MIG device's reading; profile and UUID are empty, and memory (MiB) None, where NVML gave none."""
    memory = replies.get("MemoryInfo") or {}
    try:
        profile = values.profile(replies.get("Name") or "", replies.get("Attributes")) or ""
    except values.MALFORMED_ERRORS:
        profile = ""
    return Instance(
        place,
        profile,
        str(replies.get("UUID") or ""),
        values.mib(memory["total"]) if "total" in memory else None,
        values.mib(memory["used"]) if "used" in memory else None,
    )


def _processes(rows: object) -> tuple[Process, ...] | None:
    """Processes from rows of (pid, name, user, bytes of GPU memory or None), memory as MiB; None if it is no list."""
    if not isinstance(rows, list):
        return None
    return tuple(
        Process(int(pid), printable(name), printable(user), None if memory is None else int(memory) >> 20)
        for pid, name, user, memory in rows
    )
