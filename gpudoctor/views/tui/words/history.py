"""What the GPUs did in the last minute, as rows of ▁▂▃▄▅▆▇█; never more of it than is drawn."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from gpudoctor.model.sample import GPU

SECONDS = 60.0
MOST = 240
"""Numbers kept of one curve: what comes four times a second fills the minute."""
CURVES = ("utilization", "power_w", "temperature_c", "clock_mhz")
_BARS = "▁▂▃▄▅▆▇█"


class Curve:
    """The numbers of the last minute with their moments, in seconds of any clock that goes on."""

    __slots__ = ("_numbers", "_past", "_scale")

    def __init__(self) -> None:
        self._numbers: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._scale: tuple[int, float, float] = (0, 0.0, 0.0)
        """Width, top and bottom of what was drawn last."""
        self._past: dict[int, str] = {}
        """Its bars by their place in time, without the last one: what is past does not change."""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, moment: float, number: float) -> None:
        """One more; the oldest go."""
        while self._numbers and self._numbers[0][0] <= moment - SECONDS:
            self._numbers.popleft()
        self._numbers.append((moment, number))

    def bars(self, width: int, top: float, until: float, bottom: float = 0.0, since: float = -math.inf) -> str:
        """The minute up to `until` as bars between `bottom` and `top`: means, and blanks where nothing was told.

        A bar covers the same seconds as long as it is seen: the row moves on bar by bar. One that began only `since`
        then begins at the left.
        """
        if width < 1:
            return ""
        each = SECONDS / width
        last = int(until / each)
        first = last - width + 1
        if self._scale != (width, top, bottom):
            self._scale, self._past = (width, top, bottom), {}
        if any(place not in self._past for place in range(first, last)):
            self._past = dict(zip(range(first, last), self._drawn(first, last, each), strict=True))
        drawn = "".join(self._past[place] for place in range(first, last)) + "".join(self._drawn(last, last + 1, each))
        before = 0 if math.isinf(since) else min(width, max(0, int(since / each) - first))
        return drawn[before:] + " " * before

    def _drawn(self, first: int, end: int, each: float) -> list[str]:
        """The bars of these places, each so many seconds wide."""
        sums, counts = [0.0] * (end - first), [0] * (end - first)
        for moment, number in reversed(self._numbers):
            place = int(moment / each) - first
            if place < 0:
                break
            if place < end - first:
                sums[place] += number
                counts[place] += 1
        _, top, bottom = self._scale
        span = max(top - bottom, 1e-9)
        return [
            _BARS[min(7, max(0, int((total / count - bottom) / span * 8)))] if count else " "
            for total, count in zip(sums, counts, strict=True)
        ]


class Histories:
    """The curves of each GPU, by its index; those of GPUs that are no longer told of are dropped."""

    def __init__(self) -> None:
        self._curves: dict[int, dict[str, Curve]] = {}
        self.since = math.inf
        """The first moment of all."""

    def add(self, moment: float, gpus: Iterable[GPU]) -> None:
        """What each GPU told at that moment."""
        self.since = min(self.since, moment)
        before = self._curves
        self._curves = {}
        for gpu in gpus:
            curves = before.get(gpu.index) or {name: Curve() for name in CURVES}
            self._curves[gpu.index] = curves
            for name, curve in curves.items():
                number = getattr(gpu, name)
                if number is not None:
                    curve.add(moment, number)

    def curve(self, index: int, name: str) -> Curve:
        """That curve of that GPU; one without numbers where nothing was told."""
        return self._curves.get(index, {}).get(name) or Curve()

    def __len__(self) -> int:
        return sum(len(curve) for curves in self._curves.values() for curve in curves.values())
