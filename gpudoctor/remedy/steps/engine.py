"""Runs steps in order, whoever planned them: each on record before it begins, told as it goes, ended when wanted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gpudoctor.model.plan import PlanStep
from gpudoctor.model.run import Began, Ended, Event, Printed, Run, State, Stop
from gpudoctor.remedy.records.journal import Journal

Tell: TypeAlias = Callable[[Run], None]
Wants: TypeAlias = Callable[[], Stop]
Answer: TypeAlias = Literal["run", "leave out", "stop"]
Ask: TypeAlias = Callable[[PlanStep], Answer]
EVERY = 2.0
"""Seconds between two records of what a step prints."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a step. `why` says what ended the run with it."""

    state: State
    status: int | None = None
    changed: tuple[str, ...] = ()
    why: str = ""


Do: TypeAlias = Callable[[PlanStep], Result]


@dataclass
class Recorder:
    """A run as it goes on, its journal, and who is told."""

    run: Run
    journal: Journal
    tell: Tell
    written: float = field(default=0.0)

    def now(self, event: Event) -> None:
        """Something happened."""
        self.run = self.run.after(event)
        if isinstance(event, Printed) and time.monotonic() - self.written > EVERY:
            with contextlib.suppress(OSError):
                self.write()
        self.tell(self.run)

    def say(self, step: PlanStep, text: str) -> None:
        """Words of ours among what the step prints."""
        self.now(Printed(step.id, text))

    def write(self) -> None:
        """Have it on disk; raises `OSError`."""
        self.journal.write(self.run)
        self.written = time.monotonic()

    def begin(self, step: PlanStep) -> str:
        """Put on record that the step is about to be done; why that cannot be, empty where it is."""
        before = self.run
        self.run = self.run.after(Began(step.id))
        try:
            self.write()
        except OSError as error:
            self.run = before
            return f"no record can be kept: {error.strerror}; the step was not begun"
        self.tell(self.run)
        return ""

    def end(self, why: str = "", worse: tuple[str, ...] = ()) -> Run:
        """The run is over."""
        self.run = self.run.ended(why, worse)
        try:
            self.write()
        except OSError as error:
            said = f"its end is not on record: {error.strerror}"
            self.run = self.run.ended(f"{self.run.why}; {said}" if self.run.why else said)
        self.journal.settle()
        self.tell(self.run)
        return self.run


def step_by_step(recorder: Recorder, wants: Wants, ask: Ask, prepare: Callable[[PlanStep], str], do: Do) -> str:
    """Do the chosen steps; why that ended before the last one, empty where it did not.

    `prepare` says why a step cannot be begun, or gets what it needs ready; nothing of the step is done by then.
    """
    for step in recorder.run.plan.until_reboot.chosen:
        if wants() != "go on":
            return "stopped by you"
        answer = ask(step)
        if answer == "stop":
            return "stopped by you"
        if answer == "leave out":
            recorder.now(Ended(step.id, "left out", 0.0))
            continue
        began = time.monotonic()
        if why := prepare(step) or recorder.begin(step):
            recorder.say(step, f"{why}\n")
            recorder.now(Ended(step.id, "failed", time.monotonic() - began))
            return why
        result = do(step)
        recorder.now(Ended(step.id, result.state, time.monotonic() - began, result.status, result.changed))
        with contextlib.suppress(OSError):  # the next step is not begun without a record
            recorder.write()
        if result.why or result.state != "done":
            return result.why or f"step {step.id} ended as {result.state}"
    return ""
