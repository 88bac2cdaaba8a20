"""The GPUs as they are now, twice a second: a child asks NVML; one that hangs or dies is seen, said, and replaced.

A call that does not return costs the GPU it is about, not the others: the next child leaves that GPU out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.model.sample import Sample
from gpudoctor.probes._nvml import sampled
from gpudoctor.probes._nvml.talk import child_argv
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import answers, printable
from gpudoctor.target.stream import Stream

INTERVAL = 0.5
HANGS = 15.0
"""Seconds after which a call that has not returned is given up: it may wait while a job opens a GPU."""

STARTS = 30.0
"""Seconds that NVML may take to start, and each GPU to open: it wakes where no daemon keeps the driver loaded."""

PAUSES = (0.0, 2.0, 10.0, 30.0)
"""Seconds before another child is started, from the first failure on; the last one again and again."""

_QUIET = 1.0
_SETTLED = 20
"""Samples after which a child counts as sound: the next failure is a first one again."""

Hear = Callable[[Sample], None]


def watch(hear: Hear, target: Local | None = None, interval: float = INTERVAL) -> Callable[[], None]:
    """Tell `hear` of every sample, in a thread of its own, until what is returned is called."""
    watcher = Watcher(hear, target or Local(), interval)
    threading.Thread(target=watcher.run, name="watch", daemon=True).start()
    return watcher.stop


@dataclass(slots=True)
class _Fault:
    """What a child died of: the call and its GPU, where they are known."""

    why: str
    gpu: int | None = None
    call: str = ""
    crashed: bool = False
    final: bool = False


class Watcher:
    """Keeps one child asking."""

    def __init__(self, hear: Hear, target: Local, interval: float) -> None:
        self._hear = hear
        self._target = target
        self._interval = interval
        self._over = threading.Event()
        self._left_out: dict[int, str] = {}
        """GPUs that are not asked any more, and why."""
        self._aloud = False

    def stop(self) -> None:
        """End the child, soon."""
        self._over.set()

    def run(self) -> None:
        """Child after child."""
        failures = 0
        while not self._over.is_set():
            ears = _Ears()
            fault = self._listen(ears)
            if self._over.is_set():
                return
            failures = 1 if ears.samples > _SETTLED else failures + 1
            if fault.gpu is not None and fault.gpu >= 0:
                self._left_out[fault.gpu] = fault.why
            self._aloud = fault.crashed and not fault.call
            self._say(fault.why)
            if fault.final:
                return
            self._over.wait(PAUSES[min(failures, len(PAUSES)) - 1])

    def _say(self, trouble: str) -> None:
        self._hear(Sample(time.time(), trouble=trouble))

    def _listen(self, ears: _Ears) -> _Fault:
        """Start a child and hear it to its end."""
        left_out, aloud = json.dumps(sorted(self._left_out)), "aloud" if self._aloud else ""
        argv = child_argv("watch_nvml.py", f"{self._interval:g}", left_out, aloud)
        if not argv:
            return _Fault("the package nvidia-ml-py is not installed beside gpudoctor", final=True)
        try:
            stream = self._target.stream(argv)
        except OSError as error:
            return _Fault(f"the child that asks NVML could not be started: {error.strerror or error}")
        fault = None
        try:
            fault = self._follow(stream, ears)
        finally:
            status, last = stream.end()
        if status is None:
            what = fault.why if fault else "the child that asks NVML does not end"
            return _Fault(f"{what} (pid {stream.pid} cannot be stopped and is left behind)", final=True)
        return fault or ears.fault(status, last)

    def _follow(self, stream: Stream, ears: _Ears) -> _Fault | None:
        """Each round as a sample; the fault in which it ended, None where it came to an end by itself."""
        heard = time.monotonic()
        while not self._over.is_set():
            try:
                line = stream.line(_QUIET)
            except EOFError:
                return None
            now = time.monotonic()
            for entry in answers(line) if line else ():
                before = ears.step
                if ears.hear(entry):
                    self._hear(ears.sample(self._left_out))
                if ears.step != before or "gpus" in entry:
                    heard = now
            if fault := ears.patience(now - heard):
                return fault
            if now - heard > _QUIET and ears.waits:
                self._say(ears.waits)
        return None


@dataclass(slots=True)
class _Ears:
    """What one child has told: of each GPU every answer, and how much its links have carried."""

    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0
    waits: str = ""
    step: tuple[str, int | None] = ("", None)
    """The call that has been announced and has not returned, and its GPU."""
    _failed: str = ""
    _carried: dict[tuple[int, str], tuple[float, int, float | None]] = field(default_factory=dict)

    def hear(self, entry: Mapping[str, Any]) -> bool:
        """Take in a line; whether it ends a round."""
        if "waits" in entry:
            self.step = (str(entry["waits"]), entry["gpu"])
            waking = self.step[0] == "HandleByIndex"
            self.waits = f"GPU {self.step[1]} is waking" if waking else f"{_named(*self.step)} has not returned"
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

    def patience(self, silent: float) -> _Fault | None:
        """Whether it has been silent for too long."""
        call, gpu = self.step
        starting = not self.samples and (gpu is None or gpu < 0 or call == "HandleByIndex")
        if silent < (STARTS if starting else HANGS):
            return None
        if not call:
            return _Fault(f"the child that asks NVML has said nothing for {silent:.0f} s")
        return _Fault(f"{_named(call, gpu)} did not return within {silent:.0f} s", gpu, call)

    def fault(self, status: int, last: str) -> _Fault:
        """Why a child that ended by itself did."""
        if self._failed:
            return _Fault(self._failed)
        call, gpu = self.step
        if status < 0:
            where = _named(call, gpu) if call else "NVML"
            return _Fault(f"{where} crashed (signal {-status})", gpu if call else None, call, crashed=True)
        return _Fault(printable(f"the child that asks NVML ended: exit {status} {last}".strip()))

    def sample(self, left_out: Mapping[int, str]) -> Sample:
        """All GPUs after this round."""
        gpus = []
        for index in sorted({*self.answers, *self.errors}):
            told = self.answers.get(index, {})
            rates = {name: self._rate(index, name, told.get(call)) for name, call in sampled.TRAFFIC}
            gpus.append(sampled.gpu(index, told, left_out.get(index) or self.errors.get(index, ""), rates))
        return Sample(self.seconds, tuple(gpus))

    def _rate(self, index: int, name: str, kib: object) -> float | None:
        """MB/s since the counter was last told; None before it has been told twice."""
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


def _named(call: str, gpu: int | None) -> str:
    name = call.partition("(")[0]
    if gpu is None or gpu < 0:
        return name
    return f"{name if name.startswith('nvml') else f'nvmlDeviceGet{name}'} of GPU {gpu}"
