"""The recorded machines to choose from: the first screen of ``gpudoctor demo``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen

from gpudoctor.model.diagnosis import Verdict
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.work import Choice


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
