"""The application: opens the screens, has its looks kept, and lists everything that can be done now as commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.filter import LineFilter
from textual.fuzzy import FuzzySearch
from textual.screen import Screen
from textual.types import IgnoreReturnCallbackType

from gpudoctor.core import shipped
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import listed, text_of
from gpudoctor.core.language import say
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks, terminal, themes
from gpudoctor.views.tui.base import BaseApp, FramedScreen
from gpudoctor.views.tui.screens.help import KeysScreen
from gpudoctor.views.tui.widgets import frame
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, SCREEN_ENTRIES
from gpudoctor.views.tui.words import summary
from gpudoctor.views.tui.work import Work

# ---- The command palette: everything that can be done now, by name ----

_EXCLUDED_ACTIONS = ("open", "command_palette", "app.focus_next", "app.focus_previous", "keys", "read", "quit", "leave")
"""Actions with keys that are here under names of their own, or of no use without the key."""

_NAME_BY_ACTION = {
    "fix": ("fix", "plan"),
    "save": ("save", "the report, or this screen as a picture…"),
    "suspend_process": ("leave", "for now; fg in the shell goes on"),
}
"""Actions that many screens have, under a name of their own; the others are ``here``, or anybody's to ``do``."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the palette: ``go: GPUs``, with its keys or a description."""

    group: str
    words: str
    run: IgnoreReturnCallbackType
    about: str = ""
    searched: bool = False
    """Listed only where it is searched for: there may be hundreds of its kind."""

    @property
    def label(self) -> str:
        """Group and words on one line: ``go: GPUs``."""
        return one_line(f"{say(self.group)}{say(': ')}{say(self.words)}")

    @property
    def name(self) -> str:
        """Label and description, as shown and searched: ``go: GPUs 2``."""
        return self.label + (f"  {one_line(say(self.about))}" if self.about else "")


class Commands(Provider):
    """The command palette's source of commands."""

    async def discover(self) -> Hits:
        """The commands listed before anything is typed: all but those that are only listed when searched for."""
        for command in self.commands():
            if not command.searched:
                yield DiscoveryHit(_styled_name(command), command.run, command.name)

    async def search(self, query: str) -> Hits:
        """The commands that match the query, each with a score."""
        alike = FuzzySearch()
        for command in self.commands():
            whole = query.lower() in command.name.lower()  # letters here and there are looked for in our words only
            score, offsets = alike.match(query, command.name if whole else command.label)
            if score > 0:
                yield Hit(score, _styled_name(command, offsets), command.run, command.name)

    def commands(self) -> Iterator[Command]:
        """Every command that is possible now: screens, keys of this screen, general ones, findings and GPUs."""
        app = cast(DoctorApp, self.app)
        for number, entry in enumerate(SCREEN_ENTRIES, 1):
            if entry.name != app.current_mode:
                yield Command("go", entry.title, partial(app.action_open, entry.name), str(number))
        if app.diagnosis and app.diagnosis.unjudged:
            count = str(len(app.diagnosis.unjudged))
            yield Command("go", "not judged", partial(app.visit, "diagnosis", app.diagnosis.unjudged[0].id), count)
        for hint in frame.hints_of(self.screen):
            name = hint.action.partition("(")[0].removeprefix("screen.")
            if not hint.moves and name not in _EXCLUDED_ACTIONS:
                group, words = _NAME_BY_ACTION.get(name, ("do" if hint.everywhere else "here", hint.words))
                yield Command(group, words, partial(self.app.run_action, hint.action, hint.node), hint.keys[0])
        yield from _general_commands(app)
        if app.diagnosis:
            yield from _finding_commands(app, app.diagnosis)
            yield from _gpu_commands(app, app.diagnosis)


