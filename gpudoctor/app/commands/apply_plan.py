"""Runs a plan at the terminal: shows it, asks before steps, prints progress, and offers to undo it if it fails."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.app.output import BROKEN, INTERRUPTED, SOUND, put_message, stopping
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.language import say
from gpudoctor.core.plan import Foreseen, Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.fixes import records, undo
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.permissions import (
    Asked,
    Only,
    RunContext,
    journals_folder,
    run_mode_of_process,
    runnable,
    with_hindrances,
)
from gpudoctor.fixes.records import Journals
from gpudoctor.fixes.steps.engine import Answer, Ask, Wants
from gpudoctor.views import fix_run as run_view
from gpudoctor.views import plan as plan_view
from gpudoctor.views._terminal import one_line, style_of
from gpudoctor.views.fix_run import printing_run


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan is run, from the command's options; those that a command lacks have defaults."""

    yes: bool = False
    only: Only = ""
    json: bool = False
    level: str = "standard"
    python: str | None = None
    rules: Sequence[Path] = ()

    @classmethod
    def of(cls, options: argparse.Namespace) -> RunOptions:
        """The `RunOptions` in a command's options; those that the command lacks have their defaults."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in vars(options).items() if name in names})

    @property
    def asked(self) -> Asked:
        """When the user is asked: ``never`` with --yes, else ``each``, before every step."""
        return "never" if self.yes else "each"

    @property
    def context(self) -> RunContext:
        """Where the plan runs: this machine, judged again with these options; made anew at each access."""
        return pipeline.run_context(self.level, self.python, self.rules)


def run_plan(
    plan: Plan,
    options: argparse.Namespace,
    wrong: Mapping[str, str] | None = None,
    foreseen: Foreseen | None = None,
) -> int:
    """Show the plan, run what can be run of it, and print the result; the exit code.

    0 if all succeeded, 1 if a step failed or is left, 130 after Ctrl-C. `options` may have what `RunOptions` has;
    `wrong` maps ids of the plan's causes to titles. Raises `UsageError` where nobody can be asked and ``--yes`` is not
    given.
    """
    settings = RunOptions.of(options)
    plan = with_hindrances(plan, run_mode_of_process(plan, settings.asked, settings.only))
    chosen = runnable(plan.until_reboot)
    if chosen.chosen and not settings.yes:
        require_terminal()
    if not settings.json:
        print(plan_view.render(plan, style_of(sys.stdout), foreseen, wrong))
        sys.stdout.flush()
    left = any(step.hindrance for step in plan.chosen)
    runs = any(not step.verify for step in chosen.chosen)
    if settings.json and not runs:
        print(plan_view.document(plan, foreseen))
    code = applied(chosen, settings) if runs else SOUND
    return BROKEN if left and code == SOUND else code


def applied(plan: Plan, settings: RunOptions) -> int:
    """Run the chosen steps and print the run; if that fails, offer to undo them. 0 or 1, 130 after Ctrl-C."""
    context = settings.context
    with printing_run(sys.stderr) as tell, interruptible() as (wants, stopped):
        ask: Ask = (lambda _: "run") if settings.yes else Questions(plan, tell.introduce(plan))
        run = apply(plan, context, tell, wants, ask)
    _print_run(run, settings.json)
    if stopped.is_set():
        return INTERRUPTED
    if (
        run.changed
        and not settings.yes
        and code_of(run) != SOUND
        and agreed(f"\n{say('Take run {id} back now?', id=run.id)}")
    ):
        undo_run(run, context)
    return code_of(run)


def settle_unfinished(options: argparse.Namespace) -> None:
    """Report a run that was cut off, and offer to undo it before anything else is changed.

    Without a terminal it is undone only with ``--yes``; declined, it stays. Raises `DoctorError` where undoing does not
    succeed, for then nothing may be built on what is there.
    """
    journals = Journals(journals_folder())
    unfinished = records.unfinished(journals)
    if not unfinished:
        return
    put_message(run_view.interrupted_text(unfinished))
    interrupted = journals.load(unfinished.undoes) if unfinished.undoes else unfinished
    settings = RunOptions.of(options)
    context = replace(settings, python=settings.python or records.python_of(interrupted)).context
    try:
        undo.plan_of(interrupted, context)
    except UsageError:  # it had changed nothing yet, or what it changed only a person takes back
        return
    if not settings.yes and not (sys.stdin.isatty() and agreed(say("Take run {id} back first?", id=interrupted.id))):
        return
    back, _ = _run_undo(interrupted, context)
    if code_of(back) != SOUND:
        raise DoctorError(
            say(
                "run {id} was cut off and could not be taken back: {why}",
                id=interrupted.id,
                why=back.why or back.outcome,
            )
        )
    put_message(say("run {id} was taken back, by run {other}", id=interrupted.id, other=back.id))


def undo_run(run: Run, context: RunContext, json: bool = False) -> int:
    """Undo that run and print the result; 0 if all was undone, else 1, 130 after Ctrl-C."""
    back, stopped = _run_undo(run, context)
    _print_run(back, json)
    return INTERRUPTED if stopped else code_of(back)


def _run_undo(run: Run, context: RunContext) -> tuple[Run, bool]:
    """Undo `run`: the run of the undoing, and whether the user stopped it with Ctrl-C."""
    with printing_run(sys.stderr) as tell, interruptible() as (wants, stopped):
        return undo.undo(run, context, tell, wants), stopped.is_set()


def _print_run(run: Run, json: bool) -> None:
    """Print the run to standard output, as JSON or text."""
    print(run_view.document(run) if json else f"\n{run_view.render(run, style_of(sys.stdout))}")
    sys.stdout.flush()


def code_of(run: Run) -> int:
    """Exit code of a run: 0 if it succeeded, 1 if something is left to fix."""
    return SOUND if run.outcome in ("fixed", "done", "undone") else BROKEN


@contextmanager
def interruptible() -> Iterator[tuple[Wants, threading.Event]]:
    """Context for running a plan: a function that says whether to go on, and an event set by the first Ctrl-C."""
    stopped = threading.Event()
    with stopping(stopped):
        yield lambda: "now" if stopped.is_set() else "go on", stopped


# ---- The questions on a terminal ----
# Nothing but a plain yes runs a step, and a reboot wants the host's name.

_STEP = "Run it? y yes, n leave it out, a all the rest, q stop [n] "
_BY_HAND = "Is it done? y yes, n leave it out, q stop [n] "


def require_terminal() -> None:
    """Raise `UsageError` if there is no terminal to ask questions on."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            say("there is no terminal to ask on: --dry-run shows the plan, --yes runs it without a question")
        )


