"""A run in words: every step as it begins, what it prints and how it ends, what it came to; and the list of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.model.plan import Plan, PlanStep
from gpudoctor.model.run import Run, State, StepRun
from gpudoctor.views._terminal import Style, command, marks, one_line, safe, wrapped
from gpudoctor.views.document import line as as_line

_LOOKS = re.compile(r"\x1b\[[0-9;]*[mK]")
"""Sequences that only colour text or clear to the line's end: left out, every other one is spelt out."""
_ENDS: dict[State, tuple[str, str]] = {
    "done": ("done", "green"),
    "failed": ("failed", "red"),
    "stopped": ("ended before its end: it may be half done", "yellow"),
}


def document(run: Run) -> str:
    """The run as one JSON document; its outcome, which follows from the rest, stands beside it."""
    return as_line({**run.to_json(), "outcome": run.outcome})


def begins(plan: Plan, step: PlanStep, style: Style) -> list[str]:
    """``Step 2 of 5: ...``, its command, and what it asks for."""
    place = f"Step {plan.number(step.id)} of {len(plan.chosen)}"
    typed = [f"  $ {command(step.argv)}"] if step.argv else []
    text = [] if step.argv or step.verify else wrapped(step.text, 2, 2)
    own = "" if typed and typed[0].endswith(step.title) else f": {one_line(step.title)}"
    said = marks(step.needs, step.touches)
    return [style.paint(place + own, "bold"), *typed, *text, *([f"  {said}"] if said else [])]


def printed(line: str) -> str:
    """A line of a step's output."""
    return f"    {safe(_LOOKS.sub('', line))}"


def ends(run: Run, step: PlanStep, style: Style) -> list[str]:
    """How it ended and how long it took; of a rule that was judged again, whether it is cured."""
    ran = run.step(step.id)
    if step.verify and (found := dict(run.judged).get(step.verify)) is not None:
        said = "not cured yet: still found" if found else "cured: no longer found"
        return [style.paint(f"  {said}: {step.verify}", "red" if found else "green")]
    words, colour = _ENDS.get(ran.state, (ran.state, "yellow"))
    status = f" with exit status {ran.status}" if ran.state == "failed" and ran.status is not None else ""
    return [style.paint(f"  {words}{status}", colour) + f"  ({seconds(ran.seconds)})"]


def render(run: Run, style: Style | None = None) -> str:
    """What it came to: the outcome, what was changed, what was cured, what was not done, and how it is taken back."""
    style = style or Style()
    return "\n".join(_lines(run, style))


def _lines(run: Run, style: Style) -> Iterator[str]:
    good = run.outcome in ("fixed", "done", "undone")
    yield style.paint(f"Run {run.id}: {outcome(run)}", "bold", "green" if good else "red")
    for words in run.changed:
        yield from wrapped(f"changed: {words}", 2, 4)
    for rule in run.worse:
        yield style.paint(f"  found now, and not before: {rule}", "red")
    if run.why:
        yield from wrapped(run.why, 2, 2)
    for rule, found in run.judged:
        yield style.paint(f"  {'still found' if found else 'cured'}: {rule}", "red" if found else "green")
    if waiting := [run.plan.number(step.id) for step, ran in _pairs(run) if ran.state == "waits" and step.chosen]:
        yield f"  not begun: step{'s' if len(waiting) > 1 else ''} {', '.join(map(str, waiting))}"
    if run.changed and not run.undoes:
        yield f"To take it back: gpudoctor fix --undo {run.id}"


def _pairs(run: Run) -> Iterator[tuple[PlanStep, StepRun]]:
    return zip(run.plan.steps, run.steps, strict=True)


def outcome(run: Run) -> str:
    """``fixed``, ``stopped in step 3``, ``took back run 20261121-0312``."""
    step = run.current
    place = f" in step {run.plan.number(step.id)}" if step else ""
    if not run.over:
        return f"ended from outside{place}"
    words = {"stopped": f"stopped{place}", "undone": f"took back run {run.undoes}"}
    return words.get(run.outcome, run.outcome)


def was_ended(run: Run) -> str:
    """That a run was killed, where, and what takes it back."""
    return f"run {run.id} was {outcome(run)}; gpudoctor fix --undo {run.id} takes it back"


def taking_back(run: Run, back: Plan) -> str:
    """What the run had changed, and what its way back would do."""
    lines = [f"Take back run {run.id}: {one_line(run.plan.title)}"]
    lines += [row for words in run.changed for row in wrapped(f"it changed: {words}", 2, 4)]
    for step in back.steps:
        said = f"{one_line(step.title)}: {one_line(step.text)}" if step.text else one_line(step.title)
        lines += wrapped(f"- {said}" if step.chosen else f"- left to you: {said}", 2, 4)
        lines += [f"    $ {command(step.argv)}"] if step.argv else []
    return "\n".join(lines)


def listed(runs: Sequence[tuple[Run, str]]) -> str:
    """Every run on a line: its id, when it began, what it was for, what it came to, and what is said beside it."""
    rows = [(run.id, run.began, one_line(run.plan.title), outcome(run), note) for run, note in runs]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    return "\n".join(
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    )


def seconds(value: float) -> str:
    """``0.2 s``, ``18 s``, ``2 min 5 s``."""
    if value < 10:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
