"""What every screen has: the application as it knows it, the plan that is open, and the frame around the screen.

No single screen is imported here: the application in `gpudoctor.views.tui.app` is this with its screens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import AppBlur
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, NARROW, SCREEN_ENTRIES, Keys, Line, Tabs
from gpudoctor.views.tui.words import summary
from gpudoctor.views.tui.work import Reading, Work, call_in_app, error_text, run_in_thread

if TYPE_CHECKING:
    from gpudoctor.core.plan import Plan
    from gpudoctor.core.run import Run, Stop
    from gpudoctor.core.snapshot import Event


class BaseApp(App[None]):
    """The application as seen by its screens, which follow `diagnosis`, `reading` and `message`."""

    diagnosis: reactive[Diagnosis | None] = reactive(None)
    reading: reactive[Reading] = reactive(Reading)
    message: reactive[str] = reactive("")

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.repair: Repair | None = None
        """The plan that is open, and its run, once there was one."""
        self._reading_number = 0
        """Which reading is the current one: what an older one still says is not heard."""

    def on_app_blur(self, event: AppBlur) -> None:
        """Ignore the loss of focus in a browser: Textual's driver begins with one, sometimes after the page's focus."""
        if self.is_web:
            event.prevent_default()

    def say(self, message: str, **values: object) -> None:
        """Show a message, translated and its holes filled, in the second line, until the next key or message."""
        self.message = one_line(say(message, **values))

    def action_read(self) -> None:
        """Start a new reading of the machine in a thread; what an older one still reports is ignored from then on.

        Partial diagnoses and the final one become `diagnosis`, its progress or failure `reading`.
        """
        self._reading_number += 1
        self.reading = Reading()
        number = self._reading_number

        def in_app(change: Callable[[], None]) -> None:
            """Make the change in the interface's thread, if this reading is still the current one by then."""
            call_in_app(self, lambda: change() if number == self._reading_number else None)

        def event(what: Event) -> None:
            """Update `reading` with an event of this reading, from any thread."""
            in_app(lambda: setattr(self, "reading", self.reading.after(what)))

        def partly(diagnosis: Diagnosis) -> None:
            """Show a partial diagnosis while the reading goes on; raises InterruptedError if it is outdated."""
            if number != self._reading_number:
                raise InterruptedError("nobody hears this reading any more")
            in_app(lambda: None if self.reading.over else setattr(self, "diagnosis", diagnosis))

        run_in_thread(
            self,
            "reading",
            lambda: self.work.diagnose(event, partly),
            lambda answer: self._finish_reading(number, answer),
        )

    def stop_reading(self) -> None:
        """End the reading for the interface: what was read so far stays, the rest is ignored; a message says so."""
        self._reading_number += 1
        self.reading = self.reading.ended(
            "" if self.diagnosis else say("stopped before anything was read; r reads again")
        )
        self.say("stopped: what was not read by then is not judged; r reads again")

    def _finish_reading(self, number: int, answer: Diagnosis | BaseException) -> None:
        """End the reading, and show its diagnosis or why there is none; ignored if it is not the current reading."""
        if number != self._reading_number:
            return
        if isinstance(answer, BaseException):
            self.reading = self.reading.ended(error_text(answer))
            return
        self.reading = self.reading.ended()
        self.diagnosis = answer


# ---- The plan that is open and its run ----
# One for the whole application, whichever screen is shown.

Steps = Callable[[Callable[["Run"], None], Callable[[], "Stop"]], "Run"]
"""Runs the steps of a plan, or takes them back; reports to its first argument and asks its second what is wanted."""


class Repair:
    """The open plan, its run, and what the user wants of it (`wanted`); a thread replaces `run` while it goes on."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.only: tuple[str, ...] = ()
        self.run: Run | None = None
        self.trouble = ""
        """Why a run did not begin, or how it died."""
        self.wanted: Stop = "go on"
        self.busy = False
        self.leaving = False
        """Whether the program ends as soon as the run is over."""
        self.touched = False
        """Whether the user changed the plan: then a new diagnosis does not replace it."""
        self.given = False
        """Whether the plan was handed over ready, not made from the diagnosis."""
        self.came_from = SCREEN_ENTRIES[0].name
        self.version = 0
        """Grows with every plan that is opened."""
        self.begun = 0
        """Grows with every run that begins."""
        self.last: Run | None = None
        """The run before the plan that is open, where it changed something or was ended from outside: it can still be
        taken back."""
        self._step = ""
        self._since = 0.0

    def put(self, plan: Plan | None, only: tuple[str, ...] = (), given: bool = False) -> None:
        """Open this plan (or none), without a run; a former run that changed something and was no undo becomes `last`,
        to be undone.
        """
        if self.run and self.run.changed and not self.run.undoes:
            self.last = self.run
        self.plan, self.only, self.given = plan, only, given
        self.run, self.trouble, self.touched, self.wanted = None, "", False, "go on"
        self.version += 1

    def open(self, app: BaseApp) -> None:
        """Switch the app to the fix screen, and remember the screen that was open."""
        if app.current_mode != FIX_SCREEN.name:
            self.came_from = app.current_mode
        app.switch_mode(FIX_SCREEN.name)

    def start(self, app: BaseApp, work: Steps) -> None:
        """Call `work`, which runs or undoes a plan, in a thread; its reports replace `run`, `last` is forgotten."""
        self.run, self.last, self.trouble, self.wanted, self.busy = None, None, "", "go on", True
        self.begun += 1
        self._step, self._since = "", time.monotonic()

        def report(run: Run) -> None:
            """Store the run's current state as `run`."""
            self.run = run

        run_in_thread(app, "run", lambda: work(report, lambda: self.wanted), lambda answer: self._finish(app, answer))

    def _finish(self, app: BaseApp, answer: Run | BaseException) -> None:
        """Store the end of the run (or its error), then quit if wanted; else read the machine again if the run changed
        it (not a recording).
        """
        self.busy = False
        if isinstance(answer, BaseException):
            self.trouble = error_text(answer)
            self.run = self.run.ended() if self.run else None
        else:
            self.run = answer.ended()
        if self.leaving:
            app.exit()
        elif self.run and self.run.changed and not app.work.recorded:
            app.action_read()

    def stop(self, wanted: Stop) -> None:
        """Set when the run is to stop (``after this step``, ``now``); ``now`` cannot be taken back."""
        if self.wanted != "now":
            self.wanted = wanted

    def seconds(self) -> float:
        """Seconds since the run's current step was first seen here; before the first step since the run was started."""
        step = self.run.current if self.run else None
        name = step.id if step else ""
        if name != self._step:
            self._step, self._since = name, time.monotonic()
        return time.monotonic() - self._since


