"""What is wrong: the causes with their symptoms folded, and of each what is, what follows and what to do."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import FramedScreen
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.widgets.findings import Entry, Findings
from gpudoctor.views.tui.widgets.frame import NARROW, Search
from gpudoctor.views.tui.widgets.prose import Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import diagnosis as words
from gpudoctor.views.tui.words import summary
from gpudoctor.views.tui.work import Reading, Source

if TYPE_CHECKING:
    from textual.widgets import Input

    from gpudoctor.views.tui.screens.facts import FactsScreen

_TALL = 40
"""Lines of a screen from which on the machine is shown, too."""


class DiagnosisScreen(FramedScreen):
    """The first screen: findings with what follows and what to do; `c` copies the next command of the fix."""

    NAME = "diagnosis"
    AUTO_FOCUS = "#findings"
    CSS = """
    #found { width: 2fr; max-width: 110; }
    #detail { width: 3fr; }
    #findings { height: 2fr; }
    #sources { height: 1fr; max-height: 26; }
    #sources.-over { display: none; }
    #machine { display: none; height: auto; max-height: 12; }
    #machine.-shown { display: block; }
    .-narrow #found { width: 1fr; max-width: 100%; height: auto; max-height: 40vh; }
    .-narrow #findings { height: auto; min-height: 3; max-height: 40vh; }
    .-narrow #sources, .-narrow #machine { display: none; }
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
        """Findings, sources and machine at the left, the detail at the right; stacked on narrow screens."""
        self.findings, self.sources, self.detail = Findings(), SourcesTable(), Pane("What is", id="detail")
        self.machine_pane = Pane("Machine", id="machine")
        self.machine_pane.can_focus = False
        self.search: Search | None = None
        """Made when something is sought: the first screen is not kept waiting for it."""
        self._copied = ("", 0)
        with Container(classes="panes"):
            with Vertical(id="found"):
                yield self.findings
                yield self.sources
                yield self.machine_pane
            yield self.detail

    def on_mount(self) -> None:
        """Follow the app's reading."""
        self._was_over = False
        self.watch(self.app, "reading", self._show_reading)

    def _show_reading(self) -> None:
        """Show the sources while they are read, the machine afterwards, and, without a diagnosis, why there is none."""
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        self.sources.set_class(reading.over, "-over")
        self.machine_pane.set_class(reading.over and bool(diagnosis) and self.app.size.height >= _TALL, "-shown")
        if not reading.over:
            self.sources.put(reading)
        if not diagnosis:
            blocks = words.trouble(reading, say(self.doctor.work.title)) if reading.trouble else words.waiting(reading)
            self.detail.put("What is", list(blocks), keep=True)
            self.findings.empty = "Nothing was read." if reading.over else "Nothing found yet."
            self.findings.refresh()
        elif reading.over != self._was_over:
            self._show_detail(keep=True)
        self._was_over = reading.over

    def show(self, diagnosis: Diagnosis) -> None:
        """Show the findings of this diagnosis, and the machine that it is about."""
        self.findings.put(diagnosis)
        lines = summary.machine_lines(diagnosis.snapshot)
        blocks = [Block(plain(text), Content.styled(say(label), "dim"), 11) for label, text in lines]
        self.machine_pane.put("Machine", blocks, keep=True)

    def on_resize(self) -> None:
        """Show or hide the pane of the machine, which needs a tall screen."""
        self._show_reading()

    def go(self, name: str) -> bool:
        """Close the search, and put the cursor on that finding or unjudged rule; False if there is none."""
        self._clear_search()
        return self.findings.go(name)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the entry under the cursor in detail."""
        if event.rows is self.findings:
            self._show_detail()

    def _show_detail(self, keep: bool = False) -> None:
        """Show the entry under the cursor in the detail; `keep`, or the same title, keeps the scroll position."""
        diagnosis, entry = self.doctor.diagnosis, self.findings.entry
        if diagnosis and entry:
            title = _pane_title(entry)
            keep = keep or str(self.detail.border_title) == title
            blocks = list(self._blocks(diagnosis, entry))
            self.detail.put(title, blocks if self.doctor.reading.over else [*blocks, *words.more_to_come()], keep)

    def _blocks(self, diagnosis: Diagnosis, entry: Entry) -> Iterable[Block]:
        """The blocks of the detail of an entry: a finding, a reason why rules were not judged, or a summary line."""
        if entry.findings:
            first, *others = entry.findings
            narrow = self.app.size.width < NARROW
            return words.finding_blocks(first, others, entry.under, diagnosis.notes, cure_first=narrow)
        return words.reason_blocks(diagnosis, entry) if entry.reason else words.section_blocks(diagnosis, entry)

    def _commands(self) -> list[str]:
        """Commands of the fix of the finding under the cursor; empty if it is no finding or there are none."""
        entry = self.findings.entry
        return words.commands(entry.findings[0]) if entry and entry.findings else []

    def selected(self) -> tuple[str, ...]:
        """Id of the finding under the cursor as a tuple; empty if the cursor is on no finding."""
        entry = self.findings.entry
        return (entry.id,) if entry and entry.findings else ()

    def action_copy(self) -> None:
        """Copy the first command of the finding's fix; when repeated, the next.

        A message says which, or that there is none.
        """
        entry, commands = self.findings.entry, self._commands()
        if not entry or not commands:
            self.doctor.say("no command to copy here: what to do is in words")
            return
        self.findings.pin()
        last, number = self._copied
        number = number % len(commands) if last == entry.id else 0
        self._copied = (entry.id, number + 1)
        self.app.copy_to_clipboard(commands[number])
        which = say(" {number} of {count}", number=number + 1, count=len(commands)) if len(commands) > 1 else ""
        otherwise = (
            say(" · C shows all, to be selected") if not number else ""
        )  # not every terminal takes what is copied
        self.doctor.say(
            say("copied{which}: {command}{otherwise}", which=which, command=commands[number], otherwise=otherwise)
        )

    def action_alone(self) -> None:
        """Suspend the interface, print the finding's commands on the plain terminal, and wait for Enter or Esc.

        Only a message if there are no commands or the interface cannot be suspended; nothing is run.
        """
        entry = self.findings.entry
        if not entry or not self._commands():
            self.doctor.say("no command to show here: what to do is in words")
            return
        self.findings.pin()
        try:
            with self.app.suspend(), _unbuffered_keys(sys.stdin.fileno()) as keys:
                sys.stdout.write(
                    "\n".join(
                        ["", *words.commands_alone(entry.findings[0]), "", say("Enter or Esc goes back to gpudoctor. ")]
                    )
                )
                sys.stdout.flush()
                with contextlib.suppress(KeyboardInterrupt):
                    while (key := os.read(keys, 1)) not in _BACK_KEYS or _is_key_sequence(key, keys):
                        continue
                sys.stdout.write("\n")
        except SuspendNotSupported:
            self.doctor.say("there is no plain terminal behind this one: c copies one command after the other")

    def action_report(self) -> None:
        """Copy the whole report as text; only a message before a diagnosis."""
        form = self.doctor.work.forms.get("txt")
        if not form or not self.doctor.diagnosis:
            self.doctor.say("there is no report to copy yet")
            return
        text = form(self.doctor.diagnosis)
        self.app.copy_to_clipboard(text)
        self.doctor.say("copied the report: {count} lines", count=len(text.splitlines()))

    def action_explain(self) -> None:
        """Open the page of the rule under the cursor; only a message if the cursor is on none."""
        entry = self.findings.entry
        name = entry.id if entry and (entry.findings or entry.rule) else ""
        if not name:
            self.doctor.say("e explains a rule: put the cursor on one")
            return
        self.findings.pin()
        self.app.push_screen(ExplainScreen(name))

    async def action_search(self) -> None:
        """Open and focus the search line above the findings; it is made the first time."""
        if self.search is None:
            self.search = Search("words of a cause, or a rule")
            await self.query_one("#found").mount(self.search, before=self.findings)
        self.search.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only the findings with the words typed so far."""
        self.findings.filter_by(event.value)

    def action_to_list(self) -> None:
        """Move from the search line to the list; an empty search line closes."""
        if self.search and self.search.field.value:
            self.findings.focus()
        else:
            self._clear_search()

    def action_leave(self) -> None:
        """Esc: clear the search, else as on every screen."""
        if self.search and self.search.opened:
            self._clear_search()
        else:
            super().action_leave()

    def _clear_search(self) -> None:
        """Close the search line, which shows everything again, and focus the findings."""
        if self.search:
            self.search.close()
        self.findings.focus()

    def action_next(self, by: int) -> None:
        """Move to the next error or warning, wrapping round; `by` -1: the previous."""
        self.findings.next(by)

    def action_unjudged(self) -> None:
        """Switch the list between what was found and what was not judged; only a message if everything was judged."""
        if self.doctor.diagnosis and not self.doctor.diagnosis.unjudged and not self.findings.only_unjudged:
            self.doctor.say("everything was judged")
        else:
            self.findings.toggle_unjudged()

    async def action_facts(self) -> None:
        """Open the facts screen with what the finding rests on, or the rules read; Esc comes back.

        A message without a rule.
        """
        entry = self.findings.entry
        names = () if not entry else (entry.id,) if entry.findings else entry.names
        if not names:
            self.doctor.say("t shows the facts of a finding or of a rule: put the cursor on one")
            return
        self.findings.pin()
        cast("FactsScreen", await self.visit("facts")).look_at(*names)


