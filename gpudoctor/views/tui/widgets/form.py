"""A form: fields with their options, of which one or any number are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words.stack import LABELS, Option

_LABEL = 9
_GAP = 2


class Form(Rows):
    """Options flow over as many lines as they need. Tab goes from field to field, the arrows from option to option."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "across(-1)", "option before", show=False),
        Binding("right,l", "across(1)", "option after", show=False),
        Binding("tab", "field(1)", "next field", show=False),
        Binding("shift+tab", "field(-1)", "field before", show=False),
        Binding("space", "choose", "choose"),
        Binding("enter", "enter", "type or choose", show=False),
    ]

    class Picked(Message):
        """The option under the cursor is wanted, or no longer."""

        def __init__(self, form: Form, option: Option) -> None:
            super().__init__()
            self.form, self.option = form, option

        @property
        def control(self) -> Form:
            """Whose it is."""
            return self.form

    def __init__(self) -> None:
        super().__init__(id="form", classes="pane")
        self.border_title = "Choices"
        self._options: tuple[Option, ...] = ()
        self._lines: list[list[int]] = []
        """The options of each line, by their place among all."""
        self._at = 0

    @property
    def option(self) -> Option | None:
        """What is under the cursor."""
        return self._options[self._at] if self._options else None

    def put(self, options: Sequence[Option]) -> None:
        """Show these; the cursor stays on its field and value, or on its field."""
        here = self.option
        self._options = tuple(options)
        places = range(len(self._options))
        same = [place for place in places if here and self._options[place].field == here.field]
        exact = [place for place in same if here and self._options[place].value == here.value]
        self._at = next(iter([*exact, *same]), 0)
        self._flow()

    def on_resize(self) -> None:
        """Options flow anew."""
        self._flow()

    def _flow(self) -> None:
        room = max((self.scrollable_content_region.width or self.size.width) - _LABEL - 1, 8)
        self._lines = []
        used, last = 0, ""
        for place, option in enumerate(self._options):
            size = cell_len(_text(option)) + _GAP
            if option.field != last or used + size > room + _GAP:
                self._lines.append([])
                used, last = 0, option.field
            self._lines[-1].append(place)
            used += size
        self.fill(len(self._lines))
        self.cursor = self._line_of(self._at)

    def _line_of(self, place: int) -> int:
        return next((index for index, line in enumerate(self._lines) if place in line), 0)

    def row(self, index: int) -> Iterable[Cell]:
        """The label at a field's first line, then the options."""
        places = self._lines[index]
        first = self._options[places[0]]
        before = self._options[places[0] - 1].field if places[0] else ""
        label = LABELS[first.field] if first.field != before else ""
        yield label.ljust(_LABEL)[:_LABEL], "dim"
        for place in places:
            option = self._options[place]
            under = place == self._at and self.has_focus
            glyph = ("[x]" if option.chosen else "[ ]") if option.several else ("◉" if option.chosen else "○")
            look = "under" if under else "bold" if option.chosen else ""
            yield ("" if place == places[0] else " " * _GAP), ""
            yield glyph, "accent" if option.chosen else "dim"
            yield " ", ""
            yield option.text, look
            yield (f"  {option.note}" if option.note else ""), "dim"

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--under"}
    DEFAULT_CSS = "Form > .rows--under { text-style: bold reverse; }"

    def action_across(self, by: int) -> None:
        """To the option before or after, over the lines' ends."""
        self._go(self._at + by)

    def action_move(self, by: int) -> None:
        """To the line above or below, and there to what is chosen, else to the first."""
        line = min(max(self.cursor + by, 0), max(len(self._lines) - 1, 0))
        if self._lines and line != self.cursor:
            self._go(self._best(self._lines[line]))

    def action_edge(self, last: int) -> None:
        """To the first or the last line."""
        if self._lines:
            self._go(self._best(self._lines[-1 if last else 0]))

    def action_field(self, by: int) -> None:
        """To the next field, and from the last one to the next pane."""
        fields = list(dict.fromkeys(option.field for option in self._options))
        here = self.option
        at = fields.index(here.field) + by if here else -1
        if not 0 <= at < len(fields):
            self.screen.focus_next() if by > 0 else self.screen.focus_previous()
            return
        own = [place for place, option in enumerate(self._options) if option.field == fields[at]]
        self._go(self._best(own))

    def action_choose(self) -> None:
        """Choose it, or where several may be, no longer."""
        if option := self.option:
            self.post_message(self.Picked(self, option))

    def action_enter(self) -> None:
        """Open it: what that is, the screen knows."""
        if self._options:
            self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        """A click chooses what it hits."""
        at = event.get_content_offset(self)
        event.stop()
        event.prevent_default()
        if at is None or not 0 <= at.y + self.scroll_offset.y < len(self._lines):
            return
        edge = _LABEL + 1
        for place in self._lines[at.y + self.scroll_offset.y]:
            edge += cell_len(_text(self._options[place])) + _GAP
            if _LABEL < at.x < edge:
                self._go(place)
                self.action_choose()
                return

    def _best(self, places: Sequence[int]) -> int:
        return next((place for place in places if self._options[place].chosen), places[0])

    def _go(self, place: int) -> None:
        if self._options:
            self._at = min(max(place, 0), len(self._options) - 1)
            self.cursor = self._line_of(self._at)
            self.refresh()


def _text(option: Option) -> str:
    note = f"  {option.note}" if option.note else ""
    return f"{'[x]' if option.several else '◉'} {option.text}{note}"
