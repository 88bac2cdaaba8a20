"""A heat map: a cell for each pair, the worse the stronger, with a figure or a mark in it where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoctor.views.plots import _svg as svg

MOST = 64
"""Rows and columns that are drawn."""
_READABLE = 18
"""Of so many columns, figures can be read in the cells."""
_WELL, _ILL = 0.9, 0.5
"""Shares of the expected one from which a way is well, and below which it is ill."""
_LONGEST_NAME = 22


@dataclass(frozen=True, slots=True)
class Cell:
    """`said` stands in the cell, `hint` beside its names; `shade` from 0 to 1."""

    said: str
    hint: str
    look: str = "none"
    shade: float = 1.0


def share(ratio: float, said: str, hint: str, wrong: bool = False) -> Cell:
    """The cell of what was measured over what is expected: the less, the stronger."""
    if wrong:
        return Cell("✗", f"{hint}, and what arrived is wrong", "error", 0.75)
    if ratio >= _WELL:
        return Cell(said, hint, "sound", 0.25)
    look = "error" if ratio < _ILL else "warning"
    return Cell(said, hint, look, 0.35 + 0.5 * (_WELL - max(ratio, 0)))


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of cells under the names of their columns."""

    title: str
    note: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Cell]]

    def draw(self) -> str:
        """Its figure."""
        side = 34 if len(self.columns) <= _READABLE else 11
        names = [svg.shortened(name, _LONGEST_NAME) for name in (*self.rows, *self.columns)]
        left = 8 + 6 * max(map(len, names[: len(self.rows)]))
        above = 8 + 6 * max(map(len, names[len(self.rows) :]))
        size = (left + side * len(self.columns) + 4, above + min(side, 20) * len(self.rows) + 4)
        return svg.figure(self.title, self._about(), size, self._parts(left, above, side), self.note, wide=True)

    def _about(self) -> str:
        bad = [
            f"{row} {column}: {cell.hint}"
            for row, line in zip(self.rows, self.cells, strict=True)
            for column, cell in zip(self.columns, line, strict=True)
            if cell.look in ("warning", "error")
        ]
        if not bad:
            return "nothing in it is bad"
        more = f"; and {len(bad) - 20} more" if len(bad) > 20 else ""
        return "; ".join(bad[:20]) + more

    def _parts(self, left: float, above: float, side: float) -> Iterator[str]:
        high = min(side, 20)
        for at, name in enumerate(self.columns):
            place = (left + side * (at + 0.5) + 3.5, above - 4)
            yield svg.text(place, svg.shortened(name, _LONGEST_NAME), turned=True)
        for down, (name, line) in enumerate(zip(self.rows, self.cells, strict=True)):
            top = above + high * down
            yield svg.text((left - 5, top + high / 2 + 3.5), svg.shortened(name, _LONGEST_NAME), "end")
            for across, cell in enumerate(line):
                x = left + side * across
                told = side > 20 or cell.look != "sound"  # thousands of hints that all is well make a heavy page
                hint = f"{name}, {self.columns[across]}: {cell.hint}" if told else ""
                yield svg.box((x + 0.5, top + 0.5), (side - 1, high - 1), cell.look, hint, cell.shade)
                if cell.said and (side > 20 or len(cell.said) == 1):
                    look = "strong" if cell.look in ("warning", "error") else ""
                    yield svg.text((x + side / 2, top + high / 2 + 3.5), cell.said, "middle", look)
