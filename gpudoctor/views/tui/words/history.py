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

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: deque[tuple[float, float]] = deque(maxlen=MOST)

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
        sums, counts = [0.0] * width, [0] * width
        first = last - width + 1
        for moment, number in self._numbers:
            place = int(moment / each) - first
            if 0 <= place < width:
                sums[place] += number
                counts[place] += 1
        span = max(top - bottom, 1e-9)
        before = 0 if math.isinf(since) else min(width, max(0, width - 1 - last + int(since / each)))
        drawn = "".join(
            _BARS[min(7, max(0, int((total / count - bottom) / span * 8)))] if count else " "
            for total, count in zip(sums, counts, strict=True)
        )
        return drawn[before:] + " " * before


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
