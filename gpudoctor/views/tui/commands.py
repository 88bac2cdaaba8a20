"""The command palette: everything that can be done now, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.types import IgnoreReturnCallbackType

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Known
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import hints, marks, places, themes
from gpudoctor.views.tui.words import machine

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

_LEFT_OUT = ("open", "command_palette", "app.focus_next", "app.focus_previous", "keys", "read", "quit", "leave")
"""Actions with keys that are here under names of their own, or of no use without the key."""

_NAMED = {
    "fix": ("fix", "plan"),
    "save": ("save", "the report, or this screen as a picture…"),
    "suspend_process": ("leave", "for now; fg in the shell goes on"),
}
"""Actions that many screens have, under a name of their own; the others are ``here``, or anybody's to ``do``."""


@dataclass(frozen=True, slots=True)
class Command:
    """``go: GPUs``, with its keys or more words beside it."""

    group: str
    words: str
    run: IgnoreReturnCallbackType
    about: str = ""
    searched: bool = False
    """Listed only where it is searched for: there may be hundreds of its kind."""

    @property
    def label(self) -> str:
        """Group and words."""
        return one_line(f"{self.group}: {self.words}")

    @property
    def name(self) -> str:
        """All of it, as it is shown and searched for."""
        return self.label + (f"  {one_line(self.about)}" if self.about else "")


class Commands(Provider):
    """All of them, in the order of their groups; a search ranks by likeness."""

    async def discover(self) -> Hits:
        """What can be done, but for what there may be hundreds of."""
        for command in self.commands():
            if not command.searched:
                yield DiscoveryHit(_shown(command), command.run, command.name)

    async def search(self, query: str) -> Hits:
        """What is called like that."""
        alike = FuzzySearch()
        for command in self.commands():
            whole = query.lower() in command.name.lower()  # letters here and there are looked for in our words only
            score, offsets = alike.match(query, command.name if whole else command.label)
            if score > 0:
                yield Hit(score, _shown(command, offsets), command.run, command.name)

    def commands(self) -> Iterator[Command]:
        """Everything that can be done now."""
        app = cast("DoctorApp", self.app)
        yield from self._places(app)
        yield from self._bound()
        yield from _always(app)
        if app.diagnosis:
            yield from _found(app, app.diagnosis)
            yield from _gpus(app, app.diagnosis)

    def _places(self, app: DoctorApp) -> Iterator[Command]:
        for number, door in enumerate(places.DOORS, 1):
            if door.name != app.current_mode:
                yield Command("go", door.title, partial(app.action_open, door.name), str(number))
        if app.diagnosis and app.diagnosis.unjudged:
            count = str(len(app.diagnosis.unjudged))
            yield Command("go", "not judged", partial(app.visit, "diagnosis", app.diagnosis.unjudged[0].id), count)

    def _bound(self) -> Iterator[Command]:
        """What has a key now, on the screen below the palette."""
        for hint in hints.of(self.screen):
            name = hint.action.partition("(")[0].removeprefix("screen.")
            if not hint.moves and name not in _LEFT_OUT:
                group, words = _NAMED.get(name, ("do" if hint.everywhere else "here", hint.words))
                yield Command(group, words, partial(self.app.run_action, hint.action, hint.node), hint.keys[0])


def _always(app: DoctorApp) -> Iterator[Command]:
    yield Command("read", "again", app.action_read, "r")
    if not app.reading.over:
        yield Command("read", "stop, keep what was read", app.stop_reading, "esc")
    yield Command("view", "theme…", app.action_themes)
    for name, words in themes.NAMES.items():
        if name != app.theme:
            yield Command("view", f"theme {words}", partial(app.choose_theme, name), searched=True)
    if app.in_ascii:
        yield Command("view", "marks in Unicode", partial(app.choose_marks, "unicode"))
    else:
        yield Command("view", "marks in plain ASCII", partial(app.choose_marks, "ascii"))
    yield Command("help", "keys of this screen", app.action_keys, "?")
    yield Command("help", "what the marks mean", app.action_keys, "?")
    yield Command("leave", "quit", app.action_quit, "q")


def _found(app: DoctorApp, diagnosis: Diagnosis) -> Iterator[Command]:
    """Every finding and every rule that was not judged, by its id."""
    titles = {finding.id: (marks.SEVERITY[finding.severity][0], finding.title) for finding in diagnosis.findings[::-1]}
    for name in dict.fromkeys(finding.id for finding in diagnosis.findings):
        glyph, title = titles[name]
        yield Command("finding", name, partial(app.visit, "diagnosis", name), f"{glyph} {title}")
    for item in diagnosis.unjudged:
        run = partial(app.visit, "diagnosis", item.id)
        yield Command("not judged", item.id, run, f"{marks.UNREAD} {item.because}", searched=True)


def _gpus(app: DoctorApp, diagnosis: Diagnosis) -> Iterator[Command]:
    rows = diagnosis.snapshot.rows("gpu")
    if not isinstance(rows, tuple) or "gpus" not in {door.name for door in places.DOORS}:
        return
    for number, row in enumerate(rows):
        name = row.get("name")
        about = machine.short(str(name.value)) if isinstance(name, Known) else ""
        yield Command("gpu", str(number), partial(app.visit, "gpus", str(number)), about)


def _shown(command: Command, letters: Sequence[int] = ()) -> Content:
    """Its name, the group and what is beside it quiet, and these letters of it, which were searched for, stressed."""
    shown = Content(command.name).stylize("$foreground 70%", 0, len(command.group) + 1)
    shown = shown.stylize("$foreground 70%", len(command.label), len(command.name))
    for at in letters:
        shown = shown.stylize("bold underline $primary", at, at + 1)
    return shown
