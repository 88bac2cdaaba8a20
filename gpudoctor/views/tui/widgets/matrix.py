"""A heat map, drawn line by line: quiet where all is well, a glyph for each trouble, colour only repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpudoctor.views._terminal import drawable, one_line
from gpudoctor.views.tui.hints import MOVES
from gpudoctor.views.tui.words.cells import Mark

_BLOCK = 8
"""Columns of a dense grid between two wider gaps."""


class Matrix(ScrollView, can_focus=True):
    """Rows by columns of `Mark`; names and headings stay where the cells scroll.

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
        """The cursor is on another cell, or the cell under it changed."""

        def __init__(self, matrix: Matrix) -> None:
            super().__init__()
            self.matrix = matrix

        @property
        def control(self) -> Matrix:
            """Whose cursor it is."""
            return self.matrix

    class Chosen(Moved):
        """Enter, or a click on the cell under the cursor."""

    def __init__(self, *, id: str | None = None, classes: str = "pane") -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.rows: tuple[str, ...] = ()
        self.columns: tuple[str, ...] = ()
        self._cells: list[list[Mark]] = []
        self._heads: list[str] = []
        self._label = self._top = 1
        self._pitch = 2
        self._chosen: tuple[str, str] | None = None
        """Names of the cell that the user chose; None while the cursor follows the first bad cell."""
        self._placing = False

    def put(self, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[Mark]]) -> None:
        """Show this grid; the cursor stays on the names it was put on."""
        self.rows, self.columns = tuple(map(one_line, rows)), tuple(map(one_line, columns))
        self._cells = [list(row) for row in cells]
        longest = max(map(len, self.columns), default=1)
        self._pitch = longest + 1 if self.wide else 2
        self._top = 1 if self.wide else max(longest, 1)
        self._label = max(map(cell_len, self.rows), default=0) + 2
        padded = [name if self.wide else name.rjust(self._top) for name in self.columns]
        self._heads = [
            "".join(self._slot(col, name if self.wide else name[line]) for col, name in enumerate(padded))
            for line in range(self._top)
        ]
        self.virtual_size = Size(self._label + self._x(len(columns)), self._top + len(rows))
        self._placing = True
        self.at = self._place()
        self._placing = False
        self.refresh()
        self.post_message(self.Moved(self))

    def change(self, row: int, col: int, mark: Mark) -> None:
        """One new number: only its cell is drawn again."""
        self._cells[row][col] = mark
        at = Region(self._label + self._x(col), self._top + row, self._pitch, 1)
        self.refresh(at.translate((-self.scroll_offset.x, -self.scroll_offset.y)))
        if (row, col) == self.at:
            self.post_message(self.Moved(self))

    @property
    def lines(self) -> int:
        """Lines of all of it, headings and all."""
        return self._top + len(self.rows)

    @property
    def mark(self) -> Mark | None:
        """The cell under the cursor."""
        return self.cell(*self.at) if self.rows and self.columns else None

    def cell(self, row: int, col: int) -> Mark:
        """That cell."""
        return self._cells[row][col]

    def go_to(self, row: str, column: str = "") -> None:
        """Put the cursor there, by names; on the row's first bad cell where no column is named."""
        if row in self.rows:
            at = self.rows.index(row)
            bad = (col for col, mark in enumerate(self._cells[at]) if mark.bad)
            self.at = (at, self.columns.index(column) if column in self.columns else next(bad, self.at[1]))

    def _place(self) -> tuple[int, int]:
        row, column = self._chosen or ("", "")
        if row in self.rows and column in self.columns:
            return self.rows.index(row), self.columns.index(column)
        return next(iter(self._bad()), (0, 0))

    def _bad(self) -> list[tuple[int, int]]:
        """The bad cells, or where there are none those not read."""
        everywhere = [(row, col) for row, cells in enumerate(self._cells) for col in range(len(cells))]
        bad = [at for at in everywhere if self.cell(*at).bad]
        return bad or [at for at in everywhere if self.cell(*at).level == "unread"]

    def _x(self, col: int) -> int:
        """Where that column begins, counted from the first one."""
        return col * self._pitch + (0 if self.wide else col // _BLOCK)

    def _column(self, x: int) -> int:
        """The column at that distance from the first one's begin."""
        if self.wide:
            return x // self._pitch
        block = _BLOCK * self._pitch + 1
        return x // block * _BLOCK + min(x % block // self._pitch, _BLOCK - 1)

    def _slot(self, col: int, text: str) -> str:
        """The text as wide as that column, gap included."""
        return text.ljust(self._x(col + 1) - self._x(col))

    def render_line(self, y: int) -> Strip:
        """One line of what is visible."""
        width = self.scrollable_content_region.width or self.size.width
        plain = self.rich_style
        if not self.rows or not self.columns:
            return _fitted([Segment(one_line(self.empty) if y == 0 else "", plain)], width, plain)
        left, shift = min(self._label, width), self.scroll_offset.x
        if y < self._top:
            label, cells, start = Segment(" " * left, plain), self._heading(y), 0
        else:
            row = y - self._top + self.scroll_offset.y
            if row >= len(self.rows):
                return Strip.blank(width, plain)
            here = row == self.at[0]
            name = f"{'▸' if here else ' '}{self.rows[row]}"
            label = Segment(set_cell_size(name, left), self._look("here") if here and self.has_focus else plain)
            first = max(self._column(shift), 0)
            cells, start = self._row(row, first, self._column(shift + width) + 1), self._x(first)
        shown = Strip(cells).crop(shift - start, shift - start + max(width - left, 0))
        return _fitted([label, *shown], width, plain)

    def _heading(self, line: int) -> list[Segment]:
        text, col = self._heads[line], self.at[1]
        start, end = self._x(col), self._x(col) + self._pitch
        head = self._look("head")
        return [Segment(text[:start], head), Segment(text[start:end], self._look("here")), Segment(text[end:], head)]

    def _row(self, row: int, first: int, end: int) -> list[Segment]:
        """The cells of a row from the first to before the end; neighbours that look alike are one segment."""
        out: list[tuple[str, str]] = []
        for col, mark in enumerate(self._cells[row][first:end], first):
            glyph = drawable(mark.glyph)
            text = self._slot(col, glyph)
            cursor = (row, col) == self.at
            if cursor or mark.level == "bad":
                out += [(glyph, "cursor" if cursor else "bad"), (text[len(glyph) :], "good")]
            elif out and out[-1][1] == mark.level:
                out[-1] = (out[-1][0] + text, mark.level)
            else:
                out.append((text, mark.level))
        looks = {level: self._look(level) for _, level in out}
        if not self.has_focus and "cursor" in looks:
            looks["cursor"] = self._look(self.cell(*self.at).level) + Style(underline=True)
        return [Segment(text, looks[level]) for text, level in out]

    def _look(self, name: str) -> Style:
        return self.get_component_rich_style(f"matrix--{name}")

    def watch_at(self) -> None:
        """Keep the cursor in sight beside names and headings, and say where it is."""
        row, col = self.at
        if not self._placing and self.rows and self.columns:
            self._chosen = (self.rows[row], self.columns[col])
        region = Region(self._x(col), row, self._label + self._pitch, self._top + 1)
        self.scroll_to_region(region, animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self))

    def action_go(self, rows: int, columns: int) -> None:
        """By so many cells."""
        row, col = self.at
        last_row, last_col = max(len(self.rows) - 1, 0), max(len(self.columns) - 1, 0)
        self.at = min(max(row + rows, 0), last_row), min(max(col + columns, 0), last_col)

    def action_page(self, by: int) -> None:
        """Up or down by what is visible."""
        self.action_go(by * max(self.size.height - self._top - 1, 1), 0)

    def action_edge(self, last: int) -> None:
        """To the first or the last cell."""
        far = len(self.rows) + len(self.columns)
        self.action_go(*((far, far) if last else (-far, -far)))

    def action_next(self, by: int) -> None:
        """To the next or the previous bad cell, round and round; where none is bad, to those not read."""
        bad = self._bad()
        if bad:
            ahead = [at for at in bad if (at > self.at if by > 0 else at < self.at)]
            self.at = (ahead or bad)[0 if by > 0 else -1]

    def action_choose(self) -> None:
        """Open what is under the cursor."""
        if self.rows and self.columns:
            self.post_message(self.Chosen(self))

    def on_focus(self) -> None:
        """The cursor shows where the keys go."""
        self.refresh()

    def on_blur(self) -> None:
        """The keys go elsewhere."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """A click on a cell moves there, on a name or a heading along; a second one on the same cell opens it."""
        at = event.get_content_offset(self)
        if at is None:
            return
        row, col = self.at
        if at.y >= self._top:
            row = at.y - self._top + self.scroll_offset.y
        if at.x >= self._label:
            col = self._column(at.x - self._label + self.scroll_offset.x)
        if row >= len(self.rows) or col >= len(self.columns):
            return
        if (row, col) == self.at:
            self.action_choose()
        self.at = row, col


def _fitted(segments: Sequence[Segment], width: int, style: Style) -> Strip:
    """One line of that width. Every Segment has a Style: NO_COLOR's filter needs one."""
    return Strip(segments).adjust_cell_length(width, style)
