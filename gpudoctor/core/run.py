"""A run: what became of a plan's steps so far. An engine tells of it in events and keeps it as a journal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from gpudoctor.core import plan as plans
from gpudoctor.core.document import as_object, object_from_json, object_to_json, objects, open_document
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import field, frozen, replace
from gpudoctor.core.plan import Plan, PlanStep

SCHEMA = "gpudoctor-run/1"
State = Literal["waits", "running", "done", "failed", "stopped", "left out"]
"""``stopped`` is ended from outside before it had come to its end; what it had changed by then is not known."""
Outcome = Literal["under way", "fixed", "still found", "stopped", "done", "undone"]
"""``stopped``: a step failed, or the user stopped between two; ``done``: all was done, and no rule tells of a cure."""
Stop = Literal["go on", "after this step", "now"]
"""What the user wants of a run. ``now`` ends the command that runs, and the record says so."""

MOST_LINES = 400
"""Lines of a step's output that are kept, the last of them."""
MOST_COLUMNS = 2000
_ENDS = re.compile(r"(\r?\n|\r)")


@frozen
class Output:
    r"""What a step printed, its last lines. A line that ends in ``\r`` gives way to the next, as on a terminal."""

    lines: tuple[str, ...] = ()
    dropped: int = 0
    tail: Literal["new", "open", "over"] = "new"
    """Whether what comes begins a line, goes on with the last one, or stands in its place."""

    def add(self, text: str) -> Output:
        r"""A copy with that text, any piece of output, appended: its last 400 lines, each cut to 2000 characters.

        A line that ended in ``\r`` is replaced by what follows.
        """
        lines, tail = list(self.lines), self.tail
        for piece in _ENDS.split(text):
            if piece == "\r":
                tail = "over" if tail == "open" else tail
            elif piece in ("\n", "\r\n"):
                if tail == "new":
                    lines.append("")
                tail = "new"
            elif piece:
                if tail == "new":
                    lines.append("")
                lines[-1] = ((lines[-1] if tail == "open" else "") + piece)[:MOST_COLUMNS]
                tail = "open"
        over = max(len(lines) - MOST_LINES, 0)
        return Output(tuple(lines[over:]), self.dropped + over, tail)


@frozen
class StepRun:
    """The state of one step; `status` is its command's exit status, None before it ends."""

    state: State = "waits"
    seconds: float = 0.0
    status: int | None = None
    output: Output = field(default_factory=Output)

    def to_json(self) -> dict[str, Json]:
        """``state``, ``seconds``, ``status``, ``output`` (its lines) and ``dropped``, how many are no longer kept."""
        output: list[Json] = list(self.output.lines)
        return {**object_to_json(self, "state seconds status"), "output": output, "dropped": self.output.dropped}


@frozen
class Began:
    """The step is about to be done; the journal on disk already says so."""

    step: str


@frozen
class Printed:
    """The step's command printed this: any piece of text, not a whole line."""

    step: str
    text: str


@frozen
class Judged:
    """A rule was judged again on fresh facts, and `found` something still, or nothing."""

    step: str
    rule: str
    found: bool


@frozen
class Ended:
    """The step is over. `changed` is what it changed, in words: ``torch 2.9.0+cu130 → 2.9.0+cu128``."""

    step: str
    state: State
    seconds: float
    status: int | None = None
    changed: tuple[str, ...] = ()


Event: TypeAlias = Began | Printed | Judged | Ended


