"""A heat map, drawn line by line: quiet where all is well, a glyph for each trouble, colour only repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import ClassVar, Literal

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpudoctor.core.language import say
from gpudoctor.views._terminal import drawable, one_line
from gpudoctor.views.tui.widgets.frame import MOVES
from gpudoctor.views.tui.widgets.rows import next_place

Level = Literal["good", "info", "low", "bad", "unread", "none"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell: its glyph, how bad it is, and the reason in words."""

    glyph: str = "·"
    level: Level = "good"
    reason: str = ""

    @property
    def bad(self) -> bool:
        """True if the key `n` stops at the cell: its level is ``low`` or ``bad``."""
        return self.level in {"low", "bad"}


ITSELF = Mark("\\", "none", "itself")


def share(ratio: float, reason: str = "", good: float = 0.9) -> Mark:
    """Mark of a share of the expected value: a dot from `good` on, else its tenths as a digit; NaN is marked as unread.

    The level is ``good``, ``low``, or ``bad`` below half.
    """
    if isnan(ratio):
        return unread(reason)
    if ratio >= good:
        return Mark(reason=reason)
    tenths = max(0, int(ratio * 10 + 1e-9))
    return Mark(str(min(tenths, 9)), "low" if tenths >= 5 else "bad", reason)


def wrong(reason: str) -> Mark:
    """``x``, bad: mark of data that arrived or was computed and is not what it should be."""
    return Mark("x", "bad", reason)


def unread(reason: str) -> Mark:
    """``?``: mark of what was not measured, or did not answer."""
    return Mark("?", "unread", reason)


def no_link(reason: str = "no link") -> Mark:
    """``-``: mark of a pair that has nothing to measure."""
    return Mark("-", "none", reason)


def headings(names: Sequence[str]) -> list[str]:
    """The names without their common beginning, for narrow columns: ``node01`` to ``node08`` become 1 to 8.

    A number is not cut in its middle, and no name becomes empty.
    """
    if len(names) < 2:
        return list(names)
    common = 0
    while all(len(name) > common for name in names) and len({name[common] for name in names}) == 1:
        common += 1
    while common and all(name[common - 1 : common + 1].isdigit() for name in names) and names[0][common - 1] != "0":
        common -= 1
    common -= any(len(name) == common for name in names)
    return [name[common:] for name in names]


# ---- The map ----

_BLOCK = 8
"""Columns of a dense grid between two wider gaps."""


