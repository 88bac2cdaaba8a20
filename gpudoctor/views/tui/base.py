"""The application as its screens know it: the diagnosis that is shown, what can be done, the plan that is open.

No screen is imported here: the application in `gpudoctor.views.tui.app` is this with its screens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App
from textual.reactive import reactive

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, SCREEN_ENTRIES
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

    def say(self, message: str) -> None:
        """Show a message in the second line, until the next key or another message."""
        self.message = one_line(message)

    def action_read(self) -> None:
        """Start a new reading in a thread; an older one is ignored from then on."""
        self._reading_number += 1
        self.reading = Reading()
        call = partial(call_in_app, self)
        number = self._reading_number

        def event(what: Event) -> None:
            """Pass an event of the reading to the interface."""
            call(lambda: self._receive_event(number, what))

        def partly(diagnosis: Diagnosis) -> None:
            """Pass a partial diagnosis to the interface; raises InterruptedError to end an outdated reading."""
            if number != self._reading_number:
                raise InterruptedError("nobody hears this reading any more")
            call(lambda: self._receive_partial(number, diagnosis))

        run_in_thread(
            self,
            "reading",
            lambda: self.work.diagnose(event, partly),
            lambda answer: self._finish_reading(number, answer),
        )

    def stop_reading(self) -> None:
        """Keep what was read so far, and ignore the rest."""
        self._reading_number += 1
        self.reading = self.reading.ended("" if self.diagnosis else "stopped before anything was read; r reads again")
        self.say("stopped: what was not read by then is not judged; r reads again")

    def _receive_event(self, number: int, event: Event) -> None:
        """Update the reading's progress, if it is the current one."""
        if number == self._reading_number:
            self.reading = self.reading.after(event)

    def _receive_partial(self, number: int, diagnosis: Diagnosis) -> None:
        """Show a partial diagnosis, if it is of the current reading."""
        if number == self._reading_number and not self.reading.over:
            self.diagnosis = diagnosis

    def _finish_reading(self, number: int, answer: Diagnosis | BaseException) -> None:
        """Show the complete diagnosis, or why there is none."""
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
        """Open this plan; a run that changed something becomes `last`, which can be undone."""
        if self.run and self.run.changed and not self.run.undoes:
            self.last = self.run
        self.plan, self.only, self.given = plan, only, given
        self.run, self.trouble, self.touched, self.wanted = None, "", False, "go on"
        self.version += 1

    def open(self, app: BaseApp) -> None:
        """Switch to the fix screen, and remember where from."""
        if app.current_mode != FIX_SCREEN.name:
            self.came_from = app.current_mode
        app.switch_mode(FIX_SCREEN.name)

    def choose(self, plan: Plan) -> None:
        """Take the plan as the user changed it."""
        self.plan, self.touched = plan, True

    def start(self, app: BaseApp, work: Steps) -> None:
        """Run or undo a plan in a thread (`work`), whose reports replace `run`."""
        self.run, self.last, self.trouble, self.wanted, self.busy = None, None, "", "go on", True
        self.begun += 1

        def report(run: Run) -> None:
            """Store the run's current state."""
            self.run = run

        run_in_thread(app, "run", lambda: work(report, lambda: self.wanted), lambda answer: self._finish(app, answer))

    def _finish(self, app: BaseApp, answer: Run | BaseException) -> None:
        """Store the end of the run, then quit or read the machine again if it was changed."""
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
        """Set what the user wants of the run; ``now`` cannot be taken back."""
        if self.wanted != "now":
            self.wanted = wanted

    def seconds(self) -> float:
        """Seconds that the current step has been running, as far as seen here."""
        step = self.run.current if self.run else None
        name = step.id if step else ""
        if name != self._step:
            self._step, self._since = name, time.monotonic()
        return time.monotonic() - self._since