def _general_commands(app: DoctorApp) -> Iterator[Command]:
    """Commands that do not depend on the screen: reading, themes, marks, help, quitting."""
    yield Command("read", "again", app.action_read, "r")
    if not app.reading.over:
        yield Command("read", "stop, keep what was read", app.stop_reading, "esc")
    yield Command("view", "theme…", app.action_themes)
    for name, words in themes.NAMES.items():
        if name != app.theme:
            yield Command("view", say("theme {name}", name=say(words)), partial(app.choose_theme, name), searched=True)
    if app.in_ascii:
        yield Command("view", "marks in Unicode", partial(app.choose_marks, "unicode"))
    else:
        yield Command("view", "marks in plain ASCII", partial(app.choose_marks, "ascii"))
    yield Command("help", "keys of this screen", app.action_keys, "?")
    yield Command("help", "what the marks mean", app.action_keys, "?")
    yield Command("leave", "quit", app.action_quit, "q")


def _finding_commands(app: DoctorApp, diagnosis: Diagnosis) -> Iterator[Command]:
    """Commands that open each finding and each unjudged rule on the diagnosis screen, by id."""
    titles = {finding.id: (marks.SEVERITY[finding.severity][0], finding.title) for finding in diagnosis.findings[::-1]}
    for name in dict.fromkeys(finding.id for finding in diagnosis.findings):
        glyph, title = titles[name]
        yield Command("finding", name, partial(app.visit, "diagnosis", name), f"{glyph} {title}")
    for item in diagnosis.unjudged:
        run = partial(app.visit, "diagnosis", item.id)
        yield Command("not judged", item.id, run, f"{marks.UNREAD} {item.because}", searched=True)


def _gpu_commands(app: DoctorApp, diagnosis: Diagnosis) -> Iterator[Command]:
    """Commands that open each GPU of the diagnosis on the GPU screen."""
    for number, row in enumerate(listed(diagnosis.snapshot.rows("gpu"))):
        about = summary.short_name(text_of(row.get("name")))
        yield Command("gpu", str(number), partial(app.visit, "gpus", str(number)), about)


def _styled_name(command: Command, letters: Sequence[int] = ()) -> Content:
    """The command's name, dimmed but for its words, with the letters at these offsets underlined."""
    shown = Content(command.name).stylize("$foreground 70%", 0, len(say(command.group)) + 1)
    shown = shown.stylize("$foreground 70%", len(command.label), len(command.name))
    for at in letters:
        shown = shown.stylize("bold underline $primary", at, at + 1)
    return shown


# ---- The application ----