class Matrix(ScrollView, can_focus=True):
    """A scrolling heat map of `Mark`s; row names and headings stay in sight.

    Headings of more than one letter are written downwards where the grid is dense (`wide` not set).
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "matrix--good",
        "matrix--info",
        "matrix--low",
        "matrix--bad",
        "matrix--unread",
        "matrix--none",
        "matrix--head",
        "matrix--here",
        "matrix--cursor",
    }
    DEFAULT_CSS = """
    Matrix { overflow-x: hidden; scrollbar-size-vertical: 1; height: 1fr; }
    Matrix > .matrix--good { text-style: dim; }
    Matrix > .matrix--info { color: $primary; }
    Matrix > .matrix--low { color: $warning; text-style: bold; }
    Matrix > .matrix--bad { color: $on-state; background: $error; text-style: bold; }
    Matrix > .matrix--unread { color: $primary; text-style: bold; }
    Matrix > .matrix--none { text-style: dim; }
    Matrix > .matrix--head { text-style: dim; }
    Matrix > .matrix--here { color: $primary; text-style: bold; }
    Matrix > .matrix--cursor { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1, 0)", "up", show=False, group=MOVES),
        Binding("down,j", "go(1, 0)", "down", show=False, group=MOVES),
        Binding("left,h", "go(0, -1)", "left", show=False, group=MOVES),
        Binding("right,l", "go(0, 1)", "right", show=False, group=MOVES),
        Binding("pageup", "page(-1)", "page up", show=False, group=MOVES),
        Binding("pagedown", "page(1)", "page down", show=False, group=MOVES),
        Binding("home,g", "edge(0)", "first cell", show=False, group=MOVES),
        Binding("end,G", "edge(1)", "last cell", show=False, group=MOVES),
        Binding("n", "next(1)", "next bad"),
        Binding("N", "next(-1)", "Previous bad cell", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]
    at: reactive[tuple[int, int]] = reactive((0, 0), repaint=False)
    """Row and column of the cursor."""
    wide = False
    """Whether headings are written across, the columns as wide as the longest."""
    empty = ""
    """What is said where there are no cells."""

    class Moved(Message):
        """Posted when the cursor is on another cell, or the cell under it changed."""

        def __init__(self, matrix: Matrix) -> None:
            super().__init__()
            self.matrix = matrix

    class Chosen(Moved):
        """Posted on Enter, or on a click on the cell under the cursor."""

    def __init__(self, *, id: str | None = None, classes: str = "pane") -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.rows: tuple[str, ...] = ()
        self.columns: tuple[str, ...] = ()
        self._cells: list[list[Mark]] = []
        self._heading_lines: list[str] = []
        self._label_width = self._heading_height = 1
        self._column_width = 2
        self._chosen_names: tuple[str, str] | None = None
        """Names of the cell that the user chose; None while the cursor follows the first bad cell."""
        self._moving_by_code = False

    def put(self, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[Mark]]) -> None:
        """Show this grid; the cursor is on the cell that the user chose (by its names), else on the first bad one, else
        on the first unread one.

        Posts `Moved`.
        """
        self.rows, self.columns = tuple(map(one_line, rows)), tuple(map(one_line, columns))
        self._cells = [list(row) for row in cells]
        longest = max(map(len, self.columns), default=1)
        self._column_width = longest + 1 if self.wide else 2
        self._heading_height = 1 if self.wide else max(longest, 1)
        self._label_width = max(map(cell_len, self.rows), default=0) + 2
        padded = [name if self.wide else name.rjust(self._heading_height) for name in self.columns]
        self._heading_lines = [
            "".join(self._padded_to_column(col, name if self.wide else name[line]) for col, name in enumerate(padded))
            for line in range(self._heading_height)
        ]
        self.virtual_size = Size(self._label_width + self._column_start(len(columns)), self._heading_height + len(rows))
        self._moving_by_code = True
        self.at = self._initial_cursor()
        self._moving_by_code = False
        self.refresh()
        self.post_message(self.Moved(self))

    @property
    def lines(self) -> int:
        """Height of the whole grid in lines, headings included."""
        return self._heading_height + len(self.rows)

    @property
    def mark(self) -> Mark | None:
        """The mark of the cell under the cursor; None without cells."""
        return self.cell(*self.at) if self.rows and self.columns else None

    def cell(self, row: int, col: int) -> Mark:
        """The mark at that row and column; raises IndexError if there is none."""
        return self._cells[row][col]

    def go_to(self, row: str) -> None:
        """Put the cursor on the row of that name, on its first bad cell if any; nothing if there is no such row."""
        if row in self.rows:
            at = self.rows.index(row)
            bad = (col for col, mark in enumerate(self._cells[at]) if mark.bad)
            self.at = (at, next(bad, self.at[1]))

    def _initial_cursor(self) -> tuple[int, int]:
        """Row and column of the cell the user chose, by its names; else of the first bad or unread one; else 0, 0."""
        row, column = self._chosen_names or ("", "")
        if row in self.rows and column in self.columns:
            return self.rows.index(row), self.columns.index(column)
        return next(iter(self._bad_cells()), (0, 0))

    def _bad_cells(self) -> list[tuple[int, int]]:
        """Row and column of each bad cell; if none is bad, of each unread one."""
        everywhere = [(row, col) for row, cells in enumerate(self._cells) for col in range(len(cells))]
        bad = [at for at in everywhere if self.cell(*at).bad]
        return bad or [at for at in everywhere if self.cell(*at).level == "unread"]

    def _column_start(self, col: int) -> int:
        """Where a column begins, in terminal columns from the start of the first."""
        return col * self._column_width + (0 if self.wide else col // _BLOCK)

    def _column_at(self, x: int) -> int:
        """Index of the grid's column that many terminal columns from the first one's start; may be beyond the last."""
        if self.wide:
            return x // self._column_width
        block = _BLOCK * self._column_width + 1
        return x // block * _BLOCK + min(x % block // self._column_width, _BLOCK - 1)

    def _padded_to_column(self, col: int, text: str) -> str:
        """The text padded to the width of that column, gap included."""
        return text.ljust(self._column_start(col + 1) - self._column_start(col))

    def render_line(self, y: int) -> Strip:
        """Line `y` of the visible part: headings, a row with its name, the `empty` text without cells, or blank."""
        width = self.scrollable_content_region.width or self.size.width
        plain = self.rich_style
        if not self.rows or not self.columns:
            return _padded_strip([Segment(one_line(say(self.empty)) if y == 0 else "", plain)], width, plain)
        left, shift = min(self._label_width, width), self.scroll_offset.x
        if y < self._heading_height:
            label, cells, start = Segment(" " * left, plain), self._heading_segments(y), 0
        else:
            row = y - self._heading_height + self.scroll_offset.y
            if row >= len(self.rows):
                return Strip.blank(width, plain)
            here = row == self.at[0]
            name = f"{'▸' if here else ' '}{self.rows[row]}"
            label = Segment(set_cell_size(name, left), self._style("here") if here and self.has_focus else plain)
            first = max(self._column_at(shift), 0)
            cells, start = self._row_segments(row, first, self._column_at(shift + width) + 1), self._column_start(first)
        shown = Strip(cells).crop(shift - start, shift - start + max(width - left, 0))
        return _padded_strip([label, *shown], width, plain)

    def _heading_segments(self, line: int) -> list[Segment]:
        """A line of the headings, the cursor's column highlighted."""
        text, col = self._heading_lines[line], self.at[1]
        start, end = self._column_start(col), self._column_start(col) + self._column_width
        head = self._style("head")
        return [Segment(text[:start], head), Segment(text[start:end], self._style("here")), Segment(text[end:], head)]

    def _row_segments(self, row: int, first: int, end: int) -> list[Segment]:
        """The cells of a row from column `first` to before `end`; neighbours of the same style are one segment."""
        out: list[tuple[str, str]] = []
        for col, mark in enumerate(self._cells[row][first:end], first):
            glyph = drawable(mark.glyph)
            text = self._padded_to_column(col, glyph)
            cursor = (row, col) == self.at
            if cursor or mark.level == "bad":
                out += [(glyph, "cursor" if cursor else "bad"), (text[len(glyph) :], "good")]
            elif out and out[-1][1] == mark.level:
                out[-1] = (out[-1][0] + text, mark.level)
            else:
                out.append((text, mark.level))
        looks = {level: self._style(level) for _, level in out}
        if not self.has_focus and "cursor" in looks:
            looks["cursor"] = self._style(self.cell(*self.at).level) + Style(underline=True)
        return [Segment(text, looks[level]) for text, level in out]

    def _style(self, name: str) -> Style:
        """The style of the component class ``matrix--NAME``."""
        return self.get_component_rich_style(f"matrix--{name}")

    def watch_at(self) -> None:
        """Remember the cell as the user's choice unless code moved the cursor; scroll, redraw and post `Moved`."""
        row, col = self.at
        if not self._moving_by_code and self.rows and self.columns:
            self._chosen_names = (self.rows[row], self.columns[col])
        region = Region(self._column_start(col), row, self._label_width + self._column_width, self._heading_height + 1)
        self.scroll_to_region(region, animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self))

    def action_go(self, rows: int, columns: int) -> None:
        """Move the cursor by so many rows and columns, below 0 up and left; it stops at the grid's edges."""
        row, col = self.at
        last_row, last_col = max(len(self.rows) - 1, 0), max(len(self.columns) - 1, 0)
        self.at = min(max(row + rows, 0), last_row), min(max(col + columns, 0), last_col)

    def action_page(self, by: int) -> None:
        """Move the cursor by `by` pages: 1 down, -1 up."""
        self.action_go(by * max(self.size.height - self._heading_height - 1, 1), 0)

    def action_edge(self, last: int) -> None:
        """Move the cursor to the last cell, or to the first if `last` is 0."""
        far = len(self.rows) + len(self.columns)
        self.action_go(*((far, far) if last else (-far, -far)))

    def action_next(self, by: int) -> None:
        """Move to the next bad cell (unread if none is bad), wrapping round; `by` -1: the previous.

        Nothing without such cells.
        """
        if bad := self._bad_cells():
            self.at = next_place(bad, self.at, by)

    def action_choose(self) -> None:
        """Post `Chosen` for the cell under the cursor; nothing without cells."""
        if self.rows and self.columns:
            self.post_message(self.Chosen(self))

    @on(events.Focus)
    @on(events.Blur)
    def _on_focus_changed(self) -> None:
        """Redraw: the cursor shows the focus."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Move to the clicked cell, or to the row or column of a clicked name or heading.

        A click on the cell under the cursor chooses it as Enter does.
        """
        at = event.get_content_offset(self)
        if at is None:
            return
        row, col = self.at
        if at.y >= self._heading_height:
            row = at.y - self._heading_height + self.scroll_offset.y
        if at.x >= self._label_width:
            col = self._column_at(at.x - self._label_width + self.scroll_offset.x)
        if row >= len(self.rows) or col >= len(self.columns):
            return
        if (row, col) == self.at:
            self.action_choose()
        self.at = row, col


def _padded_strip(segments: Sequence[Segment], width: int, style: Style) -> Strip:
    """The segments as one line of that width. Every Segment has a Style: NO_COLOR's filter needs one."""
    return Strip(segments).adjust_cell_length(width, style)
