"""A run in words: every step as it begins, what it prints and how it ends, what it came to; and the list of runs.

`printing_run` prints all of that while it happens, and on a terminal the time it has taken so far: lines come out once
they are whole; what a command still rewrites stands, with the time, on a line of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run, State
from gpudoctor.views._terminal import (
    ERASE,
    PLAIN,
    Style,
    command,
    joined,
    one_line,
    padded,
    put_status,
    safe,
    seconds,
    step_marks,
    style_of,
    uncoloured,
    width,
    wrapped,
)
from gpudoctor.views.document import line as as_line

_STATE_WORDS: dict[State, tuple[str, str]] = {
    "done": ("done", "green"),
    "failed": ("failed", "red"),
    "stopped": ("ended before its end: it may be half done", "yellow"),
}


def document(run: Run) -> str:
    """The run as a JSON document on one line, with its outcome, which follows from the rest."""
    return as_line({**run.to_json(), "outcome": run.outcome})


def step_start_lines(plan: Plan, step: PlanStep, style: Style) -> list[str]:
    """Lines printed before a step runs: ``Step 2 of 5: ...``, its command or text, and what it needs."""
    heading = say("Step {number} of {count}", number=plan.number(step.id), count=len(plan.chosen))
    command_lines = [f"  $ {command(step.argv)}"] if step.argv else []
    text = [] if step.argv or step.verify else wrapped(step.text, 2, 2)
    title = "" if command_lines and command_lines[0].endswith(step.title) else f"{say(': ')}{one_line(step.title)}"
    needs = step_marks(step.needs, step.touches)
    return [style.paint(heading + title, "bold"), *command_lines, *text, *([f"  {needs}"] if needs else [])]


def output_line(line: str) -> str:
    """A line of a step's output for printing: indented, without colours, control characters as escapes."""
    return f"    {safe(uncoloured(line))}"


def step_end_lines(run: Run, step: PlanStep, style: Style) -> list[str]:
    """One line on how the step ended, and how long it took; for a verification, whether the rule is still found."""
    step_run = run.step(step.id)
    if step.verify and (is_found := dict(run.judged).get(step.verify)) is not None:
        state = say("not cured yet: still found" if is_found else "cured: no longer found")
        sentence = say("{title}: {text}", title=state, text=step.verify)
        return [style.paint(f"  {sentence}", "red" if is_found else "green")]
    words, colour = _STATE_WORDS.get(step_run.state, (step_run.state, "yellow"))
    has_status = step_run.state == "failed" and step_run.status is not None
    status = say(" with exit status {status}", status=step_run.status) if has_status else ""
    return [style.paint(f"  {say(words)}{status}", colour) + f"  ({seconds(step_run.seconds)})"]


@joined
def render(run: Run, style: Style = PLAIN) -> Iterator[str]:
    """Summary of a run as one text: outcome, what changed, what is cured, steps not begun, and how to undo it."""
    succeeded = run.outcome in ("fixed", "done", "undone")
    yield style.paint(
        say("Run {id}: {outcome}", id=run.id, outcome=outcome_text(run)), "bold", "green" if succeeded else "red"
    )
    for change in run.changed:
        yield from wrapped(say("changed: {what}", what=change), 2, 4)
    for rule in run.worse:
        yield style.paint(f"  {say('found now, and not before: {id}', id=rule)}", "red")
    if run.why:
        yield from wrapped(run.why, 2, 2)
    for rule, is_found in run.judged:
        state = say("still found" if is_found else "cured")
        yield style.paint(f"  {say('{title}: {text}', title=state, text=rule)}", "red" if is_found else "green")
    if waiting := [
        run.plan.number(step.id)
        for step, step_run in zip(run.plan.steps, run.steps, strict=True)
        if step_run.state == "waits" and step.chosen
    ]:
        sentence = "not begun: steps {numbers}" if len(waiting) > 1 else "not begun: step {numbers}"
        yield f"  {say(sentence, numbers=', '.join(map(str, waiting)))}"
    if run.changed and not run.undoes:
        yield say("To take it back: gpudoctor fix --undo {id}", id=run.id)


def outcome_text(run: Run) -> str:
    """How the run ended: ``fixed``, ``stopped in step 3``, ``took back run 20261121-0312``.

    ``ended from outside in step 2`` if its record is not marked as over, as when it was killed.
    """
    step = run.current
    number = run.plan.number(step.id) if step else 0
    if not run.over:
        return say("ended from outside in step {number}" if step else "ended from outside", number=number)
    if run.outcome == "stopped":
        return say("stopped in step {number}" if step else "stopped", number=number)
    return say("took back run {id}", id=run.undoes) if run.outcome == "undone" else say(run.outcome)


