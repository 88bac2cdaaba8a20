"""What every screen has: the frame, the diagnosis that the app holds, and a line for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.frame import NARROW, Keys, Line, Tabs
from gpudoctor.views.tui.words import counts, machine

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.app import DoctorApp


@dataclass(frozen=True, slots=True)
class Band:
    """The first line: its look (a class of the style sheet), glyph and word, what of, and whom at the right."""

    look: str
    word: str
    about: str = ""
    rights: Sequence[str] = ()
    """The same, shorter and shorter: the first that there is room for is shown."""

    @property
    def left(self) -> Content:
        """Word and rest; what is said is never markup."""
        return Content.assemble((self.word, "bold"), f"  {one_line(self.about)}")


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

    def band(self) -> Band:
        """The first line: the verdict, unless this screen has one of its own."""
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        state = "unknown" if reading.trouble else diagnosis.verdict if diagnosis and reading.over else "reading"
        glyph, word = marks.VERDICT[state] if state != "reading" else ("…", "READING")
        about = counts.summary(diagnosis, over=reading.over) if diagnosis else self.doctor.work.title
        if diagnosis and diagnosis.snapshot.target.kind == "snapshot":
            about += " · recording"
        return Band(state, f"{glyph} {word}", reading.trouble or about, self.machine())

    def machine(self) -> tuple[str, ...]:
        """The machine in words, and shorter and shorter."""
        diagnosis = self.doctor.diagnosis
        named = [one_line(word) for word in machine.words(diagnosis.snapshot)] if diagnosis else []
        return tuple(" · ".join(named[:count]) for count in range(len(named), 0, -1))

    def status(self) -> Sequence[Content | str]:
        """The second line, from the left: how far the reading is, then the counts."""
        said, beside = counts.status(self.doctor.diagnosis, self.doctor.reading)
        return said, *beside

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
        self.watch(self.app, "reading", self.reframe)
        self.watch(self.app, "message", self.reframe)

    def on_resize(self) -> None:
        """The frame says less where there is less room."""
        self.reframe()

    def _diagnosed(self) -> None:
        self.reframe()
        if self.doctor.diagnosis:
            self.show(self.doctor.diagnosis)

    def reframe(self) -> None:
        """Show the band and the second line as they are now; what is told while the screen goes finds neither."""
        if not self.query("#band"):
            return
        line, band = self.query_one("#band", Line), self.band()
        line.set_classes(band.look)
        line.say(band.left, *band.rights)
        message = one_line(self.doctor.message)
        self.query_one("#status", Line).say(*((Content.styled(message, "bold"),) if message else self.status()))

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