def _pane_title(entry: Entry) -> str:
    """Title of an entry's detail: the rule's id, ``Not judged``, ``What to do first``, ``Notes`` or ``What passed``."""
    if entry.findings or entry.rule:
        return entry.id
    if entry.reason:
        return say("Not judged")
    return say(
        {"order": "What to do first", "notes": "Notes", "unjudged": "Not judged"}.get(entry.section, "What passed")
    )


# ---- Beside the interface ----


_BACK_KEYS = (b"\r", b"\n", b"q", b"\x1b", b"\x03", b"\x04", b"")
_SEQUENCE_SECONDS = 0.05
"""Seconds within which the rest of an arrow's or another key's sequence follows its Esc."""


@contextlib.contextmanager
def _unbuffered_keys(terminal: int) -> Iterator[int]:
    """Context in which that terminal delivers each key at once (cbreak mode); gives its file descriptor back.

    The former mode is restored and unread input dropped at the end.
    """
    if sys.platform == "win32":
        yield terminal  # not reached: Textual cannot suspend an interface there
        return
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _is_key_sequence(key: bytes, terminal: int) -> bool:
    """True if `key` is the Esc that began another key's sequence, whose rest is then read; False for a plain Esc."""
    if key != b"\x1b" or not select.select([terminal], [], [], _SEQUENCE_SECONDS)[0]:
        return False
    if os.read(terminal, 1) in (b"[", b"O"):
        while not b"@" <= os.read(terminal, 1) <= b"~":
            continue
    return True


