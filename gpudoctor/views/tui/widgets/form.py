"""A form: fields with their options, of which one or any number are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from gpudoctor.core.language import say
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words.stack import LABELS, Option

_LABEL_WIDTH = 9
_GAP = 2


class Form(Rows):
    """Fields with options, wrapped over lines; Tab moves between fields, the arrows between options."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "across(-1)", "option before", show=False),
        Binding("right,l", "across(1)", "option after", show=False),
        Binding("tab", "field(1)", "next field", show=False),
        Binding("shift+tab", "field(-1)", "field before", show=False),
        Binding("space", "choose", "choose"),
        Binding("enter", "enter", "type or choose", show=False),
    ]

    class Picked(Message):
        """Posted when the option under the cursor is chosen or unselected."""

        def __init__(self, form: Form, option: Option) -> None:
            super().__init__()
            self.form, self.option = form, option

    def __init__(self) -> None:
        super().__init__(id="form", classes="pane")
        self.border_title = say("Choices")
        self._options: tuple[Option, ...] = ()
        self._options_by_line: list[list[int]] = []
        """The options of each line, by their place among all."""
        self._cursor_option = 0

    @property
    def option(self) -> Option | None:
        """The option under the cursor; None without options."""
        return self._options[self._cursor_option] if self._options else None

    def put(self, options: Sequence[Option]) -> None:
        """Show these options; the cursor stays on its field and value, else its field, else is on the first option."""
        here = self.option
        self._options = tuple(options)
        places = range(len(self._options))
        same = [place for place in places if here and self._options[place].field == here.field]
        exact = [place for place in same if here and self._options[place].value == here.value]
        self._cursor_option = next(iter([*exact, *same]), 0)
        self._wrap_options()

    def on_resize(self) -> None:
        """Wrap the options to the new width."""
        self._wrap_options()

    def _wrap_options(self) -> None:
        """Distribute the options over lines that fit, a new one for each field; the cursor stays on its option."""
        room = max((self.scrollable_content_region.width or self.size.width) - _LABEL_WIDTH - 1, 8)
        self._options_by_line = []
        used, last = 0, ""
        for place, option in enumerate(self._options):
            size = cell_len(_option_text(option)) + _GAP
            if option.field != last or used + size > room + _GAP:
                self._options_by_line.append([])
                used, last = 0, option.field
            self._options_by_line[-1].append(place)
            used += size
        self.fill(len(self._options_by_line))
        self.cursor = self._line_of_option(self._cursor_option)

    def _line_of_option(self, place: int) -> int:
        """Index of the line that shows the option with the index `place`; 0 if none does."""
        return next((index for index, line in enumerate(self._options_by_line) if place in line), 0)

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that line: the label if it is its field's first line, then the options."""
        places = self._options_by_line[index]
        first = self._options[places[0]]
        before = self._options[places[0] - 1].field if places[0] else ""
        label = say(LABELS[first.field]) if first.field != before else ""
        yield set_cell_size(label, _LABEL_WIDTH), "dim"
        for place in places:
            option = self._options[place]
            under = place == self._cursor_option and self.has_focus
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
        """Move to the next option (1) or the one before (-1), across lines."""
        self._move_to(self._cursor_option + by)

    def action_move(self, by: int) -> None:
        """Move by so many lines, within bounds: to the line's chosen option, else its first."""
        line = min(max(self.cursor + by, 0), max(len(self._options_by_line) - 1, 0))
        if self._options_by_line and line != self.cursor:
            self._move_to(self._chosen_or_first(self._options_by_line[line]))

    def action_edge(self, last: int) -> None:
        """Move to the last line, or the first if `last` is 0: to its chosen option, else its first."""
        if self._options_by_line:
            self._move_to(self._chosen_or_first(self._options_by_line[-1 if last else 0]))

    def action_field(self, by: int) -> None:
        """Move to the chosen (else first) option of the next field (1) or the one before (-1), or to the next pane."""
        fields = list(dict.fromkeys(option.field for option in self._options))
        here = self.option
        at = fields.index(here.field) + by if here else -1
        if not 0 <= at < len(fields):
            self.screen.focus_next() if by > 0 else self.screen.focus_previous()
            return
        own = [place for place, option in enumerate(self._options) if option.field == fields[at]]
        self._move_to(self._chosen_or_first(own))

    def action_choose(self) -> None:
        """Post `Picked` for the option under the cursor; nothing without options."""
        if option := self.option:
            self.post_message(self.Picked(self, option))

    def action_enter(self) -> None:
        """Post `Chosen`, so that the screen lets the user type a value; nothing without options."""
        if self._options:
            self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        """Move to the clicked option and post `Picked` for it; clicks beside the options do nothing."""
        at = event.get_content_offset(self)
        event.stop()
        event.prevent_default()
        if at is None or not 0 <= at.y + self.scroll_offset.y < len(self._options_by_line):
            return
        edge = _LABEL_WIDTH + 1
        for place in self._options_by_line[at.y + self.scroll_offset.y]:
            edge += cell_len(_option_text(self._options[place])) + _GAP
            if _LABEL_WIDTH < at.x < edge:
                self._move_to(place)
                self.action_choose()
                return

    def _chosen_or_first(self, places: Sequence[int]) -> int:
        """Of these option indices that of the first chosen option, else the first index."""
        return next((place for place in places if self._options[place].chosen), places[0])

    def _move_to(self, place: int) -> None:
        """Put the cursor on the option with that index, within bounds, and redraw; nothing without options."""
        if self._options:
            self._cursor_option = min(max(place, 0), len(self._options) - 1)
            self.cursor = self._line_of_option(self._cursor_option)
            self.refresh()


def _option_text(option: Option) -> str:
    """An option as drawn (sign, text, note), used to measure its width."""
    note = f"  {option.note}" if option.note else ""
    return f"{'[x]' if option.several else '◉'} {option.text}{note}"
