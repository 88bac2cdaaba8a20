"""The plan that is open and its run: one for the whole application, whichever screen is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoctor.model.errors import DoctorError
from gpudoctor.model.plan import Plan
from gpudoctor.model.run import Run, Stop
from gpudoctor.views.tui import background, places

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp

Work = Callable[[Callable[[Run], None], Callable[[], Stop]], Run]


def planned(app: DoctorApp, only: tuple[str, ...] = ()) -> None:
    """Open the plan for the findings of those ids, or for every cause; a run that is under way is shown instead."""
    repair = app.repair = app.repair or Repair()
    if not repair.busy:
        make = app.work.plan
        plan = make(app.diagnosis, only) if make and app.diagnosis else None
        repair.put(plan, only)
    repair.open(app)


def handed_over(app: DoctorApp, plan: Plan) -> None:
    """Open a plan that was made elsewhere; never while another one runs."""
    repair = app.repair = app.repair or Repair()
    repair.put(plan, given=True)
    repair.open(app)


class Repair:
    """What is planned, what runs, and what the user wants of it. The run is told by a thread, and only read here."""

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
        self.came_from = places.DOORS[0].name
        self.version = 0
        """Grows with every plan that is opened."""
        self._step = ""
        self._since = 0.0

    def put(self, plan: Plan | None, only: tuple[str, ...] = (), given: bool = False) -> None:
        """Have this plan open, and forget the former run."""
        self.plan, self.only, self.given = plan, only, given
        self.run, self.trouble, self.touched, self.wanted = None, "", False, "go on"
        self.version += 1

    def open(self, app: DoctorApp) -> None:
        """Go to its screen; esc there leads back here."""
        if app.current_mode != places.FIX.name:
            self.came_from = app.current_mode
        app.switch_mode(places.FIX.name)

    def choose(self, plan: Plan) -> None:
        """The user's change of the plan."""
        self.plan, self.touched = plan, True

    def start(self, app: DoctorApp, work: Work) -> None:
        """Have it run in a thread that nobody waits for; the screen looks at `run` when it draws."""
        self.run, self.trouble, self.wanted, self.busy = None, "", "go on", True

        def told(run: Run) -> None:
            self.run = run

        background.start(app, "run", lambda: work(told, lambda: self.wanted), lambda answer: self._over(app, answer))

    def _over(self, app: DoctorApp, answer: Run | BaseException) -> None:
        self.busy = False
        if isinstance(answer, BaseException):
            words = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.trouble = " ".join(words.split())
            self.run = self.run.ended() if self.run else None
        else:
            self.run = answer.ended()
        if self.leaving:
            app.exit()
        elif self.run and self.run.changed and not app.work.recorded:
            app.action_read()

    def stop(self, wanted: Stop) -> None:
        """What the user wants now; more than that is not taken back."""
        if self.wanted != "now":
            self.wanted = wanted

    def seconds(self) -> float:
        """How long the step that runs has been running, as far as was seen here."""
        step = self.run.current if self.run else None
        name = step.id if step else ""
        if name != self._step:
            self._step, self._since = name, time.monotonic()
        return time.monotonic() - self._since

    def ask_to_leave(self, app: DoctorApp) -> None:
        """Ask before the program ends under a step that runs: it is ended first, and the record says so."""
        from gpudoctor.views.tui.plan_words import leaving
        from gpudoctor.views.tui.screens.confirm import Sure

        if isinstance(app.screen, Sure):
            return

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            if not self.busy:
                app.exit()
            self.leaving = True
            self.stop("now")
            app.say("ending the step; the program ends when its record is written")

        app.push_screen(Sure("A step is running", leaving(self.run), "end the step, and quit"), answered)
