"""Runs steps in order, whoever planned them: each on record before it begins, told as it goes, ended when wanted."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal, TypeAlias

from gpudoctor.core import system
from gpudoctor.core.plan import PlanStep
from gpudoctor.core.run import Began, Ended, Event, Printed, Run, State, Stop
from gpudoctor.fixes.records import Journal

Tell: TypeAlias = Callable[[Run], None]
Wants: TypeAlias = Callable[[], Stop]
Answer: TypeAlias = Literal["run", "leave out", "stop"]
Ask: TypeAlias = Callable[[PlanStep], Answer]
RECORD_SECONDS = 2.0
"""Seconds between two records of what a step prints."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a step ended. `why` is the reason to end the run with it, ``""`` if there is none."""

    state: State
    status: int | None = None
    changed: tuple[str, ...] = ()
    why: str = ""


Do: TypeAlias = Callable[[PlanStep], Result]


@dataclass
class Recorder:
    """A run in progress, its journal, and the callback that is told of each change."""

    run: Run
    journal: Journal
    tell: Tell
    written: float = field(default=0.0)

    def now(self, event: Event) -> None:
        """Apply an event to the run and call `tell` with the run. The journal is written only for output (`Printed`),
        and only if it was last written more than 2 s ago; errors of that are ignored.
        """
        self.run = self.run.after(event)
        if isinstance(event, Printed) and time.monotonic() - self.written > RECORD_SECONDS:
            with contextlib.suppress(OSError):
                self.write()
        self.tell(self.run)

    def say(self, step: PlanStep, text: str) -> None:
        """Add gpudoctor's own text to the step's recorded output."""
        self.now(Printed(step.id, text))

    def write(self) -> None:
        """Write the run to the journal; raises `OSError`."""
        self.journal.write(self.run)
        self.written = time.monotonic()

    def begin(self, step: PlanStep) -> str:
        """Put on record that the step is about to start; why it must not, ``""`` if it may."""
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
        """End and record the run, and return it. `why` is the reason, `worse` the rules that are worse than before."""
        self.run = self.run.ended(why, worse)
        try:
            self.write()
        except OSError as error:
            failure = f"its end is not on record: {error.strerror}"
            self.run = self.run.ended(f"{self.run.why}; {failure}" if self.run.why else failure)
        self.journal.settle()
        self.tell(self.run)
        return self.run


def step_by_step(recorder: Recorder, wants: Wants, ask: Ask, prepare: Callable[[PlanStep], str], do: Do) -> str:
    """Run the chosen steps up to the first reboot, each asked for, prepared, recorded and done; returns why it stopped
    early, ``""`` if all are done or left out. `prepare` returns why a step cannot be started, or ``""``.
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


# ---- Signals to the program while steps run ----
# The command ends, the journal is written, then the signal has its way.

_HEEDED = (signal.SIGINT, *system.ENDING_SIGNALS)


@contextmanager
def heeding_signals(wants: Callable[[], Stop]) -> Iterator[Callable[[], Stop]]:
    """Context with a callback like `wants` that gives ``now`` once a signal came, which is raised again on leaving.
    Outside the main thread it is `wants` itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield wants
        return
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
        """Remember the signal's number."""
        received.append(number)

    before = {
        number: signal.signal(number, on_signal) for number in _HEEDED if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield lambda: "now" if received else wants()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
