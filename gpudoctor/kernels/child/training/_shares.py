"""Where the time of a training loop goes, from intervals on a clock. Pure: seconds or microseconds alike."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Tuple

Interval = Tuple[float, float]


_AHEAD = 0.9
"""A program that needs less of the time than that to issue its work is ahead of the device."""


class Shares(NamedTuple):
    """Of the whole time, each from 0 to 1: together they are 1."""

    data: float
    """Nothing runs on the device while the next batch is made."""
    transfer: float
    """The device copies and computes nothing."""
    launch: float
    """Nothing runs on the device while the program issues the step."""
    compute: float

    @property
    def largest(self) -> str:
        """What limits the loop."""
        return max(self._fields, key=lambda name: float(getattr(self, name)))


def seen(kernels: List[Interval], copies: List[Interval], data: List[Interval], whole: Interval) -> Shares:
    """From what a profiler saw: each moment counts once, for computing first, then copying, then data."""
    total = whole[1] - whole[0]
    compute = _length(_union(kernels, whole))
    busy = _length(_union([*kernels, *copies], whole))
    known = _length(_union([*kernels, *copies, *data], whole))
    return Shares((known - busy) / total, (busy - compute) / total, 1 - known / total, compute / total)


def timed(data: float, copy: float, issue: float, whole: float) -> Shares:
    """By the clock alone: seconds to make the batches, to copy them, to issue the steps, of the whole.

    A program that issues its steps well before they are over is waited for by nobody: the device limits it.
    """
    ahead = data + issue < _AHEAD * whole
    data, copy, launch = (min(1.0, part / whole) for part in (data, copy, 0.0 if ahead else issue))
    scale = max(1.0, data + copy + launch)
    data, copy, launch = data / scale, copy / scale, launch / scale
    return Shares(data, copy, launch, 1.0 - data - copy - launch)


def _union(intervals: Iterable[Interval], whole: Interval) -> List[Interval]:
    """Those intervals without overlaps, inside the whole."""
    found: List[Interval] = []
    for begin, end in sorted((max(one[0], whole[0]), min(one[1], whole[1])) for one in intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif end > begin:
            found.append((begin, end))
    return found


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
