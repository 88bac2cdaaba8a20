"""What every screen has: the frame, the diagnosis that the app holds, and a line for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views.tui import counts, machine, marks
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line, Tabs

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.app import DoctorApp


class Place(Screen[None]):
    """A screen with the frame around it. A subclass gives `body` and, to follow what is found, `show`."""

    NAME: ClassVar[str] = ""
    SCOPED_CSS = False
    """The classes ``-narrow`` and ``-wide``, which its CSS goes by, are the screen's own."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - an instance variable of Textual's
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back", show=False)]

    @property
    def doctor(self) -> DoctorApp:
        """The app, by its own type."""
        return cast("DoctorApp", self.app)

    def body(self) -> Iterable[Widget]:
        """The widgets between tabs and keys."""
        raise NotImplementedError

    def show(self, diagnosis: Diagnosis) -> None:
        """Show what is known now; called once when the screen opens and at every change."""

    def compose(self) -> ComposeResult:
        """The frame, and the body in it."""
        yield Line(id="band")
        yield Line(id="status")
        yield Tabs(self.NAME)
        yield from self.body()
        yield Keys()

    def on_mount(self) -> None:
        """Follow the app."""
        self.watch(self.app, "diagnosis", self._diagnosed)
        self.watch(self.app, "reading", self._frame)
        self.watch(self.app, "message", self._frame)

    def on_resize(self) -> None:
        """The frame says less where there is less room."""
        self._frame()

    def _diagnosed(self) -> None:
        self._frame()
        if self.doctor.diagnosis:
            self.show(self.doctor.diagnosis)

    def _frame(self) -> None:
        band, status = self.query_one("#band", Line), self.query_one("#status", Line)
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        state = "unknown" if reading.trouble else diagnosis.verdict if diagnosis and reading.over else "reading"
        band.set_classes(state)
        glyph, word = marks.VERDICT[state] if state != "reading" else ("…", "READING")
        about = counts.summary(diagnosis, over=reading.over) if diagnosis else self.doctor.work.title
        if diagnosis and diagnosis.snapshot.target.kind == "snapshot":
            about += " · recording"
        named = Content(" · ".join(machine.words(diagnosis.snapshot)) if diagnosis else "")
        band.say(Content.assemble((f"{glyph} {word}", "bold"), f"  {reading.trouble or about}"), named)
        if self.doctor.message:
            status.say(Content.styled(self.doctor.message, "bold"))
        else:
            status.say(*counts.status(diagnosis, reading))

    def action_leave(self) -> None:
        """Esc: take the message away, else stop a reading and keep what was read."""
        if self.doctor.message:
            self.doctor.say("")
        elif not self.doctor.reading.over:
            self.doctor.stop_reading()
