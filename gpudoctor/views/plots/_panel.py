"""A small picture of one quantity: a bar for each GPU, the band it should end in, the most there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudoctor.views._measured import figure as digits
from gpudoctor.views.plots import _svg as svg

Look = Literal["plain", "sound", "warning", "error", "none"]
WIDTH, HEIGHT = 220, 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 6, 14, 16
_SPARE = 1.08
"""The highest thing stands this far below the top."""
_WIDEST = 22


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU. `value` is None where there is none; `words` say it all: ``GPU 5: 396 TFLOP/s, 55 % of 722``."""

    label: str
    value: float | None
    words: str
    look: Look = "plain"


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity in one unit."""

    title: str
    unit: str
    bars: Sequence[Bar]
    band: tuple[float, float] | None = None
    """Where slow begins, and what is expected; the first is the greater one where less is better."""
    most: float | None = None
    """The limit: of the maker, or the one that was set."""
    note: str = ""

    def draw(self) -> str:
        """Its figure."""
        known = [bar.value for bar in self.bars if bar.value is not None]
        top = max([*known, *(self.band or ()), self.most or 0, 1e-9]) * _SPARE
        bad = [bar.words for bar in self.bars if bar.look in ("warning", "error")]
        about = "; ".join(bad or [bar.words for bar in self.bars])
        note = ", ".join(part for part in (self.unit, self.note) if part)
        return svg.figure(self.title, about, (WIDTH, HEIGHT), self._parts(top), note)

    def _parts(self, top: float) -> Iterator[str]:
        right, floor = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        if self.band:
            upper, lower = sorted(_height(value, top) for value in self.band)
            yield svg.box((_LEFT, upper), (right - _LEFT, max(lower - upper, 1.5)), "band", _band(self.band, self.unit))
        yield from self._bars(top)
        if self.band:
            least = _height(self.band[0], top)
            yield svg.line((_LEFT, least), (right, least), "least")
        yield svg.line((_LEFT, floor), (right, floor), "axis")
        if self.most:
            yield svg.line((_LEFT, _height(self.most, top)), (right, _height(self.most, top)), "most")
        yield from _scale(self.band[1] if self.band else None, self.most, top)

    def _bars(self, top: float) -> Iterator[str]:
        floor, each = HEIGHT - _BOTTOM, (WIDTH - _LEFT - _RIGHT) / len(self.bars)
        width = min(each * 0.72, _WIDEST)
        every = max(1, round(len(self.bars) / 16))
        for at, bar in enumerate(self.bars):
            middle = _LEFT + each * (at + 0.5)
            if bar.value is None:
                yield svg.box((middle - width / 2, _TOP), (width, floor - _TOP), "none", bar.words)
                yield svg.text((middle, (floor + _TOP) / 2), "?", "middle")
            else:
                upper = _height(bar.value, top)
                yield svg.box((middle - width / 2, upper), (width, max(floor - upper, 1)), bar.look, bar.words)
                if bar.look in ("warning", "error"):
                    yield svg.text((middle, upper - 3), digits(bar.value), "middle", "strong")
            if at % every == 0:
                yield svg.text((middle, HEIGHT - 4), bar.label, "middle")


def _scale(expected: float | None, most: float | None, top: float) -> Iterator[str]:
    """Numbers at the left: what is expected, and the limit where the two do not run into each other."""
    shown = [value for value in (expected, most) if value]
    if len(shown) == 2 and abs(_height(shown[0], top) - _height(shown[1], top)) < 10:
        shown = shown[:1]
    if not shown:
        shown = [top / _SPARE]
    for value in (0.0, *shown):
        yield svg.text((_LEFT - 4, _height(value, top) + 3.5), digits(value), "end")


def _band(band: tuple[float, float], unit: str) -> str:
    low, high = sorted(band)
    return f"as it should be: {digits(low)} to {digits(high)} {unit}"


def _height(value: float, top: float) -> float:
    """Where a value stands, in pixels from the upper edge."""
    return _TOP + (HEIGHT - _BOTTOM - _TOP) * (1 - min(max(value / top, 0), 1))