class DoctorApp(BaseApp):
    """The application with its screens, themes and commands."""

    TITLE = "gpudoctor"
    CSS = shipped.text("views/tui/tui.tcss")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Commands}
    COMMAND_PALETTE_DISPLAY = "^p"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        entry.name: entry.open for entry in (*SCREEN_ENTRIES, FIX_SCREEN)
    }
    DEFAULT_MODE = SCREEN_ENTRIES[0].name
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"open('{entry.name}')", entry.title, show=False)
            for number, entry in enumerate(SCREEN_ENTRIES, 1)
        ),
        Binding("r", "read", "read again", show=False),
        Binding("question_mark", "keys", "this page", show=False),
        Binding("q,ctrl+c", "quit", "quit", show=False),
        Binding("ctrl+z", "suspend_process", "leave for now; fg goes on", show=False),
    ]
    PERIOD = 0.25
    """Seconds between two looks at the clock while sources are asked."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        for theme in themes.OURS:
            self.register_theme(theme)
        self._ascii = terminal.AsciiFilter()
        self._choices = themes.Choices()
        try:
            self._choices = themes.load_choices()
        except themes.ChoicesError as error:
            self.say("what was chosen before is not known: {error}", error=error)
        if os.environ.get("TEXTUAL_THEME") not in self.available_themes:
            self.theme = self._choices.theme if self._choices.theme in themes.NAMES else themes.NIGHT.name
        self._ascii.enabled = self._choices.marks == "ascii" or (not self._choices.marks and terminal.ascii_wanted())

    def _save_choices(self, chosen: themes.Choices) -> None:
        """Store the choices for the next start; a message if that fails. They are in force in either case."""
        try:
            themes.keep_choices(chosen)
        except themes.ChoicesError as error:
            self.say("for this time only: the choice cannot be kept: {error}", error=error)
        self._choices = chosen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our additional theme variables, with the values for themes that do not set them."""
        return themes.DEFAULTS

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, and the one that replaces glyphs by ASCII if it is enabled."""
        return [*super().get_line_filters(), self._ascii] if self._ascii.enabled else super().get_line_filters()

    def on_load(self) -> None:
        """Let signals end the app like the key `q`, from before anything is drawn; not in a headless app."""
        if not self.is_headless:
            terminal.handle_signals(self.end)

    def on_mount(self) -> None:
        """Open the first screen, start reading the machine, and look regularly whether the terminal is still there."""
        if self.work.first:
            self.call_after_refresh(self.action_open, self.work.first)
        self.call_after_refresh(self.action_read)
        self.set_interval(self.PERIOD, self._tick)

    def end(self, code: int) -> None:
        """Quit with this exit code, without asking."""
        self.exit(return_code=code)

    def panic(self, *renderables: Any) -> None:
        """Show an internal error and quit; if the terminal is gone, quit without showing it."""
        if not self.is_headless and terminal.is_lost():
            terminal.redirect_to_devnull()
            self.end(terminal.HUNG_UP)
        else:
            super().panic(*renderables)

    def _tick(self) -> None:
        """Quit if the terminal is gone; while a reading goes on, have the screens redraw how long it has taken."""
        if not self.is_headless and terminal.is_lost():
            terminal.redirect_to_devnull()
            self.end(terminal.HUNG_UP)
        if not self.reading.over:
            self.mutate_reactive(BaseApp.reading)

    def action_open(self, name: str) -> None:
        """Open the screen of that name; Esc on it leads back to no other screen."""
        self.switch_mode(name)
        cast(FramedScreen, self.screen_stack[0]).back = ""

    async def action_quit(self) -> None:
        """Quit; while a step of a plan runs, ask first."""
        if self.repair and self.repair.busy:
            from gpudoctor.views.tui.repair import ask_to_leave

            ask_to_leave(self)
        else:
            self.exit()

    async def visit(self, place: str, name: str) -> None:
        """Open the screen `place` with its cursor on `name`; a message if that is not there."""
        await self.switch_mode(place)
        if not cast(FramedScreen, self.screen).go(name):
            self.say("{name}: not among what is shown here", name=name)

    def action_command_palette(self) -> None:
        """Open the command palette, unless it is open."""
        if self.use_command_palette and not CommandPalette.is_open(cast(Any, self)):
            self.push_screen(CommandPalette(placeholder=say("Search for commands…"), id="--command-palette"))

    def action_keys(self) -> None:
        """Open the page of this screen's keys and of the marks."""
        here = next((entry.title for entry in (*SCREEN_ENTRIES, FIX_SCREEN) if entry.name == self.current_mode), "")
        self.push_screen(KeysScreen(self.screen, here))

    def action_themes(self) -> None:
        """Open the list of themes, and use the one that is chosen there."""
        self.push_screen(themes.ThemeScreen(), self.choose_theme)

    def choose_theme(self, name: str | None) -> None:
        """Use that theme now and at the next start; None or an empty name changes nothing."""
        if name:
            self.theme = name
            if name != self._choices.theme:
                self._save_choices(replace(self._choices, theme=name))

    @property
    def in_ascii(self) -> bool:
        """True if glyphs are replaced by ASCII."""
        return self._ascii.enabled

    def choose_marks(self, marks: str) -> None:
        """Draw marks in ``ascii`` or ``unicode``, now and at the next start."""
        self._ascii.enabled = marks == "ascii"
        self._save_choices(replace(self._choices, marks=marks))
        self.refresh_css(animate=False)

    def on_key(self, event: Any) -> None:
        """Remove the message at any key but Esc, which the screens handle."""
        if self.message and event.key != "escape":
            self.message = ""
