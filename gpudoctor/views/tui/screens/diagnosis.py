"""What is wrong: the causes with their symptoms folded, and of each what is, what follows and what to do."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.reading import Reading, Source
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.widgets.findings import Findings
from gpudoctor.views.tui.widgets.frame import NARROW
from gpudoctor.views.tui.widgets.prose import Block, Pane
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import finding as words
from gpudoctor.views.tui.words import overview
from gpudoctor.views.tui.words.entries import Entry

if TYPE_CHECKING:
    from textual.widgets import Input

    from gpudoctor.views.tui.widgets.search import Search


class DiagnosisScreen(Place):
    """The first screen. `c` copies the next command of the cure."""

    NAME = "diagnosis"
    AUTO_FOCUS = "#findings"
    CSS = """
    #found { width: 2fr; max-width: 110; }
    #detail { width: 3fr; }
    #findings { height: 2fr; }
    #sources { height: 1fr; max-height: 26; }
    #sources.-over { display: none; }
    .-narrow #found { width: 1fr; max-width: 100%; height: auto; max-height: 40vh; }
    .-narrow #findings { height: auto; min-height: 3; max-height: 40vh; }
    .-narrow #sources { display: none; }
    .-narrow #detail { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy command", tooltip="Copy the next command of the cure"),
        Binding("e", "explain", "explain", tooltip="The page of the rule: what it looks for, and why"),
        Binding("n", "next(1)", "next", tooltip="To the next error or warning"),
        Binding("N", "next(-1)", "Back to the last error or warning", show=False),
        Binding("u", "unjudged", "not judged", tooltip="What was not judged, why, and what would help"),
        Binding("s", "save", "save", tooltip="Save the report, or this screen as a picture"),
        Binding("C", "alone", "Show the commands alone, to be selected", show=False),
        Binding("y", "report", "Copy the whole report", show=False),
        Binding("t", "facts", "its facts"),
        Binding("slash", "search", "Only what has the words that are typed", show=False),
    ]

    def body(self) -> Iterable[Widget]:
        """List and sources at the left, detail at the right; one above the other where it is narrow."""
        self.findings, self.sources, self.detail = Findings(), Sources(), Pane("What is", id="detail")
        self.search: Search | None = None
        """Made when something is sought: the first screen is not kept waiting for it."""
        self._copied = ("", 0)
        with Container(classes="panes"):
            with Vertical(id="found"):
                yield self.findings
                yield self.sources
            yield self.detail

    def on_mount(self) -> None:
        """Follow the sources, too."""
        super().on_mount()
        self._over = False
        self.watch(self.app, "reading", self._read)

    def _read(self) -> None:
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        self.sources.set_class(reading.over, "-over")
        if not reading.over:
            self.sources.put(reading)
        if not diagnosis:
            said = overview.trouble(reading, self.doctor.work.title) if reading.trouble else overview.waiting(reading)
            self.detail.put("What is", list(said), keep=True)
            self.findings.empty = "Nothing was read." if reading.over else "Nothing found yet."
            self.findings.refresh()
        elif reading.over != self._over:
            self._detail(keep=True)
        self._over = reading.over

    def show(self, diagnosis: Diagnosis) -> None:
        """What is found, as it grows."""
        self.findings.put(diagnosis)

    def go(self, name: str) -> bool:
        """To a finding, or to a rule that was not judged."""
        self._all()
        return self.findings.go(name)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail follows the cursor."""
        if event.rows is self.findings:
            self._detail()

    def _detail(self, keep: bool = False) -> None:
        diagnosis, entry = self.doctor.diagnosis, self.findings.entry
        if diagnosis and entry:
            title = _title(entry)
            keep = keep or str(self.detail.border_title) == title
            said = list(self._blocks(diagnosis, entry))
            self.detail.put(title, said if self.doctor.reading.over else [*said, *overview.more_to_come()], keep)

    def _blocks(self, diagnosis: Diagnosis, entry: Entry) -> Iterable[Block]:
        if entry.findings:
            first, *others = entry.findings
            narrow = self.app.size.width < NARROW
            return words.blocks(first, others, entry.under, diagnosis.notes, cure_first=narrow)
        return overview.reason(diagnosis, entry) if entry.reason else overview.whole(diagnosis, entry)

    def _commands(self) -> list[str]:
        entry = self.findings.entry
        return words.commands(entry.findings[0]) if entry and entry.findings else []

    def selected(self) -> tuple[str, ...]:
        """The finding under the cursor."""
        entry = self.findings.entry
        return (entry.id,) if entry and entry.findings else ()

    def action_copy(self) -> None:
        """The first command of the cure to the clipboard; pressed again, the next one."""
        entry, commands = self.findings.entry, self._commands()
        if not entry or not commands:
            self.doctor.say("no command to copy here: what to do is in words")
            return
        self.findings.pin()
        last, number = self._copied
        number = number % len(commands) if last == entry.id else 0
        self._copied = (entry.id, number + 1)
        self.app.copy_to_clipboard(commands[number])
        which = f" {number + 1} of {len(commands)}" if len(commands) > 1 else ""
        otherwise = " · C shows all, to be selected" if not number else ""  # not every terminal takes what is copied
        self.doctor.say(f"copied{which}: {commands[number]}{otherwise}")

    def action_alone(self) -> None:
        """The commands on the plain terminal, where its own selection takes them and they stay in its history."""
        entry = self.findings.entry
        if not entry or not self._commands():
            self.doctor.say("no command to show here: what to do is in words")
            return
        self.findings.pin()
        try:
            show(self.app, words.commands_alone(entry.findings[0]))
        except SuspendNotSupported:
            self.doctor.say("there is no plain terminal behind this one: c copies one command after the other")

    def action_report(self) -> None:
        """The whole report to the clipboard, as text."""
        form = self.doctor.work.forms.get("txt")
        if not form or not self.doctor.diagnosis:
            self.doctor.say("there is no report to copy yet")
            return
        text = form(self.doctor.diagnosis)
        self.app.copy_to_clipboard(text)
        self.doctor.say(f"copied the report: {len(text.splitlines())} lines")

    def action_explain(self) -> None:
        """The page of the rule."""
        entry = self.findings.entry
        name = entry.id if entry and (entry.findings or entry.rule) else ""
        if not name:
            self.doctor.say("e explains a rule: put the cursor on one")
            return
        from gpudoctor.views.tui.screens.explain import ExplainScreen

        self.findings.pin()
        self.app.push_screen(ExplainScreen(name))

    async def action_search(self) -> None:
        """Type what is sought in the list."""
        if self.search is None:
            from gpudoctor.views.tui.widgets.search import Search

            self.search = Search("words of a cause, or a rule")
            await self.query_one("#found").mount(self.search, before=self.findings)
        self.search.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Seek as one types."""
        self.findings.seek(event.value)

    def action_to_list(self) -> None:
        """From the search to the list; an empty search closes."""
        if self.search and self.search.field.value:
            self.findings.focus()
        else:
            self._all()

    def action_leave(self) -> None:
        """Esc: everything again where something is sought, else as everywhere."""
        if self.search and self.search.opened:
            self._all()
        else:
            super().action_leave()

    def _all(self) -> None:
        """Seek nothing."""
        if self.search:
            self.search.close()
        self.findings.focus()

    def action_next(self, by: int) -> None:
        """To the next error or warning, or back."""
        self.findings.next(by)

    def action_unjudged(self) -> None:
        """What was not judged, by reason; or back to the causes."""
        if self.doctor.diagnosis and not self.doctor.diagnosis.unjudged and not self.findings.only_unjudged:
            self.doctor.say("everything was judged")
        else:
            self.findings.turn()

    async def action_facts(self) -> None:
        """The facts that the finding rests on, or that the rules read, on their screen; Esc there comes back."""
        from gpudoctor.views.tui.screens.facts import FactsScreen

        entry = self.findings.entry
        names = () if not entry else (entry.id,) if entry.findings else entry.names
        if not names:
            self.doctor.say("t shows the facts of a finding or of a rule: put the cursor on one")
            return
        self.findings.pin()
        place = await self.visit("facts")
        assert isinstance(place, FactsScreen)
        place.look_at(*names)


