"""Parts of pictures as inline SVG: a figure with its words, a panel of bars, a heat map; everything foreign escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from gpudoctor.views._terminal import digits, one_line

_LONGEST_TEXT = 300


def escaped(text: str, most: int = _LONGEST_TEXT) -> str:
    """Foreign text escaped for an element or attribute of HTML: on one line, cut at `most` characters."""
    return escape(one_line(text)[:most], quote=True)


def figure(
    title: str, description: str, size: tuple[float, float], parts: Iterable[str], note: str = "", wide: bool = False
) -> str:
    """An HTML ``figure`` with its caption and an SVG of `size` (width, height in pixels) made of `parts`.

    `description` is for screen readers, `note` stands beside the title. With `wide` it spans the grid and keeps its
    width.
    """
    width, height = map(_coordinate, size)
    note_markup = f" <small>{escaped(note)}</small>" if note else ""
    width_attribute = f' width="{width}"' if wide else ""
    css_class = ' class="wide"' if wide else ""
    start = f"<figure{css_class}><figcaption>{escaped(title)}{note_markup}</figcaption>"
    svg_tag = f'<svg role="img" viewBox="0 0 {width} {height}"{width_attribute}>'
    alternative_text = f"<title>{escaped(title)}</title><desc>{escaped(description, 2000)}</desc>"
    return f"{start}{svg_tag}{alternative_text}{''.join(parts)}</svg></figure>"


def box(place: tuple[float, float], size: tuple[float, float], look: str, hint: str = "", shade: float = 1.0) -> str:
    """An SVG rectangle at its upper left corner, in pixels; `look`: CSS class, `hint`: tooltip, `shade`: opacity."""
    x, y, width, height = map(_coordinate, (*place, *size))
    opacity = "" if shade >= 1 else f' fill-opacity="{_coordinate(max(shade, 0))}"'
    title = f"<title>{escaped(hint)}</title>" if hint else ""
    return f'<rect class="{look}" x="{x}" y="{y}" width="{width}" height="{height}"{opacity}>{title}</rect>'


def line(start: tuple[float, float], end: tuple[float, float], look: str) -> str:
    """An SVG line between two points, in pixels; `look` is its class."""
    x1, y1, x2, y2 = map(_coordinate, (*start, *end))
    return f'<line class="{look}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def text(place: tuple[float, float], content: str, anchor: str = "start", look: str = "", turned: bool = False) -> str:
    """An SVG text cut at 40 characters, at its baseline, in pixels; `look`: CSS class, `turned`: read upwards."""
    x, y = map(_coordinate, place)
    style = f' class="{look}"' if look else ""
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}{turn}>{escaped(content, 40)}</text>'


def shortened(text: str, most: int) -> str:
    """The text; if it is longer than `most` characters, with an ellipsis for its middle."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def _coordinate(value: float) -> str:
    """The number as text with at most two decimals, without trailing zeros: ``12.5``."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# ---- A bar for each GPU, the band it should end in, the most there is ----

Look = Literal["plain", "sound", "warning", "error", "none"]
_WIDTH, _HEIGHT = 220, 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 6, 14, 16
_HEADROOM = 1.08
"""Height of the plot over the highest value, as a factor."""
_WIDEST_BAR = 22


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU's bar; `value` is None if not measured, `words` are its tooltip: ``GPU 5: 396 TFLOP/s, 55 % of 722``."""

    label: str
    value: float | None
    words: str
    look: Look = "plain"


@dataclass(frozen=True, slots=True)
class Panel:
    """A bar chart of one quantity in one unit, a bar per GPU."""

    title: str
    unit: str
    bars: Sequence[Bar]
    band: tuple[float, float] | None = None
    """(value from which it is slow, expected value); the first is the greater one where less is better."""
    most: float | None = None
    """The limit, of the maker or as configured."""
    note: str = ""

    def draw(self) -> str:
        """The bar chart as an HTML ``figure`` with inline SVG."""
        values = [bar.value for bar in self.bars if bar.value is not None]
        top = max([*values, *(self.band or ()), self.most or 0, 1e-9]) * _HEADROOM
        bad = [bar.words for bar in self.bars if bar.look in ("warning", "error")]
        description = "; ".join(bad or [bar.words for bar in self.bars])
        note = ", ".join(part for part in (self.unit, self.note) if part)
        return figure(self.title, description, (_WIDTH, _HEIGHT), self._parts(top), note)

    def _parts(self, top: float) -> Iterator[str]:
        """SVG elements of the chart: band, bars, axis, limits, scale; `top` is the value at its upper edge."""
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        if self.band:
            upper, lower = sorted(_y_of(value, top) for value in self.band)
            low, high = map(digits, sorted(self.band))
            hint = f"as it should be: {low} to {high} {self.unit}"
            yield box((_LEFT, upper), (right - _LEFT, max(lower - upper, 1.5)), "band", hint)
        yield from self._bars(top)
        if self.band:
            slow_below = _y_of(self.band[0], top)
            yield line((_LEFT, slow_below), (right, slow_below), "least")
        yield line((_LEFT, bottom), (right, bottom), "axis")
        if self.most:
            yield line((_LEFT, _y_of(self.most, top)), (right, _y_of(self.most, top)), "most")
        yield from _scale_labels(self.band[1] if self.band else None, self.most, top)

    def _bars(self, top: float) -> Iterator[str]:
        """SVG elements of the bars, ``?`` for a missing one, the value above a bad one.

        Each bar has its label below it; from 24 bars on only every second or further one.
        """
        bottom, slot = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - _RIGHT) / len(self.bars)
        width = min(slot * 0.72, _WIDEST_BAR)
        label_step = max(1, round(len(self.bars) / 16))
        for index, bar in enumerate(self.bars):
            center = _LEFT + slot * (index + 0.5)
            if bar.value is None:
                yield box((center - width / 2, _TOP), (width, bottom - _TOP), "none", bar.words)
                yield text((center, (bottom + _TOP) / 2), "?", "middle")
            else:
                y = _y_of(bar.value, top)
                yield box((center - width / 2, y), (width, max(bottom - y, 1)), bar.look, bar.words)
                if bar.look in ("warning", "error"):
                    yield text((center, y - 3), digits(bar.value), "middle", "strong")
            if index % label_step == 0:
                yield text((center, _HEIGHT - 4), bar.label, "middle")


