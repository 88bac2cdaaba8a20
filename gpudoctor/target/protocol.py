"""How a child process answers: its lines, its noise, and how long it is waited for.

A child prints each answer as one line: `MARK` and a JSON object. Whatever else lands on its standard output (a
``.pth`` file that prints, a library that greets) is no answer and does no harm.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpudoctor.core import system
from gpudoctor.core.fact import Known, Row
from gpudoctor.core.frozen import frozen
from gpudoctor.core.secrets import without_secrets
from gpudoctor.target import Target, proc

MARK = "@gpudoctor "
TEXT_LINES = 200
_LONGEST_LINE = 1000


def answers(out: str) -> Iterator[dict[str, Any]]:
    """The JSON objects behind `MARK` in a child's output, in order; lines that are no such object are skipped."""
    for line in out.split("\n"):
        if not line.startswith(MARK):
            continue
        try:
            entry = json.loads(line[len(MARK) :])
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def printable(text: object, limit: int = 300) -> str:
    """The text with secrets removed, cut to `limit` characters, its unprintable characters then escaped."""
    cut = without_secrets(str(text)[: limit + 4096])[:limit]
    return (
        cut
        if cut.isprintable()
        else "".join(character if character.isprintable() else ascii(character)[1:-1] for character in cut)
    )


