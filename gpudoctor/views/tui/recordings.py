"""The interface with a list of recorded machines before it, one of which is looked at at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen

from gpudoctor.model.diagnosis import Verdict
from gpudoctor.views.tui import marks, places
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.reading import Reading
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.work import Choice

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.work import Choice

LIST = "demos"


class RecordingsApp(DoctorApp):
    """The list is a mode beside the screens; they are built anew for each machine."""

    DEFAULT_MODE = LIST
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "choices", "other recorded machines", show=False)]

    OWN_KEYS = (("o", "list", "app.choices"),)
    """Hints that are shown on each of its screens."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__(choices[0].work())
        self._list = DemosScreen(choices)
        self.add_mode(LIST, lambda: self._list)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """On the list there is no machine yet."""
        if self.current_mode == LIST and action in {"open", "read", "choices"}:
            return False
        return super().check_action(action, parameters)

    def action_read(self) -> None:
        """Nothing is read before a machine is chosen."""
        if self.current_mode != LIST:
            super().action_read()

    async def action_open_choice(self) -> None:
        """Look at the machine under the list's cursor, on screens that have seen no other one."""
        self._round += 1
        self.work = self._list.choices.choice.work()
        self.diagnosis, self.reading, self.message = None, Reading(), ""
        self.repair = None
        for door in (*places.DOORS, places.FIX):
            await self.remove_mode(door.name)
            self.add_mode(door.name, door.open)
        await self.switch_mode(self.first)
        self.action_read()

    def action_choices(self) -> None:
        """Back to the list; a reading that is on its way is not heard any more."""
        self._round += 1
        self.switch_mode(LIST)

    @property
    def first(self) -> str:
        """The screen that a machine opens with."""
        return places.DOORS[0].name


# ---- The recorded machines to choose from ----
# The first screen of ``gpudoctor demo``.

_LOOKS: dict[Verdict, str] = {"broken": "error", "impaired": "warning", "sound": "good", "unknown": "accent"}


class Choices(Rows):
    """One row a machine: its name, what is wrong with it, what it is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "open")]

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__(id="choices", classes="pane")
        self.choices = choices
        self.border_title = "Recorded machines"
        self._names = max(len(choice.name) for choice in choices) + 2
        self._titles = max(len(choice.title) for choice in choices) + 2

    @property
    def choice(self) -> Choice:
        """What is under the cursor."""
        return self.choices[self.cursor]

    def on_mount(self) -> None:
        """All of them are known from the start."""
        self.fill(len(self.choices))
        self.styles.height = len(self.choices) + 2

    def row(self, index: int) -> Iterable[Cell]:
        """The title gives way to the machine where there is room for both."""
        choice = self.choices[index]
        wide = self.scrollable_content_region.width >= self._names + self._titles + 16
        glyph, _ = marks.VERDICT[choice.verdict]
        yield f"{glyph} ", _LOOKS[choice.verdict]
        yield f"{choice.name:<{self._names}}", "accent"
        yield f"{choice.title:<{self._titles if wide else 0}}", ""
        if wide:
            yield choice.machine, "dim"


class DemosScreen(Screen[None]):
    """Which machine to look at; enter opens it."""

    AUTO_FOCUS = "#choices"
    SCOPED_CSS = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - an instance variable of Textual's
    CSS = """
    #list { height: 1fr; }
    #choices { max-height: 65%; }
    #chosen { height: auto; max-height: 1fr; }
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.choices = Choices(choices)
        self.chosen = Pane("", id="chosen")

    def compose(self) -> ComposeResult:
        """The frame's lines, the list, and what one meets on the machine under the cursor."""
        yield Line(id="band")
        yield Line(id="status")
        with Vertical(id="list"):
            yield self.choices
            yield self.chosen
        yield Keys()

    def on_mount(self) -> None:
        """Say what this is."""
        count = len(self.choices.choices)
        self.query_one("#band", Line).say(
            Content.assemble((f"{count} recorded machines", "bold"), "  nothing here is about this machine")
        )
        self.query_one("#status", Line).say("Real checks run on recorded answers. o comes back to this list.")

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show what it is about."""
        choice = self.choices.choice
        self.chosen.put(
            choice.name,
            [
                Block(plain(choice.title, "bold")),
                GAP,
                Block(plain(choice.meets), Content.styled("You meet", "bold"), 10),
                Block(plain(choice.machine), Content.styled("Machine", "bold"), 10),
                Block(plain(f"gpudoctor demo {choice.name}", "$primary"), Content.styled("Directly", "bold"), 10),
            ],
        )
        event.stop()

    async def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter, or a second click."""
        event.stop()
        await self.run_action("app.open_choice")
