"""What is wrong: the causes with their symptoms folded, and of each what is, what follows and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views.tui import finding as words
from gpudoctor.views.tui.screens.place import Place
from gpudoctor.views.tui.widgets.findings import Entry, Findings
from gpudoctor.views.tui.widgets.prose import GAP, Block, Pane, plain
from gpudoctor.views.tui.widgets.rows import Rows
from gpudoctor.views.tui.widgets.sources import Sources


class DiagnosisScreen(Place):
    """The first screen. `c` copies the next command of the cure."""

    NAME = "diagnosis"
    AUTO_FOCUS = "#findings"
    CSS = """
    #found { width: 2fr; max-width: 60; }
    #detail { width: 3fr; }
    #findings { height: 2fr; }
    #sources { height: 1fr; }
    #sources.-over { display: none; }
    .-narrow #found { width: 1fr; max-width: 100%; height: 40%; }
    .-narrow #sources { display: none; }
    .-narrow #detail { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy command"),
        Binding("e", "explain", "explain"),
        Binding("t", "facts", "its facts"),
    ]

    def body(self) -> Iterable[Widget]:
        """List and sources at the left, detail at the right; one above the other where it is narrow."""
        self.findings, self.sources, self.detail = Findings(), Sources(), Pane("What is", id="detail")
        self._copied = ("", 0)
        with Container(classes="panes"):
            with Vertical(id="found"):
                yield self.findings
                yield self.sources
            yield self.detail

    def on_mount(self) -> None:
        """Follow the sources, too."""
        super().on_mount()
        self.watch(self.app, "reading", self._sources)

    def _sources(self) -> None:
        self.sources.set_class(self.doctor.reading.over, "-over")
        if not self.doctor.reading.over:
            self.sources.put(self.doctor.reading)
        if not self.doctor.diagnosis:
            self._nothing_yet()

    def _nothing_yet(self) -> None:
        reading = self.doctor.reading
        said = (
            reading.trouble or "Nothing found yet. What is found is shown at once; the cursor stays where you put it."
        )
        self.detail.put("What is", [Block(plain(said))], keep=True)

    def show(self, diagnosis: Diagnosis) -> None:
        """What is found, as it grows."""
        self.findings.empty = "Nothing wrong was found." if self.doctor.reading.over else "Nothing found yet."
        self.findings.put(diagnosis)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """The detail follows the cursor."""
        diagnosis = self.doctor.diagnosis
        if event.rows is not self.findings or not diagnosis:
            return
        entry = self.findings.entry
        if entry is None:
            self.detail.put(
                "What was checked", list(words.passed(diagnosis)) or [Block(plain("Nothing yet."))], keep=True
            )
        elif entry.unjudged:
            self.detail.put(entry.id, list(_unjudged(entry)))
        else:
            same = str(self.detail.border_title) == entry.id
            first, *others = entry.findings
            self.detail.put(entry.id, list(words.blocks(first, others, entry.under)), keep=same)

    def action_copy(self) -> None:
        """The first command of the cure to the clipboard; pressed again, the next one."""
        entry = self.findings.entry
        commands = words.commands(entry.findings[0]) if entry and entry.findings else []
        if not entry or not commands:
            self.doctor.say("no command to copy here: what to do is in words")
            return
        last, number = self._copied
        number = number % len(commands) if last == entry.id else 0
        self._copied = (entry.id, number + 1)
        self.app.copy_to_clipboard(commands[number])
        which = f" {number + 1} of {len(commands)}" if len(commands) > 1 else ""
        self.doctor.say(f"copied{which}: {commands[number]}")

    def action_explain(self) -> None:
        """The page of the rule."""

    async def action_facts(self) -> None:
        """The facts that the finding rests on, on their screen; Esc there comes back."""
        from gpudoctor.views.tui.screens.facts import FactsScreen

        if entry := self.findings.entry:
            place = await self.visit("facts")
            assert isinstance(place, FactsScreen)
            place.look_at(entry.id)


def _unjudged(entry: Entry) -> Iterable[Block]:
    assert entry.unjudged
    yield Block(plain(entry.unjudged.because), Content.styled(" ? NOT JUDGED ", "bold reverse $primary"), 15)
    yield GAP
    yield Block(plain("e explains what the rule looks for. 3 shows every fact, and why those that are unread are."))