def interrupted_text(run: Run) -> str:
    """A sentence that the run was killed, at which step, and which command undoes it."""
    sentence = "run {id} was {outcome}; gpudoctor fix --undo {id} takes it back"
    return say(sentence, id=run.id, outcome=outcome_text(run))


def undo_text(run: Run, undo_plan: Plan) -> str:
    """What the run had changed, and the steps and commands of the plan that undoes it."""
    lines = [say("Take back run {id}: {title}", id=run.id, title=one_line(run.plan.title))]
    lines += [row for change in run.changed for row in wrapped(say("it changed: {what}", what=change), 2, 4)]
    for step in undo_plan.steps:
        title = one_line(step.title)
        title = say("{title}: {text}", title=title, text=one_line(step.text)) if step.text else title
        lines += wrapped(f"- {title if step.chosen else say('left to you: {title}', title=title)}", 2, 4)
        lines += [f"    $ {command(step.argv)}"] if step.argv else []
    return "\n".join(lines)


def run_list(runs: Sequence[tuple[Run, str]]) -> str:
    """A line per (run, note): id, start, plan title, outcome and note, in aligned columns; empty without runs."""
    rows = [(run.id, run.began, one_line(run.plan.title), outcome_text(run), say(note)) for run, note in runs]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(padded, row, widths)).rstrip() for row in rows)


# ---- While it runs ----

_PERIOD_SECONDS = 0.25


class RunPrinter:
    """Prints what is new of a run; called with the run whenever it changes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._style = stream, style_of(stream)
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._current_step, self._started, self._lines_printed = "", time.monotonic(), 0
        self._introduced_step = ""
        self._status: str | None = say("reading this machine")
        """Text of the status line, without the time; None while there is none."""
        self._finished_steps: set[str] = set()
        self._ended = threading.Event()

    def __call__(self, run: Run) -> None:
        """Print what is new since the last call; nothing between steps."""
        with self._lock:
            step = run.current
            if not step or step.id in self._finished_steps:
                return
            if self._current_step != step.id:
                self._current_step, self._started, self._lines_printed = step.id, time.monotonic(), 0
                if self._introduced_step != step.id:
                    self._print_lines("", *step_start_lines(run.plan, step, self._style))
            step_run = run.step(step.id)
            lines, dropped = step_run.output.lines, step_run.output.dropped
            complete = len(lines) if step_run.state != "running" or step_run.output.tail == "new" else len(lines) - 1
            new = lines[max(self._lines_printed - dropped, 0) : complete]
            self._lines_printed = max(self._lines_printed, dropped + complete)
            self._print_lines(*map(output_line, new))
            if step_run.state == "running":
                self._status = output_line(lines[-1]).strip() if complete < len(lines) else ""
            else:
                self._status = None
                self._finished_steps.add(step.id)
                self._print_lines(*step_end_lines(run, step, self._style))

    def introduce(self, plan: Plan) -> Callable[[PlanStep], list[str]]:
        """A function that gives a step's first lines, to be shown in a question; they are not printed again later."""

        def lines(step: PlanStep) -> list[str]:
            """The step's first lines; marks it as introduced and erases the status line."""
            with self._lock:
                self._introduced_step, self._status = step.id, None
                self._erase_status()
            return step_start_lines(plan, step, self._style)

        return lines

    def _print_lines(self, *lines: str) -> None:
        """Print the lines in place of the status line; does nothing without lines."""
        if lines:
            self._erase_status()
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def _erase_status(self) -> None:
        """Erase the status line; does nothing unless on a terminal."""
        if self._is_terminal:
            self._stream.write(ERASE)

    def paint(self) -> None:
        """Rewrite the status line with the elapsed time until `end` is called; returns at once unless on a terminal."""
        if not self._is_terminal:
            return
        with suppress(OSError, ValueError):  # a terminal that has gone needs no line
            while not self._ended.wait(_PERIOD_SECONDS):
                with self._lock:
                    if self._status is not None and not self._ended.is_set():
                        elapsed = seconds(time.monotonic() - self._started)
                        put_status(self._stream, f"  {elapsed}  {self._status}")

    def end(self) -> None:
        """Erase the status line for good, and let `paint` return."""
        with self._lock:
            self._ended.set()
            self._erase_status()
            self._stream.flush()


@contextmanager
def printing_run(stream: TextIO) -> Iterator[RunPrinter]:
    """Context with a `RunPrinter` on that stream, whose status line a thread rewrites until the context ends."""
    printer = RunPrinter(stream)
    threading.Thread(target=printer.paint, name="run", daemon=True).start()
    try:
        yield printer
    finally:
        printer.end()
