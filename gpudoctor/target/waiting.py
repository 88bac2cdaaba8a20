"""How long a child is waited for: while it works, up to a limit; without a sign of work, not as long.

Slow is not broken: an import from cold network storage takes a minute, a GPU that nothing keeps awake seconds. What a
child does is measured from outside, by what Linux counts for it and its descendants.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudoctor.model.frozen import frozen
from gpudoctor.target import Target

WAKING = 5.0
"""Seconds to give each GPU that may have to wake: mostly it takes 1-3 s, one after the other; 6.6 s were seen."""

STILL = 30.0
"""Seconds without a sign of work after which a child is given up: a wait for storage or for a GPU shows none."""

_LEAST_SECONDS, _LEAST_BYTES = 0.1, 4096
"""Processor time and bytes read that are a sign of work; a process that only polls in its sleep stays below."""
_TRACE = 1.0
"""Seconds for a child that is given up to print where it is."""
_MOST_PROCESSES = 64


@frozen
class Work:
    """What a process and its descendants have done: seconds of processor time, bytes read, pages read from disk."""

    seconds: float = 0.0
    read: int = 0
    pages: int = 0

    def since(self, before: Work) -> bool:
        """Whether it has worked since then. Numbers may fall, where a descendant is gone."""
        return (
            abs(self.seconds - before.seconds) >= _LEAST_SECONDS
            or abs(self.read - before.read) >= _LEAST_BYTES
            or self.pages != before.pages
        )


class Waiting:
    """Decides, as a child's `Watch`, whether it may go on; `why` says why not, and is empty until then.

    Every line that the child prints is a sign of work. Without its process id (`pid`), or where the system does not
    show what a process does, it has all of `most`.
    """

    def __init__(
        self,
        most: float,
        still: float = STILL,
        measure: Callable[[int], Work | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pid = 0
        self.why = ""
        self._measure, self._clock = measure or work_of, clock
        self._most, self._still = most, still
        self._began = self._last = self._looked = clock()
        self._before: Work | None = Work()
        self._end = float("inf")

    @property
    def seconds(self) -> float:
        """Since the step began."""
        return self._clock() - self._began

    def begin(self, most: float, still: float) -> None:
        """A new step, with seconds of its own."""
        self._most, self._still = most, still
        self._began = self._last = self._clock()

    def __call__(self, line: str | None) -> bool:
        now = self._clock()
        if self.why:
            return now < self._end
        if line:
            self._last = now
        elif now - self._looked >= 1.0:
            self._look(now)
        if now - self._began > self._most:
            self._give_up(f"given up after {now - self._began:.0f} s, still at work")
        elif self._before and now - self._last > self._still:
            self._give_up(
                f"given up after {now - self._began:.0f} s, the last {self._still:g} s without a sign of work"
            )
        return True

    def _look(self, now: float) -> None:
        self._looked = now
        if not self.pid or not self._before:
            return
        work = self._measure(self.pid)
        if work is None or work.since(self._before):
            self._last, self._before = now, work

    def _give_up(self, why: str) -> None:
        """Have it print where it is, by faulthandler, if it can."""
        self.why = why
        self._end = self._clock() + _TRACE
        if self.pid and _is_descendant(self.pid):
            try:
                os.kill(self.pid, signal.SIGUSR1)
            except OSError:
                self._end = 0.0


def gpus_on_bus(target: Target) -> int:
    """NVIDIA's display and 3D controllers; 0 where the bus is not to be seen. Reading these files wakes no GPU."""
    folder = "/sys/bus/pci/devices"
    try:
        return sum(_is_gpu(target, f"{folder}/{name}") for name in target.listing(folder))
    except OSError:
        return 0


def seconds_to_wake(target: Target, each: float = WAKING) -> float:
    """For the driver to start, all GPUs on the bus with it; few are given as much as five, WSL shows none."""
    return each * (1 + max(5, gpus_on_bus(target)))


def _is_gpu(target: Target, folder: str) -> bool:
    try:
        return target.read(f"{folder}/vendor").startswith("0x10de") and target.read(f"{folder}/class").startswith(
            "0x03"
        )
    except OSError:
        return False


def work_of(pid: int) -> Work | None:
    """What the process and its descendants have done; None where it is none of ours or the system does not say."""
    if not _is_descendant(pid):
        return None
    seconds, read, pages = 0.0, 0, 0
    for one in _family(pid):
        fields = _stat(one)
        if len(fields) < 15:
            continue
        # after the command's name: state, parent, ...; major faults 12th, of ended children 13th; then times in ticks
        pages += int(fields[9]) + int(fields[10])
        seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        read += _bytes_read(one)
    return Work(seconds, read, pages)


def _family(pid: int) -> Iterator[int]:
    left = [pid]
    for _ in range(_MOST_PROCESSES):
        if not left:
            return
        one = left.pop()
        yield one
        for place in Path(f"/proc/{one}/task").glob("*/children"):
            left += map(int, _text(place).split())


def _is_descendant(pid: int) -> bool:
    for _ in range(16):
        fields = _stat(pid)
        if len(fields) < 2 or pid <= 1:
            return False
        pid = int(fields[1])
        if pid == os.getpid():
            return True
    return False


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _bytes_read(pid: int) -> int:
    lines = dict(line.split(": ") for line in _text(Path(f"/proc/{pid}/io")).splitlines() if ": " in line)
    return int(lines.get("rchar", 0)) + int(lines.get("read_bytes", 0))


def _text(place: Path) -> str:
    try:
        return place.read_text("utf-8", "replace")
    except OSError:
        return ""