def _title(entry: Entry) -> str:
    if entry.findings or entry.rule:
        return entry.id
    if entry.reason:
        return "Not judged"
    return {"order": "What to do first", "notes": "Notes", "unjudged": "Not judged"}.get(entry.section, "What passed")


# ---- Beside the interface ----
# Text on the plain terminal, for what only the terminal itself can do.


def show(app: App[Any], lines: Sequence[str]) -> None:
    """Print the lines, each whole, and come back on Enter or Esc.

    A mouse selection then takes them as they are, wherever the terminal wraps them, and after the end they are still
    in its history. Raises `SuspendNotSupported` where there is no terminal behind the interface.
    """
    with app.suspend(), _each_key(sys.stdin.fileno()) as keys:
        sys.stdout.write("\n".join(["", *lines, "", "Enter or Esc goes back to gpudoctor. "]))
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while (key := os.read(keys, 1)) not in _BACK or _goes_on(key, keys):
                continue
        sys.stdout.write("\n")


_BACK = (b"\r", b"\n", b"q", b"\x1b", b"\x03", b"\x04", b"")
_WITHIN = 0.05
"""Seconds within which the rest of an arrow's or another key's sequence follows its Esc."""


@contextlib.contextmanager
def _each_key(terminal: int) -> Iterator[int]:
    """Meanwhile each key is heard as it is pressed, not as a line; from before the words that ask for one."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _goes_on(key: bytes, terminal: int) -> bool:
    """Whether that Esc was the first byte of another key, whose rest is then taken in."""
    if key != b"\x1b" or not select.select([terminal], [], [], _WITHIN)[0]:
        return False
    if os.read(terminal, 1) in (b"[", b"O"):
        while not b"@" <= os.read(terminal, 1) <= b"~":
            continue
    return True


# ---- What is being asked, for how long, and what became of it ----

_WORDS = {"died": "gave up: see u", "stopped": "ran out of time: see u"}


class Sources(Rows):
    """One row a source, those still asked on top."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="sources", classes="pane")
        self.border_title = "Sources"
        self.set_reactive(Rows.cursor, -1)  # it is looked at, and nothing in it is chosen
        self._sources: list[tuple[str, Source]] = []

    def put(self, reading: Reading) -> None:
        """Show how far each is."""
        self._sources = sorted(reading.sources.items(), key=lambda item: (not item[1].asked, item[1].since))
        self.fill(len(self._sources))

    def row(self, index: int) -> Iterable[Cell]:
        """Mark, name, seconds and what became of it."""
        name, source = self._sources[index]
        now = time.monotonic()
        if source.asked:
            mark, look = marks.SPINNER[int(now * 8) % len(marks.SPINNER)], "accent"
        elif source.state == "done":
            mark, look = marks.PASSED, "good"
        else:
            mark, look = marks.UNREAD, "warning"
        seconds = now - source.since if source.asked else source.seconds
        return [
            (f"{mark} ", look),
            (f"{name:<14}", ""),
            (f"{seconds:5.2f} s  ", "dim"),
            (source.detail if source.asked else _WORDS.get(source.state, ""), ""),
        ]
