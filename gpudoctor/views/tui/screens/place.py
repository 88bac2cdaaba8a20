"""What every screen has: the frame, the diagnosis that the app holds, and a line for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views._terminal import one_line
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
    back: str = ""
    """The screen that Esc returns to, where one came from there to look something up."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back; stop a reading", show=False),
        Binding("f", "fix", "fix"),
        Binding("ctrl+s", "save", "Save the report, or this screen as a picture", show=False),
    ]

    @property
    def doctor(self) -> DoctorApp:
        """The app, by its own type."""
        return cast("DoctorApp", self.app)

    def body(self) -> Iterable[Widget]:
        """The widgets between tabs and keys."""
        raise NotImplementedError

    def show(self, diagnosis: Diagnosis) -> None:
        """Show what is known now; called once when the screen opens and at every change."""

    def selected(self) -> tuple[str, ...]:
        """Ids of the findings that a fix plan made from here is for; none is every cause."""
        return ()

    def action_fix(self) -> None:
        """The plan that cures what is selected here."""
        from gpudoctor.views.tui.repair import planned

        planned(self.doctor, self.selected())

    def go(self, name: str) -> bool:  # noqa: ARG002 - for those that have something to go to
        """Put the cursor on what is called that; whether there is such a thing."""
        return False

    def status(self) -> tuple[Content, Content] | None:
        """What the second line says on this screen once all is read; the counts where it is None."""
        return None

    def band(self) -> tuple[str, Content, tuple[str, ...]] | None:
        """Class, words and, the longest first, the end of the first line on this screen; the verdict where it is None.

        The machine's name ends it where there is nothing else to.
        """
        return None

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
        glyph, word = marks.VERDICT[state] if state != "reading" else ("…", "READING")
        about = counts.summary(diagnosis, over=reading.over) if diagnosis else self.doctor.work.title
        named = [one_line(word) for word in machine.words(diagnosis.snapshot)] if diagnosis else []
        shorter = tuple(" · ".join(named[:count]) for count in range(len(named), 0, -1))
        verdict = Content.assemble((f"{glyph} {word}", "bold"), f"  {one_line(reading.trouble or about)}")
        look, said, ends = self.band() or (state, verdict, ())
        band.set_classes(look)
        band.say(said, *(ends or shorter))
        if self.doctor.message:
            status.say(Content.styled(one_line(self.doctor.message), "bold"))
        else:
            said, beside = counts.status(diagnosis, reading)
            own = self.status() if reading.over else None
            status.say(*(own or (said, *beside)))

    async def visit(self, name: str) -> Place:
        """Open the screen of that name to look something up; Esc comes back here."""
        await self.doctor.switch_mode(name)
        place = cast("Place", self.app.screen_stack[0])
        place.back = self.NAME
        return place

    def action_leave(self) -> None:
        """Esc: take the message away, else go back, else stop a reading and keep what was read."""
        if self.doctor.message:
            self.doctor.say("")
        elif self.back:
            name, self.back = self.back, ""
            self.doctor.switch_mode(name)
        elif not self.doctor.reading.over:
            self.doctor.stop_reading()

    def action_save(self) -> None:
        """The report in one of its forms, or this screen as a picture, to a file."""
        if not self.doctor.diagnosis:
            self.doctor.say("there is nothing to save yet")
            return
        from gpudoctor.views.tui.screens.save import SaveScreen

        picture = self.app.export_screenshot()
        self.app.push_screen(SaveScreen(self.doctor.diagnosis, lambda: picture), self._saved)

    def _saved(self, path: str | None) -> None:
        if path:
            self.doctor.say(f"written to {path}")