def text_rows(text: str, source: str) -> tuple[Row, ...]:
    """Non-blank lines of machine-printed text as rows of the group ``text``, by the column ``line``.

    Secrets are removed, unprintable characters escaped, lines cut to 1000 characters; of over 200 the first and last
    100.
    """
    lines = [printable(line.replace("\t", "    "), _LONGEST_LINE) for line in text.splitlines() if line.strip()]
    if len(lines) > TEXT_LINES:
        lines = lines[: TEXT_LINES // 2] + lines[-TEXT_LINES // 2 :]
    return tuple({"line": Known(line, source)} for line in lines)


def patience(variable: str, default: float) -> float:
    """Seconds to wait: the environment variable's number where it is above 0 and below 3600, else `default`."""
    try:
        seconds = float(os.environ.get(variable, ""))
    except ValueError:
        return default
    return seconds if 0 < seconds < 3600 else default


# ---- How long a child is waited for: while it works, up to a limit; without a sign of work, not as long ----
# Slow is not broken: an import from cold network storage takes a minute, a GPU that nothing keeps awake seconds. What a
# child does is measured from outside, by what Linux counts for it and its descendants.

WAKE_SECONDS = 5.0
"""Seconds to give each GPU that may have to wake: mostly it takes 1-3 s, one after the other; 6.6 s were seen."""

IDLE_SECONDS = 30.0
"""Seconds without a sign of work after which a child is given up: a wait for storage or for a GPU shows none."""

_WORK_SECONDS, _WORK_BYTES = 0.1, 4096
"""Processor time and bytes read that are a sign of work; a process that only polls in its sleep stays below."""
_TRACE_SECONDS = 1.0
"""Seconds for a child that is given up to print where it is."""
_MOST_PROCESSES = 64


@frozen
class Work:
    """What a process and its descendants have done: CPU seconds, bytes read, major page faults.

    `runnable`: one of them runs, or waits for a processor that others keep busy (state R of proc(5)).
    """

    seconds: float = 0.0
    read: int = 0
    pages: int = 0
    runnable: bool = False

    def progressed_since(self, earlier: Work) -> bool:
        """Whether one of them is `runnable` now, 0.1 s of CPU time or 4 KiB read were added or lost since, or major
        page faults changed.

        Numbers fall where a descendant is gone.
        """
        return (
            self.runnable
            or abs(self.seconds - earlier.seconds) >= _WORK_SECONDS
            or abs(self.read - earlier.read) >= _WORK_BYTES
            or self.pages != earlier.pages
        )


class Waiting:
    """Decides, as a child's `Watch`, whether it may go on; `why` says why not, and is empty until then.

    `most` and `still` are seconds: in all, and without a sign of work. Every line that the child prints is a sign of
    work. Without its process id (`pid`), or where the system does not show what a process does, it has all of `most`.
    """

    def __init__(
        self,
        most: float,
        still: float = IDLE_SECONDS,
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
        """Seconds since the current step began."""
        return self._clock() - self._began

    def begin(self, most: float, still: float) -> None:
        """Begin a new step: it may take `most` seconds in all, and `still` seconds without a sign of work."""
        self._most, self._still = most, still
        self._began = self._last = self._clock()

    def __call__(self, line: str | None) -> bool:
        """Note a line of output, or None for none; False once it was given up and had 1 s for a traceback."""
        now = self._clock()
        if self.why:
            return now < self._end
        if line:
            self._last = now
        elif now - self._looked >= 1.0:
            self._measure_work(now)
        if now - self._began > self._most:
            self._give_up(f"given up after {now - self._began:.0f} s, still at work")
        elif self._before and now - self._last > self._still:
            self._give_up(
                f"given up after {now - self._began:.0f} s, the last {self._still:g} s without a sign of work"
            )
        return True

    def _measure_work(self, now: float) -> None:
        """Measure the process's work; progress resets the time without a sign of work.

        Where it cannot be measured, it is not measured again and only the limit `most` holds.
        """
        self._looked = now
        if not self.pid or not self._before:
            return
        work = self._measure(self.pid)
        if work is None or work.progressed_since(self._before):
            self._last, self._before = now, work

    def _give_up(self, why: str) -> None:
        """Keep the reason in `why`, and send SIGUSR1, for the child's faulthandler to print within 1 s where it is.

        Sends nothing on Windows, or where the process is no descendant of ours.
        """
        self.why = why
        self._end = self._clock() + _TRACE_SECONDS
        if sys.platform == "win32":
            return  # its faulthandler has a limit of its own
        if self.pid and _is_descendant(self.pid):
            try:
                os.kill(self.pid, signal.SIGUSR1)
            except OSError:
                self._end = 0.0


def gpus_on_bus(target: Target) -> int:
    """Number of NVIDIA display and 3D controllers on the PCI bus; 0 where it cannot be read. Wakes no GPU."""
    folder = "/sys/bus/pci/devices"
    try:
        return sum(_is_gpu(target, f"{folder}/{name}") for name in target.listing(folder))
    except OSError:
        return 0


def seconds_to_wake(target: Target, each: float = WAKE_SECONDS) -> float:
    """Seconds for the driver and all GPUs to wake: `each` per GPU plus one more; at least five GPUs are assumed."""
    return each * (1 + max(5, gpus_on_bus(target)))


def _is_gpu(target: Target, folder: str) -> bool:
    """Whether the PCI device in that sysfs folder is an NVIDIA display or 3D controller; False if unreadable."""
    try:
        return target.read(f"{folder}/vendor").startswith("0x10de") and target.read(f"{folder}/class").startswith(
            "0x03"
        )
    except OSError:
        return False


def work_of(pid: int) -> Work | None:
    """Work done by the process and its descendants; None where it is not our descendant or /proc does not say."""
    if not _is_descendant(pid):
        return None
    seconds, bytes_read, pages, runnable = 0.0, 0, 0, False
    for process in _descendants(pid):
        fields = proc.stat_fields(f"/proc/{process}/stat")
        if len(fields) < 16:
            continue
        # major faults, those of ended children, and then times in ticks: fields 12 and 13, 14 to 17 of proc(5)
        pages += int(fields[10]) + int(fields[11])
        seconds += sum(map(int, fields[12:16])) / system.CLOCK_TICKS
        bytes_read += _bytes_read(process)
        runnable = runnable or fields[1] == b"R"
    return Work(seconds, bytes_read, pages, runnable)


def _descendants(pid: int) -> Iterator[int]:
    """The process id and those of its descendants, at most 64."""
    pending = [pid]
    for _ in range(_MOST_PROCESSES):
        if not pending:
            return
        process = pending.pop()
        yield process
        for task in proc.names(f"/proc/{process}/task"):
            pending += map(int, proc.text(f"/proc/{process}/task/{task}/children").split())


def _is_descendant(pid: int) -> bool:
    """Whether the process is a descendant of this one."""
    return proc.is_within(proc.parent(pid), {os.getpid()})


def _bytes_read(pid: int) -> int:
    """Bytes read by the process from files, pipes and disk (/proc/PID/io); 0 where it may not be read."""
    return sum(map(int, re.findall(r"^(?:rchar|read_bytes): (\d+)$", proc.text(f"/proc/{pid}/io"), re.M)))
