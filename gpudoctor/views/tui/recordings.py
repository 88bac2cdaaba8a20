"""The interface with a list of recorded machines before it, one of which is looked at at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen

from gpudoctor.core.diagnosis import Verdict
from gpudoctor.core.language import phrase, say
from gpudoctor.views._terminal import width
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, NARROW, SCREEN_ENTRIES, Keys, Line
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.work import Reading, RecordedMachine

LIST = "demos"


class RecordingsApp(DoctorApp):
    """The interface with a list of recorded machines; its screens are built anew for each of them."""

    DEFAULT_MODE = LIST
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "choices", "other recorded machines", show=False)]

    OWN_KEYS = (("o", "list", "app.choices"),)

    def __init__(self, choices: Sequence[RecordedMachine]) -> None:
        super().__init__(choices[0].work())
        self._list = RecordingsScreen(choices)
        self.add_mode(LIST, lambda: self._list)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """False for ``open``, ``read`` and ``choices`` while the list is shown; else as in the base class."""
        if self.current_mode == LIST and action in {"open", "read", "choices"}:
            return False
        return super().check_action(action, parameters)

    def action_read(self) -> None:
        """Start a reading of the open machine; does nothing while the list is shown."""
        if self.current_mode != LIST:
            super().action_read()

    async def action_open_choice(self) -> None:
        """Open the machine under the list's cursor with new screens, forget the former one, and start reading."""
        self._reading_number += 1
        self.work = self._list.choices.choice.work()
        self.diagnosis, self.reading, self.message = None, Reading(), ""
        self.repair = None
        for entry in (*SCREEN_ENTRIES, FIX_SCREEN):
            await self.remove_mode(entry.name)
            self.add_mode(entry.name, entry.open)
        await self.switch_mode(SCREEN_ENTRIES[0].name)
        self.action_read()

    def action_choices(self) -> None:
        """Go back to the list of machines; a reading in progress is ignored from then on."""
        self._reading_number += 1
        self.switch_mode(LIST)


# ---- The recorded machines to choose from ----

_STYLES: dict[Verdict, str] = {"broken": "error", "impaired": "warning", "sound": "good", "unknown": "accent"}


class RecordingsTable(Rows):
    """A row for each machine: name, what is wrong with it, hardware."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "open")]

    def __init__(self, choices: Sequence[RecordedMachine]) -> None:
        super().__init__(id="choices", classes="pane")
        self.choices = choices
        self.border_title = say("Recorded machines")
        self._name_width = max(len(choice.name) for choice in choices) + 2
        self._title_width = max(width(phrase(choice.title, ())) for choice in choices) + 2

    @property
    def choice(self) -> RecordedMachine:
        """The machine under the cursor."""
        return self.choices[self.cursor]

    def on_mount(self) -> None:
        """Set the number of rows, and the table's height to show all of them."""
        self.fill(len(self.choices))
        self.styles.height = len(self.choices) + 2

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that machine: verdict, name and title; its hardware, too, if there is room."""
        choice = self.choices[index]
        wide = self.scrollable_content_region.width >= self._name_width + self._title_width + 16
        glyph, _ = marks.VERDICT[choice.verdict]
        yield f"{glyph} ", _STYLES[choice.verdict]
        yield f"{choice.name:<{self._name_width}}", "accent"
        title = phrase(choice.title, ())
        yield title + " " * (self._title_width - width(title) if wide else 0), ""
        if wide:
            yield choice.machine, "dim"


class RecordingsScreen(Screen[None]):
    """The list of recorded machines, with a description of the one under the cursor; Enter opens it."""

    AUTO_FOCUS = "#choices"
    SCOPED_CSS = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - an instance variable of Textual's
    CSS = """
    #list { height: 1fr; }
    #choices { max-height: 65%; }
    #chosen { height: auto; max-height: 1fr; }
    """

    def __init__(self, choices: Sequence[RecordedMachine]) -> None:
        super().__init__()
        self.choices = RecordingsTable(choices)
        self.chosen = Pane("", id="chosen")

    def compose(self) -> ComposeResult:
        """Two lines on top, the list, the description of one machine, and the keys."""
        yield Line(id="band")
        yield Line(id="status")
        with Vertical(id="list"):
            yield self.choices
            yield self.chosen
        yield Keys()

    def on_mount(self) -> None:
        """Set the texts of the two lines on top."""
        count = len(self.choices.choices)
        self.query_one("#band", Line).say(
            Content.assemble(
                (say("{count} recorded machines", count=count), "bold"), say("  nothing here is about this machine")
            )
        )
        self.query_one("#status", Line).say(say("Real checks run on recorded answers. o comes back to this list."))

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Describe the machine under the cursor below the list."""
        choice = self.choices.choice
        self.chosen.put(
            choice.name,
            [
                Block(plain(phrase(choice.title, ()), "bold")),
                GAP,
                Block(plain(choice.meets), Content.styled(say("You meet"), "bold"), 10),
                Block(plain(choice.machine), Content.styled(say("Machine"), "bold"), 10),
                Block(plain(f"gpudoctor demo {choice.name}", "$primary"), Content.styled(say("Directly"), "bold"), 10),
            ],
        )
        event.stop()

    async def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Open the machine under the cursor in the app."""
        event.stop()
        await self.run_action("app.open_choice")