# ---- The frame: two lines, tabs, the keys that work on every screen, a line for messages ----


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
        """Word in bold and subject, never read as markup."""
        return Content.assemble((marks.translated(self.word), "bold"), f"  {one_line(self.about)}")


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
        """The widgets between tabs and keys; raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError

    def show(self, diagnosis: Diagnosis) -> None:
        """Show this diagnosis; called when the screen opens and whenever there is another. Does nothing by default."""

    def selected(self) -> tuple[str, ...]:
        """Ids of the findings that a plan made from this screen is for; empty (the default): every cause."""
        return ()

    def action_fix(self) -> None:
        """Open the plan for what is selected on this screen, on the fix screen."""
        from gpudoctor.views.tui.repair import open_new_plan

        open_new_plan(self.doctor, self.selected())

    def go(self, name: str) -> bool:  # noqa: ARG002 - for those that have something to go to
        """Put the cursor on what has that name; False if there is no such thing, and always by default."""
        return False

    def band(self) -> Band:
        """The first line: the verdict, or that the machine is being read or cannot be; a subclass may have its own."""
        reading, diagnosis = self.doctor.reading, self.doctor.diagnosis
        state = "unknown" if reading.trouble else diagnosis.verdict if diagnosis and reading.over else "reading"
        glyph, word = marks.VERDICT[state] if state != "reading" else ("…", "READING")
        about = summary.findings_line(diagnosis, over=reading.over) if diagnosis else say(self.doctor.work.title)
        if diagnosis and diagnosis.snapshot.target.kind == "snapshot":
            about += say(" · recording")
        return Band(state, f"{glyph} {word}", reading.trouble or about, self.machine())

    def machine(self) -> tuple[str, ...]:
        """Descriptions of the machine, each shorter than the one before; empty before a diagnosis."""
        diagnosis = self.doctor.diagnosis
        parts = [one_line(word) for word in summary.machine_words(diagnosis.snapshot)] if diagnosis else []
        return tuple(" · ".join(parts[:count]) for count in range(len(parts), 0, -1))

    def status(self) -> Sequence[Content | str]:
        """Texts of the screen's second line: the left one, then versions of the right one, the longest first."""
        text, beside = summary.status_line(self.doctor.diagnosis, self.doctor.reading)
        return text, *beside

    def compose(self) -> ComposeResult:
        """The frame (two lines, tabs, keys) with `body` in it."""
        yield Line(id="band")
        yield Line(id="status")
        yield Tabs(self.NAME)
        yield from self.body()
        yield Keys()

    def on_mount(self) -> None:
        """Follow the app's diagnosis, reading and message. Textual calls this after the handler of a subclass."""
        self.watch(self.app, "diagnosis", self._show_diagnosis)
        self.watch(self.app, "reading", self.reframe)
        self.watch(self.app, "message", self.reframe)

    def on_resize(self) -> None:
        """Update the first two lines for the new width."""
        self.reframe()

    def _show_diagnosis(self) -> None:
        """Update the first two lines, and show the app's diagnosis, if there is one."""
        self.reframe()
        if self.doctor.diagnosis:
            self.show(self.doctor.diagnosis)

    def reframe(self) -> None:
        """Update the first two lines: band, and message or else status; nothing while the screen is being removed."""
        if not self.query("#band"):
            return
        line, band = self.query_one("#band", Line), self.band()
        line.set_classes(band.look)
        line.say(band.left, *band.rights)
        message = one_line(self.doctor.message)
        self.query_one("#status", Line).say(*((Content.styled(message, "bold"),) if message else self.status()))

    async def visit(self, name: str) -> FramedScreen:
        """Open the screen of that name and return it; Esc on it comes back here."""
        await self.doctor.switch_mode(name)
        place = cast(FramedScreen, self.app.screen_stack[0])
        place.back = self.NAME
        return place

    def action_leave(self) -> None:
        """Esc: remove the message, else go back to where the screen was opened from, else stop a reading."""
        if self.doctor.message:
            self.doctor.say("")
        elif self.back:
            name, self.back = self.back, ""
            self.doctor.switch_mode(name)
        elif not self.doctor.reading.over:
            self.doctor.stop_reading()

    def action_save(self) -> None:
        """Open the dialog that saves the report or a picture of this screen; only a message before a diagnosis."""
        if not self.doctor.diagnosis:
            self.doctor.say("there is nothing to save yet")
            return
        from gpudoctor.views.tui.screens.dialogs import SaveScreen

        picture = self.app.export_screenshot()
        self.app.push_screen(SaveScreen(self.doctor.diagnosis, self.doctor.work, lambda: picture), self._report_saved)

    def _report_saved(self, path: str | None) -> None:
        """Show a message with the path that was written; nothing for None (nothing was)."""
        if path:
            self.doctor.say("written to {path}", path=path)
