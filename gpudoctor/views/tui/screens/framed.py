"""The base of the screens: frame, tabs, the keys that work on every screen, the diagnosis and a line for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.base import BaseApp
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line, Tabs
from gpudoctor.views.tui.words import summary

if TYPE_CHECKING:
    from textual.app import ComposeResult


@dataclass(frozen=True, slots=True)
class Band:
    """The first line: its class in the style sheet, its word with a glyph, its subject, and texts for the right end."""

    look: str
    word: str
    about: str = ""
    rights: Sequence[str] = ()
    """The same, shorter and shorter: the first that there is room for is shown."""

    @property
    def left(self) -> Content:
        """Word and subject, never read as markup."""
        return Content.assemble((self.word, "bold"), f"  {one_line(self.about)}")


class FramedScreen(Screen[None]):
    """A screen with the frame around it; a subclass defines `body` and, to follow the diagnosis, `show`."""

    NAME: ClassVar[str] = ""
    SCOPED_CSS = False
    """The classes ``-narrow`` and ``-wide``, which its CSS goes by, are the screen's own."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - an instance variable of Textual's
    back: str = ""
    """The screen that Esc returns to, where one came from there to look something up."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back; stop a reading", show=False),
        Binding("f", "fix", "fix"),
        Binding("ctrl+s", "save", "Save the report, or this screen as a picture", show=False),
    ]

    @property
    def doctor(self) -> BaseApp:
        """The app, typed as `BaseApp`."""
        return cast(BaseApp, self.app)

    def body(self) -> Iterable[Widget]:
        """The widgets between tabs and keys; a subclass must define it."""
        raise NotImplementedError

    def show(self, diagnosis: Diagnosis) -> None:
        """Show this diagnosis; called when the screen opens and at every change. Does nothing by default."""

    def selected(self) -> tuple[str, ...]:
        """Ids of the findings that a plan made from here is for; none means every cause."""
        return ()

    def action_fix(self) -> None:
        """Open the plan for what is selected here."""
        from gpudoctor.views.tui.repair import open_new_plan

        open_new_plan(self.doctor, self.selected())

    def go(self, name: str) -> bool:  # noqa: ARG002 - for those that have something to go to
        """Put the cursor on what has that name; False if there is no such thing."""
        return False

    def band(self) -> Band:
        """The first line: the verdict, or that the machine is being read; a subclass may have its own."""
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        state = "unknown" if reading.trouble else diagnosis.verdict if diagnosis and reading.over else "reading"
        glyph, word = marks.VERDICT[state] if state != "reading" else ("…", "READING")
        about = summary.findings_line(diagnosis, over=reading.over) if diagnosis else self.doctor.work.title
        if diagnosis and diagnosis.snapshot.target.kind == "snapshot":
            about += " · recording"
        return Band(state, f"{glyph} {word}", reading.trouble or about, self.machine())

    def machine(self) -> tuple[str, ...]:
        """The machine in words, and shorter and shorter versions; none before a diagnosis."""
        diagnosis = self.doctor.diagnosis
        parts = [one_line(word) for word in summary.machine_words(diagnosis.snapshot)] if diagnosis else []
        return tuple(" · ".join(parts[:count]) for count in range(len(parts), 0, -1))

    def status(self) -> Sequence[Content | str]:
        """The second line: its text, then texts for the right end, the longest first."""
        text, beside = summary.status_line(self.doctor.diagnosis, self.doctor.reading)
        return text, *beside

    def compose(self) -> ComposeResult:
        """The frame with the body in it."""
        yield Line(id="band")
        yield Line(id="status")
        yield Tabs(self.NAME)
        yield from self.body()
        yield Keys()

    def on_mount(self) -> None:
        """Follow the app's diagnosis, reading and message."""
        self.watch(self.app, "diagnosis", self._show_diagnosis)
        self.watch(self.app, "reading", self.reframe)
        self.watch(self.app, "message", self.reframe)

    def on_resize(self) -> None:
        """Fit the frame to the new width."""
        self.reframe()

    def _show_diagnosis(self) -> None:
        """Update the frame, and show the app's diagnosis."""
        self.reframe()
        if self.doctor.diagnosis:
            self.show(self.doctor.diagnosis)

    def reframe(self) -> None:
        """Update the first two lines; nothing happens while the screen is being removed."""
        if not self.query("#band"):
            return
        line, band = self.query_one("#band", Line), self.band()
        line.set_classes(band.look)
        line.say(band.left, *band.rights)
        message = one_line(self.doctor.message)
        self.query_one("#status", Line).say(*((Content.styled(message, "bold"),) if message else self.status()))

    async def visit(self, name: str) -> FramedScreen:
        """Open the screen of that name, from which Esc returns here."""
        await self.doctor.switch_mode(name)
        place = cast(FramedScreen, self.app.screen_stack[0])
        place.back = self.NAME
        return place

    def action_leave(self) -> None:
        """Esc: remove the message, else go back, else stop a reading and keep what was read."""
        if self.doctor.message:
            self.doctor.say("")
        elif self.back:
            name, self.back = self.back, ""
            self.doctor.switch_mode(name)
        elif not self.doctor.reading.over:
            self.doctor.stop_reading()

    def action_save(self) -> None:
        """Open the dialog that saves the report, or a picture of this screen."""
        if not self.doctor.diagnosis:
            self.doctor.say("there is nothing to save yet")
            return
        from gpudoctor.views.tui.screens.dialogs import SaveScreen

        picture = self.app.export_screenshot()
        self.app.push_screen(SaveScreen(self.doctor.diagnosis, self.doctor.work, lambda: picture), self._report_saved)

    def _report_saved(self, path: str | None) -> None:
        """Say where the report was written; None: nothing was."""
        if path:
            self.doctor.say(f"written to {path}")