# ---- What is being asked, for how long, and what became of it ----

_WORDS = {"died": "gave up: see u", "stopped": "ran out of time: see u"}


class SourcesTable(Rows):
    """A row for each source of facts, those still being asked on top."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="sources", classes="pane")
        self.border_title = say("Sources")
        self.set_reactive(Rows.cursor, -1)  # it is looked at, and nothing in it is chosen
        self._sources: list[tuple[str, Source]] = []

    def put(self, reading: Reading) -> None:
        """Show how far each source is, those still being asked on top."""
        self._sources = sorted(reading.sources.items(), key=lambda item: (not item[1].asked, item[1].since))
        self.fill(len(self._sources))

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that source: mark, name, seconds, and detail while it is asked or how it failed."""
        name, source = self._sources[index]
        now = time.monotonic()
        if source.asked:
            mark, look = marks.spinner(now), "accent"
        elif source.state == "done":
            mark, look = marks.PASSED, "good"
        else:
            mark, look = marks.UNREAD, "warning"
        seconds = now - source.since if source.asked else source.seconds
        return [
            (f"{mark} ", look),
            (f"{name:<14}", ""),
            (f"{seconds:5.2f} s  ", "dim"),
            (source.detail if source.asked else say(_WORDS.get(source.state, "")), ""),
        ]