def _scale_labels(expected: float | None, most: float | None, top: float) -> Iterator[str]:
    """SVG of numbers at the left: 0, the expected value and the limit; if these two would overlap, without the limit.

    Without either, the highest value.
    """
    shown = [value for value in (expected, most) if value]
    if len(shown) == 2 and abs(_y_of(shown[0], top) - _y_of(shown[1], top)) < 10:
        shown = shown[:1]
    for value in (0.0, *(shown or [top / _HEADROOM])):
        yield text((_LEFT - 4, _y_of(value, top) + 3.5), digits(value), "end")


def _y_of(value: float, top: float) -> float:
    """The y coordinate of a value in the chart's SVG, in pixels; `top` is the value at the upper edge of the plot.

    A value outside of the plot (below 0, above `top`) gets the coordinate of its edge.
    """
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - min(max(value / top, 0), 1))


# ---- A heat map: the worse a cell, the stronger ----

MOST_ROWS = 64
"""Rows and columns that are drawn."""
_MOST_LARGE_COLUMNS = 18
"""Columns up to which cells are large enough for figures."""
_GOOD, _BAD = 0.9, 0.5
"""Shares of the expected value from which a pair is good, and below which it is bad."""
_LONGEST_NAME = 22


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a heat map: `text` within, `hint` as tooltip, `shade` (opacity) from 0 to 1."""

    text: str
    hint: str
    look: str = "none"
    shade: float = 1.0


def share_cell(ratio: float, text: str, hint: str, wrong: bool = False) -> Cell:
    """Cell of a measured value by its share `ratio` of the expected: sound from `_GOOD` on, error below `_BAD`, else a
    warning; the lower, the more opaque. `wrong`: an error with ✗ for `text`.
    """
    if wrong:
        return Cell("✗", f"{hint}, and what arrived is wrong", "error", 0.75)
    if ratio >= _GOOD:
        return Cell(text, hint, "sound", 0.25)
    look = "error" if ratio < _BAD else "warning"
    return Cell(text, hint, look, 0.35 + 0.5 * (_GOOD - max(ratio, 0)))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A heat map: rows of cells under the names of their columns."""

    title: str
    note: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Cell]]

    def draw(self) -> str:
        """The heat map as an HTML ``figure`` with inline SVG; raises ValueError without rows or columns."""
        cell_width = 34 if len(self.columns) <= _MOST_LARGE_COLUMNS else 11
        names = [shortened(name, _LONGEST_NAME) for name in (*self.rows, *self.columns)]
        left = 8 + 6 * max(map(len, names[: len(self.rows)]))
        top = 8 + 6 * max(map(len, names[len(self.rows) :]))
        size = (left + cell_width * len(self.columns) + 4, top + min(cell_width, 20) * len(self.rows) + 4)
        return figure(self.title, self._about(), size, self._parts(left, top, cell_width), self.note, wide=True)

    def _about(self) -> str:
        """The first 20 bad cells in words, for screen readers, and how many more there are; or that nothing is bad."""
        bad = [
            f"{row} {column}: {cell.hint}"
            for row, row_cells in zip(self.rows, self.cells, strict=True)
            for column, cell in zip(self.columns, row_cells, strict=True)
            if cell.look in ("warning", "error")
        ]
        if not bad:
            return "nothing in it is bad"
        more = f"; and {len(bad) - 20} more" if len(bad) > 20 else ""
        return "; ".join(bad[:20]) + more

    def _parts(self, left: float, above: float, cell_width: float) -> Iterator[str]:
        """SVG elements of the names and cells; `left` and `above` are the pixels that row and column names take."""
        cell_height = min(cell_width, 20)
        for at, name in enumerate(self.columns):
            place = (left + cell_width * (at + 0.5) + 3.5, above - 4)
            yield text(place, shortened(name, _LONGEST_NAME), turned=True)
        for row_index, (name, row) in enumerate(zip(self.rows, self.cells, strict=True)):
            top = above + cell_height * row_index
            yield text((left - 5, top + cell_height / 2 + 3.5), shortened(name, _LONGEST_NAME), "end")
            for column_index, cell in enumerate(row):
                x = left + cell_width * column_index
                # thousands of hints that all is well make a heavy page
                has_hint = cell_width > 20 or cell.look != "sound"
                hint = f"{name}, {self.columns[column_index]}: {cell.hint}" if has_hint else ""
                yield box((x + 0.5, top + 0.5), (cell_width - 1, cell_height - 1), cell.look, hint, cell.shade)
                if cell.text and (cell_width > 20 or len(cell.text) == 1):
                    look = "strong" if cell.look in ("warning", "error") else ""
                    yield text((x + cell_width / 2, top + cell_height / 2 + 3.5), cell.text, "middle", look)
