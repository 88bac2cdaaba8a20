"""A plan that is really run: shown, asked about, told while it runs, and offered back where it made things worse."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from gpudoctor.commands import asking
from gpudoctor.commands.exits import BROKEN, INTERRUPTED, SOUND

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.plan import Plan, PlanStep
    from gpudoctor.model.run import Run, Stop
    from gpudoctor.remedy.allowed import Asked, Only
    from gpudoctor.remedy.site import Site


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is run, from the options that a command has of these."""

    yes: bool = False
    only: Only = ""
    json: bool = False
    level: str = "standard"
    python: str | None = None
    rules: Sequence[Path] = ()

    @classmethod
    def of(cls, options: argparse.Namespace) -> Manner:
        """The options that are there."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in vars(options).items() if name in names})

    @property
    def asked(self) -> Asked:
        """Whether somebody is asked."""
        return "never" if self.yes else "each"

    @property
    def site(self) -> Site:
        """This machine, judged as these options say."""
        from gpudoctor import doctor

        return doctor.site(self.level, self.python, self.rules)


def run_plan(
    plan: Plan,
    options: argparse.Namespace,
    wrong: Mapping[str, str] | None = None,
    foreseen: Foreseen | None = None,
) -> int:
    """Show the plan, run what may be run of it, and say what it came to; the exit code.

    `options` may have what `Manner` has; `wrong` are the titles of the plan's causes by their ids. Raises `UsageError`
    where nobody can be asked and nobody said ``--yes``.
    """
    from gpudoctor.remedy import allowed
    from gpudoctor.views import plan as views
    from gpudoctor.views._terminal import style_of

    manner = Manner.of(options)
    plan = allowed.hindered(plan, allowed.here(plan, manner.asked, manner.only))
    chosen = allowed.runnable(plan.until_reboot)
    if chosen.chosen and not manner.yes:
        asking.require_terminal()
    if not manner.json:
        print(views.render(plan, style_of(sys.stdout), foreseen, wrong))
        sys.stdout.flush()
    left = any(step.hindrance for step in plan.chosen)
    runs = any(not step.verify for step in chosen.chosen)
    if manner.json and not runs:
        print(views.document(plan, foreseen))
    code = applied(chosen, manner) if runs else SOUND
    return BROKEN if left and code == SOUND else code


def applied(plan: Plan, manner: Manner) -> int:
    """Run the chosen steps; where that comes to no good end, offer to take it back at once."""
    from gpudoctor.remedy.apply import apply
    from gpudoctor.views.telling import telling_on

    site = manner.site
    with telling_on(sys.stderr) as tell, interruptible() as (wants, stopped):
        ask = _always if manner.yes else asking.Questions(plan, tell.introduce(plan))
        run = apply(plan, site, tell, wants, ask)
    _say(run, manner.json)
    if stopped.is_set():
        return INTERRUPTED
    if run.changed and not manner.yes and code_of(run) != SOUND and asking.agreed(f"\nTake run {run.id} back now?"):
        taken_back(run, site)
    return code_of(run)


def settle_unfinished(options: argparse.Namespace) -> None:
    """A run that was cut off is the first thing to know, and to be taken back: what it left is neither old nor new.

    Without a terminal it is taken back only with ``--yes``; raises `DoctorError` where that does not succeed, for then
    nothing may be built on what is there.
    """
    from gpudoctor.model.errors import DoctorError, UsageError
    from gpudoctor.remedy import undo
    from gpudoctor.remedy.records import history
    from gpudoctor.remedy.records.journal import Journals
    from gpudoctor.remedy.site import state_folder
    from gpudoctor.views import run as views

    journals = Journals(state_folder())
    found = history.unfinished(journals)
    if not found:
        return
    print(f"gpudoctor: {views.was_ended(found)}", file=sys.stderr)
    cut = journals.load(found.undoes) if found.undoes else found
    manner = Manner.of(options)
    site = replace(manner, python=manner.python or history.python_of(cut)).site
    try:
        undo.plan_of(cut, site)
    except UsageError:  # it had changed nothing yet, or what it changed only a person takes back
        return
    if not manner.yes and not (sys.stdin.isatty() and asking.agreed(f"Take run {cut.id} back first?")):
        return
    back = _undone(cut, site)
    if code_of(back) != SOUND:
        raise DoctorError(f"run {cut.id} was cut off and could not be taken back: {back.why or back.outcome}")
    print(f"gpudoctor: run {cut.id} was taken back, by run {back.id}", file=sys.stderr)


def _undone(run: Run, site: Site) -> Run:
    from gpudoctor.remedy.undo import undo
    from gpudoctor.views.telling import telling_on

    with telling_on(sys.stderr) as tell, interruptible() as (wants, _):
        return undo(run, site, tell, wants)


def taken_back(run: Run, site: Site, json: bool = False) -> int:
    """Undo that run, and say what it came to; the exit code."""
    from gpudoctor.remedy.undo import undo
    from gpudoctor.views.telling import telling_on

    with telling_on(sys.stderr) as tell, interruptible() as (wants, stopped):
        back = undo(run, site, tell, wants)
    _say(back, json)
    return INTERRUPTED if stopped.is_set() else code_of(back)


def _say(run: Run, json: bool) -> None:
    from gpudoctor.views import run as views
    from gpudoctor.views._terminal import style_of

    print(views.document(run) if json else f"\n{views.render(run, style_of(sys.stdout))}")
    sys.stdout.flush()


def _always(_: PlanStep) -> asking.Answer:
    return "run"


def code_of(run: Run) -> int:
    """0 where nothing is left to be cured by it, 1 where something is."""
    return SOUND if run.outcome in ("fixed", "done", "undone") else BROKEN


@contextmanager
def interruptible() -> Iterator[tuple[Callable[[], Stop], threading.Event]]:
    """What the user wants of a run: the first Ctrl-C ends the step that runs, and sets the event; the next one us."""
    from gpudoctor.commands.stopping import stopping

    stopped = threading.Event()

    def wants() -> Stop:
        return "now" if stopped.is_set() else "go on"

    with stopping(stopped):
        yield wants, stopped
