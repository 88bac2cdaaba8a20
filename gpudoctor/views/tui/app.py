"""The application: holds the diagnosis, has work done in the background, and opens the screens."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import App
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen

from gpudoctor import shipped
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DoctorError
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import background, choices, places, stand_ins, terminal, themes
from gpudoctor.views.tui.reading import Reading

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.filter import LineFilter

    from gpudoctor.model.snapshot import Event
    from gpudoctor.views.tui.repair import Repair
    from gpudoctor.views.tui.screens.place import Place
    from gpudoctor.views.tui.work import Work


def _commands() -> type[Provider]:
    from gpudoctor.views.tui.commands import Commands

    return Commands


class DoctorApp(App[None]):
    """What is common to all screens; each of them follows `diagnosis`, `reading` and `message`."""

    TITLE = "gpudoctor"
    CSS = shipped.text("views/tui/tui.tcss")
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    COMMAND_PALETTE_DISPLAY = "^p"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        door.name: door.open for door in (*places.DOORS, places.FIX)
    }
    DEFAULT_MODE = places.DOORS[0].name
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"open('{door.name}')", door.title, show=False)
            for number, door in enumerate(places.DOORS, 1)
        ),
        Binding("r", "read", "read again", show=False),
        Binding("question_mark", "keys", "this page", show=False),
        Binding("q,ctrl+c", "quit", "quit", show=False),
        Binding("ctrl+z", "suspend_process", "leave for now; fg goes on", show=False),
    ]
    diagnosis: reactive[Diagnosis | None] = reactive(None)
    reading: reactive[Reading] = reactive(Reading)
    message: reactive[str] = reactive("")
    PERIOD = 0.25
    """Seconds between two looks at the clock while sources are asked."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        for theme in themes.OURS:
            self.register_theme(theme)
        self.repair: Repair | None = None
        """The plan that is open, and its run, once there was one."""
        self._ascii = stand_ins.Ascii()
        self._choices = choices.Choices()
        self._take_choices()
        self._round = 0
        """Which reading is the current one: what an older one still says is not heard."""

    def _take_choices(self) -> None:
        """Look as the user chose; a variable of the environment is the later word."""
        try:
            self._choices = choices.load()
        except choices.ChoicesError as error:
            self.say(f"what was chosen before is not known: {error}")
        if os.environ.get("TEXTUAL_THEME") not in self.available_themes:
            self.theme = self._choices.theme if self._choices.theme in themes.NAMES else themes.NIGHT.name
        self._ascii.enabled = self._choices.marks == "ascii" or (not self._choices.marks and stand_ins.wanted())

    def _keep(self, chosen: choices.Choices) -> None:
        try:
            choices.keep(chosen)
        except choices.ChoicesError as error:
            self.say(f"for this time only: the choice cannot be kept: {error}")
        self._choices = chosen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What themes may set beyond Textual's own."""
        return themes.DEFAULTS

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and ours that draws in ASCII."""
        return [*super().get_line_filters(), self._ascii] if self._ascii.enabled else super().get_line_filters()

    def on_load(self) -> None:
        """Before anything is drawn: from now on a signal ends it as `q` would."""
        if not self.is_headless:
            terminal.heed(self.end)

    def on_mount(self) -> None:
        """First the screen, then the work."""
        if self.work.first:
            self.call_after_refresh(self.action_open, self.work.first)
        self.call_after_refresh(self.action_read)
        self.set_interval(self.PERIOD, self._tick)

    def end(self, code: int) -> None:
        """End without asking, as a signal wants it."""
        self.exit(return_code=code)

    def panic(self, *renderables: Any) -> None:
        """Show what went wrong, unless it is only that nobody is there to see it."""
        if not self.is_headless and terminal.lost():
            terminal.let_go()
            self.end(terminal.HUNG_UP)
        else:
            super().panic(*renderables)

    def _tick(self) -> None:
        if not self.is_headless and terminal.lost():
            terminal.let_go()
            self.end(terminal.HUNG_UP)
        if not self.reading.over:
            self.mutate_reactive(DoctorApp.reading)

    def say(self, message: str) -> None:
        """Show a message in the second line, until the next key or another message."""
        self.message = one_line(message)

    def action_open(self, name: str) -> None:
        """Go to the screen of that name."""
        self.switch_mode(name)
        cast("Place", self.screen_stack[0]).back = ""

    async def action_quit(self) -> None:
        """Leave; where a step of a plan runs, its screen asks first."""
        if self.repair and self.repair.busy:
            self.repair.ask_to_leave(self)
        else:
            self.exit()

    async def visit(self, place: str, name: str) -> None:
        """Go to that screen, with the cursor on what is called `name` there."""
        await self.switch_mode(place)
        if not cast("Place", self.screen).go(name):
            self.say(f"{name}: not among what is shown here")

    def action_keys(self) -> None:
        """The keys of the screen that is open, and what the marks mean."""
        from gpudoctor.views.tui.screens.keys import KeysScreen

        here = next((door.title for door in (*places.DOORS, places.FIX) if door.name == self.current_mode), "")
        self.push_screen(KeysScreen(self.screen, here))

    def action_themes(self) -> None:
        """Choose a theme, and have it kept."""
        from gpudoctor.views.tui.screens.theme import ThemeScreen

        self.push_screen(ThemeScreen(), self.choose_theme)

    def choose_theme(self, name: str | None) -> None:
        """Take that theme, now and when the program is next opened."""
        if name:
            self.theme = name
            if name != self._choices.theme:
                self._keep(replace(self._choices, theme=name))

    @property
    def in_ascii(self) -> bool:
        """Whether the glyphs are drawn by their stand-ins."""
        return self._ascii.enabled

    def choose_marks(self, marks: str) -> None:
        """Draw with ``ascii`` or ``unicode``, now and when the program is next opened."""
        self._ascii.enabled = marks == "ascii"
        self._keep(replace(self._choices, marks=marks))
        self.refresh_css(animate=False)

    def action_read(self) -> None:
        """Read everything, again."""
        self._round += 1
        self.reading = Reading()
        tell = partial(background.tell, self)
        mine = self._round

        def event(what: Event) -> None:
            tell(lambda: self._event(mine, what))

        def partly(diagnosis: Diagnosis) -> None:
            if mine != self._round:
                raise InterruptedError("nobody hears this reading any more")
            tell(lambda: self._partly(mine, diagnosis))

        background.start(
            self, "reading", lambda: self.work.diagnose(event, partly), lambda answer: self._read(mine, answer)
        )

    def stop_reading(self) -> None:
        """Keep what was read, and hear no more."""
        self._round += 1
        self.reading = self.reading.ended("" if self.diagnosis else "stopped before anything was read; r reads again")
        self.say("stopped: what was not read by then is not judged; r reads again")

    def _event(self, mine: int, event: Event) -> None:
        if mine == self._round:
            self.reading = self.reading.after(event)

    def _partly(self, mine: int, diagnosis: Diagnosis) -> None:
        if mine == self._round and not self.reading.over:
            self.diagnosis = diagnosis

    def _read(self, mine: int, answer: Diagnosis | BaseException) -> None:
        if mine != self._round:
            return
        if isinstance(answer, BaseException):
            words = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.reading = self.reading.ended(one_line(words))
            return
        self.reading = self.reading.ended()
        self.diagnosis = answer

    def on_key(self, event: Any) -> None:
        """A message stays until the next key."""
        if self.message and event.key != "escape":
            self.message = ""
