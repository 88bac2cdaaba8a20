"""The plan that is open and its run: one for the whole application, whichever screen is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudoctor.model.errors import DoctorError
from gpudoctor.model.plan import Plan
from gpudoctor.model.run import Run, Stop
from gpudoctor.views.tui import background, places
from gpudoctor.views.tui.words import plan as plan_words

if TYPE_CHECKING:
    from gpudoctor.views.tui.app import DoctorApp
    from gpudoctor.views.tui.widgets.prose import Block

Work = Callable[[Callable[[Run], None], Callable[[], Stop]], Run]


def of(app: DoctorApp) -> Repair:
    """The application's; at first it knows the run that something ended from outside, where there was one."""
    if app.repair is None:
        app.repair = Repair()
        app.repair.last = app.work.unfinished() if app.work.unfinished else None
    return app.repair


def planned(app: DoctorApp, only: tuple[str, ...] = ()) -> None:
    """Open the plan for the findings of those ids, or for every cause; a run that is under way is shown instead."""
    repair = of(app)
    if not repair.busy:
        make = app.work.plan
        try:
            plan = make(app.diagnosis, only) if make and app.diagnosis else None
        except DoctorError as error:
            app.say(str(error))
            return
        repair.put(plan, only)
    repair.open(app)


def handed_over(app: DoctorApp, plan: Plan) -> None:
    """Open a plan that was made elsewhere; never while another one runs."""
    repair = of(app)
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
        self.begun = 0
        """Grows with every run that begins."""
        self.last: Run | None = None
        """The run before the plan that is open, where it changed something or was ended from outside: it can still be
        taken back."""
        self._step = ""
        self._since = 0.0

    def put(self, plan: Plan | None, only: tuple[str, ...] = (), given: bool = False) -> None:
        """Have this plan open, and forget the former run."""
        if self.run and self.run.changed and not self.run.undoes:
            self.last = self.run
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
        self.run, self.last, self.trouble, self.wanted, self.busy = None, None, "", "go on", True
        self.begun += 1

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

    def ask_to_run(self, app: DoctorApp, plan: Plan) -> None:
        """Ask, then run the plan. What needs root or a reboot or interrupts jobs asks for the host's name."""
        apply, recorded = app.work.apply, app.work.recorded
        assert apply, "there is something that runs plans"

        def answered(yes: bool | None) -> None:
            if yes:
                self.start(app, lambda told, wanted: apply(plan, told, wanted))
            else:
                app.say("nothing was run")

        word = (plan.machine or "yes") if plan.grave and not recorded else ""
        title = "Sure? (a recording)" if recorded else "Sure?"
        _ask(app, title, plan_words.sure(plan, recorded), "run it", answered, word)

    def ask_to_undo(self, app: DoctorApp, run: Run) -> None:
        """Ask, then take the run back."""
        undo = app.work.undo
        assert undo, "there is something that takes runs back"

        def answered(yes: bool | None) -> None:
            if yes:
                self.start(app, lambda told, wanted: undo(run, told, wanted))

        _ask(app, "Undo?", plan_words.taking_back(run), "take it back", answered)

    def ask_to_end(self, app: DoctorApp) -> None:
        """Ask, then end the command that runs."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.stop("now")

        _ask(app, "End it now?", plan_words.leaving(self.run), "end the step", answered)

    def ask_to_leave(self, app: DoctorApp) -> None:
        """Ask before the program ends under a step that runs: it is ended first, and the record says so.

        Who asks a second time leaves at once: the record on disk names the step that runs.
        """
        if self.leaving:
            app.exit()
            return

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            if not self.busy:
                app.exit()
            self.leaving = True
            self.stop("now")
            app.say("ending the step; the program ends when its record is written")

        _ask(app, "A step is running", plan_words.leaving(self.run), "end the step, and quit", answered)


def _ask(
    app: DoctorApp,
    title: str,
    blocks: Sequence[Block],
    yes: str,
    answered: Callable[[bool | None], None],
    word: str = "",
) -> None:
    """Put the question, unless one is open already."""
    from gpudoctor.views.tui.screens.confirm import Sure

    if not isinstance(app.screen, Sure):
        app.push_screen(Sure(title, blocks, yes, word), answered)