@frozen
class Run:
    """One run of a plan, under way or over. `id` names it for undo: ``20261121-0312``.

    `undoes` is the run that it takes back, `steps` stand in the order of the plan's; `judged` has for
    each rule that was judged again whether it still found something. `worse` are the rules that found an error after
    a step and none before the run. `why` says in a sentence what ended it before its last step, or what is left to say.
    """

    id: str
    plan: Plan
    began: str
    steps: tuple[StepRun, ...]
    changed: tuple[str, ...] = ()
    judged: tuple[tuple[str, bool], ...] = ()
    over: bool = False
    undoes: str = ""
    worse: tuple[str, ...] = ()
    why: str = ""

    @classmethod
    def of(cls, plan: Plan, name: str, began: str, undoes: str = "") -> Run:
        """The run with id `name` of that plan before its first step: chosen steps wait, the others are left out."""
        steps = tuple(StepRun("waits" if step.chosen else "left out") for step in plan.steps)
        return cls(name, plan, began, steps, undoes=undoes)

    def step(self, name: str) -> StepRun:
        """The `StepRun` of the step with id `name`; raises `StopIteration` for no such step."""
        return self.steps[self._place(name)]

    @property
    def current(self) -> PlanStep | None:
        """The running step, else the last that ran; None before the first."""
        last = None
        for step, ran in zip(self.plan.steps, self.steps, strict=True):
            if ran.state == "running":
                return step
            if ran.state not in ("waits", "left out"):
                last = step
        return last

    @property
    def outcome(self) -> Outcome:
        """The first that holds: ``under way``; ``still found``, by a rule judged again; ``stopped``: a step failed
        or did not run, or a rule got worse; ``undone``, of an undo; ``fixed``, by all rules judged again; ``done``.
        """
        if not self.over:
            return "under way"
        states = {step.state for step in self.steps}
        if any(found for _, found in self.judged):
            return "still found"
        if self.worse or states & {"failed", "stopped", "waits", "running"}:
            return "stopped"
        if self.undoes:
            return "undone"
        return "fixed" if self.judged else "done"

    @property
    def rest(self) -> Plan:
        """The plan to run in order to continue: steps that were done are no longer chosen, rule checks still are."""
        steps = tuple(
            replace(step, chosen=step.chosen and (ran.state != "done" or bool(step.verify)))
            for step, ran in zip(self.plan.steps, self.steps, strict=True)
        )
        return replace(self.plan, steps=steps)

    def after(self, event: Event) -> Run:
        """A copy with the event recorded: the step's state and output, what it changed, or what a rule found."""
        place = self._place(event.step)
        before = self.steps[place]
        if isinstance(event, Judged):
            judged = (*(item for item in self.judged if item[0] != event.rule), (event.rule, event.found))
            return replace(self, judged=judged)
        changed = self.changed
        if isinstance(event, Began):
            step = StepRun("running")
        elif isinstance(event, Printed):
            step = replace(before, output=before.output.add(event.text))
        else:
            step = replace(before, state=event.state, seconds=event.seconds, status=event.status)
            changed = (*changed, *(item for item in event.changed if item not in changed))
        return replace(self, steps=(*self.steps[:place], step, *self.steps[place + 1 :]), changed=changed)

    def ended(self, why: str = "", worse: tuple[str, ...] = ()) -> Run:
        """A copy that is over, with the reason and the rules that got worse; where empty, those it had stay."""
        return replace(self, over=True, why=why or self.why, worse=worse or self.worse)

    def _place(self, name: str) -> int:
        """Index in the plan of the step with id `name`; raises `StopIteration` for no such step."""
        return next(place for place, step in enumerate(self.plan.steps) if step.id == name)

    def to_json(self) -> dict[str, Json]:
        """The run as its journal, a document ``gpudoctor-run/1`` that `from_json` reads."""
        names = "id began undoes over worse why changed judged steps plan"
        return {"schema": SCHEMA, **object_to_json(self, names), "judged": dict(self.judged)}


def from_json(raw: object) -> Run:
    """The inverse of `Run.to_json`; raises `DocumentError`."""
    document = open_document(raw, SCHEMA)
    plan = plans.from_json(document.get("plan"))
    steps = tuple(_step_from_json(step, where) for step, where in objects(document, "steps"))
    if len(steps) != len(plan.steps):
        raise DocumentError(f"{len(steps)} steps ran of a plan of {len(plan.steps)}")
    judged = as_object(document.get("judged"), "judged")
    return object_from_json(Run, document, plan=plan, steps=steps, judged=tuple(judged.items()))


def _step_from_json(raw: Mapping[str, Any], where: str) -> StepRun:
    """A step's run from JSON; raises `DocumentError`."""
    output = object_from_json(Output, {"lines": raw.get("output", ()), "dropped": raw.get("dropped", 0)}, where)
    return object_from_json(StepRun, raw, where, output=output)