def put(question: str) -> str:
    """Ask on standard error; the answer in lower case, ``q`` at end of input or after Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a handler that returns has the read go on
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    finally:
        signal.signal(signal.SIGINT, before)
    if not answer.endswith("\n"):
        sys.stderr.write("\n")
        return "q"
    return answer.strip().lower()


def agreed(question: str) -> bool:
    """Ask on standard error; True if the answer is y or yes, False for any other and at the end of input."""
    return put(f"{question} {say('y yes, n no [n] ')}") in ("y", "yes")


class Questions:
    """Asks before each step that changes something, until the user answers ``all``; a reboot is always asked about."""

    def __init__(self, plan: Plan, show: Callable[[PlanStep], Sequence[str]]) -> None:
        self._plan, self._show, self._all = plan, show, False
        self._left: set[str] = set()
        """Causes of which a step was left out: whether they are gone is not asked then."""

    def __call__(self, step: PlanStep) -> Answer:
        """What to do with the step: run it, leave it out, or stop."""
        if step.verify:
            return "leave out" if step.cause in self._left else "run"
        answer = self._ask(step)
        if answer == "leave out" and (step.touches != "nothing" or not step.argv):
            self._left.add(step.cause)
        return answer

    def _ask(self, step: PlanStep) -> Answer:
        """Ask about the step: run, leave out or stop; the answer ``all`` is remembered.

        It is ``run`` unasked for a command that changes nothing and has no needs, and after ``all`` for every command
        that does not reboot; what is done by hand is always asked about.
        """
        only_shows = step.touches == "nothing" and not step.needs
        if step.argv and (only_shows or (self._all and "reboot" not in step.needs)):
            return "run"
        sys.stderr.write("".join(f"{line}\n" for line in ("", *self._show(step))))
        if "reboot" in step.needs:
            return self._reboot()
        answer = put(f"     {say(_STEP if step.argv else _BY_HAND)}")
        self._all = self._all or (answer in ("a", "all") and bool(step.argv))
        if answer in ("y", "yes", "a", "all"):
            return "run"
        return "stop" if answer in ("q", "quit") else "leave out"

    def _reboot(self) -> Answer:
        """Ask about a reboot: only typing the machine's name runs it, q stops, anything else leaves it out."""
        name = one_line(self._plan.machine)
        question = "It reboots. Type {name} to run it, q to stop; anything else leaves it out: "
        answer = put(f"     {say(question, name=name)}")
        if name and answer == name.lower():
            return "run"
        return "stop" if answer in ("q", "quit") else "leave out"
