"""A list or table that is drawn line by line: only what is visible is drawn, however many rows there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

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
from typing_extensions import Self

from gpudoctor.core.language import say
from gpudoctor.views._terminal import drawable
from gpudoctor.views.tui.widgets.frame import MOVES

Cell = tuple[str, str]
"""A piece of a row, and its look: empty, or the end of one of the classes ``rows--*``."""


def fit(text: str, width: int, from_end: bool = False) -> str:
    """The text in exactly `width` columns, padded or cut with an ellipsis; `from_end` keeps its end."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if width < 2:
        return "…"[:width]
    if from_end:
        return set_cell_size("…" + text[-(width - 1) :], width)
    return f"{set_cell_size(text, width - 1)}…"


Place = TypeVar("Place", int, "tuple[int, int]")


def next_place(places: Sequence[Place], here: Place, by: int) -> Place:
    """The first of these sorted places after `here`, else the first of all; `by` -1: the last before it, else the last.

    Raises IndexError without places.
    """
    ahead = [place for place in places if (place > here if by > 0 else place < here)]
    return (ahead or places)[0 if by > 0 else -1]


class Rows(ScrollView, can_focus=True):
    """A list of rows under an optional fixed heading; a subclass defines `row`, and calls `fill` with their number."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--error",
        "rows--warning",
        "rows--info",
        "rows--good",
        "rows--accent",
        "rows--dim",
        "rows--bold",
        "rows--head",
        "rows--cursor",
    }
    DEFAULT_CSS = """
    Rows { overflow-x: hidden; scrollbar-size-vertical: 1; }
    Rows > .rows--error { color: $error; text-style: bold; }
    Rows > .rows--warning { color: $warning; text-style: bold; }
    Rows > .rows--info { color: $primary; }
    Rows > .rows--good { color: $success; }
    Rows > .rows--accent { color: $primary; text-style: bold; }
    Rows > .rows--dim { text-style: dim; }
    Rows > .rows--bold { text-style: bold; }
    Rows > .rows--head { text-style: dim underline; }
    Rows > .rows--cursor { background: $primary 18%; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False, group=MOVES),
        Binding("down,j", "move(1)", "down", show=False, group=MOVES),
        Binding("pageup", "page(-1)", "page up", show=False, group=MOVES),
        Binding("pagedown", "page(1)", "page down", show=False, group=MOVES),
        Binding("home,g", "edge(0)", "first", show=False, group=MOVES),
        Binding("end,G", "edge(1)", "last", show=False, group=MOVES),
        Binding("enter", "choose", "open", show=False),
    ]
    cursor: reactive[int] = reactive(0, repaint=False)
    heading: Sequence[Cell] = ()
    """The line that stays on top; none where it is empty."""
    empty: str = ""
    """What is said where there are no rows."""

    class Moved(Message):
        """Posted when the cursor is on another row, or the row under it changed."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

    class Chosen(Moved):
        """Posted on Enter, or on a click on the row under the cursor."""

    count = 0

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        self._style_by_name: dict[str, Style] = {}
        super().__init__(id=id, classes=classes)

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row, from the left; raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError

    def fill(self, count: int) -> None:
        """Set the number of rows, keep the cursor within them, and redraw."""
        self.count = count
        self.virtual_size = Size(0, count + bool(self.heading))
        self.cursor = min(self.cursor, max(count - 1, 0))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Line `y` of the visible part: heading, a row behind the cursor's mark, the `empty` text, or blank."""
        width = self.scrollable_content_region.width or self.size.width
        plain = self._style("")
        if self.heading and y == 0:
            return self._strip_of(self.heading, width, plain)
        index = y + self.scroll_offset.y - bool(self.heading)
        if not self.count and index == 0 and self.empty:
            return self._strip_of([(say(self.empty), "dim")], width, plain)
        if index >= self.count:
            return Strip.blank(width, plain)
        here = index == self.cursor and self.count > 0
        look = self._style("cursor") if here and self.has_focus else plain
        lead = ("▸" if here else " ", "accent" if here else "")
        return self._strip_of([lead, *self.row(index)], width, look)

    def _strip_of(self, cells: Iterable[Cell], width: int, plain: Style) -> Strip:
        """The cells as one line of exactly that width, cut or padded, their looks on top of the style `plain`.

        Every Segment has a Style: NO_COLOR's filter needs one.
        """
        segments: list[Segment] = []
        room = width
        for text, look in cells:
            if room <= 0:
                break
            style = plain + self._style(look) if look else plain
            text = drawable(text)  # noqa: PLW2901 - whoever gave it
            size = cell_len(text)
            segments.append(Segment(text if size <= room else f"{set_cell_size(text, room - 1)}…", style))
            room -= min(size, room)
        if room > 0:
            segments.append(Segment(" " * room, plain))
        return Strip(segments, width)

    def _style(self, name: str) -> Style:
        """The style of the component class ``rows--NAME``, the widget's own for an empty name; cached."""
        found = self._style_by_name.get(name)
        if found is None:
            found = self._style_by_name[name] = self._computed_style(name)
        return found

    def _computed_style(self, name: str) -> Style:
        """The style of the component class ``rows--NAME``; the widget's own for an empty name.

        A translucent colour is mixed with the background.
        """
        if not name:
            return self.rich_style
        if name == "cursor":  # a row's own, with a background
            return self.get_component_rich_style("rows--cursor")
        look = self.get_component_rich_style(f"rows--{name}", partial=True)
        colour = self.get_component_styles(f"rows--{name}").color
        return look + Style(color=(self.background_colors[1] + colour).rich_color) if colour.a < 1 else look

    def notify_style_update(self) -> None:
        """Forget cached styles; Textual calls it when theme, focus or classes change the widget's style."""
        self._style_by_name.clear()
        super().notify_style_update()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Forget cached styles, and redraw as Textual's widgets do."""
        self._style_by_name.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @on(events.Resize)
    def _on_resized(self) -> None:
        """Scroll the cursor into view after a resize."""
        self.call_after_refresh(self._scroll_to_cursor)

    def _scroll_to_cursor(self) -> None:
        """Scroll so that the cursor's row is visible."""
        top = bool(self.heading)
        self.scroll_to_region(Region(0, self.cursor, 1, 1 + top), animate=False, force=True, x_axis=False)

    def watch_cursor(self) -> None:
        """Scroll the cursor into view, redraw, and post `Moved`."""
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Moved(self))

    def action_move(self, by: int) -> None:
        """Move the cursor by so many rows, within the list."""
        self.cursor = min(max(self.cursor + by, 0), max(self.count - 1, 0))

    def move_to_next(self, rows: Sequence[int], by: int) -> None:
        """Move the cursor to the next of these sorted rows, after the last to the first; `by` -1: to the previous.

        It stays if `rows` is empty.
        """
        if rows:
            self.cursor = next_place(rows, self.cursor, by)

    def action_page(self, by: int) -> None:
        """Move the cursor by `by` pages: 1 down, -1 up."""
        self.action_move(by * max(self.size.height - 1 - bool(self.heading), 1))

    def action_edge(self, last: int) -> None:
        """Move the cursor to the last row, or to the first if `last` is 0."""
        self.cursor = max(self.count - 1, 0) if last else 0

    def action_choose(self) -> None:
        """Post `Chosen` for the row under the cursor; nothing without rows."""
        if self.count:
            self.post_message(self.Chosen(self))

    @on(events.Focus)
    @on(events.Blur)
    def _on_focus_changed(self) -> None:
        """Redraw: the cursor shows the focus."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a click on the row under the cursor chooses it as Enter does."""
        at = event.get_content_offset(self)
        index = -1 if at is None else at.y + self.scroll_offset.y - bool(self.heading)
        if at is None or (self.heading and at.y == 0) or not 0 <= index < self.count:
            return
        if index == self.cursor:
            self.action_choose()
        self.cursor = index
