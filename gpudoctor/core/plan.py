"""A plan: the steps that cure what was found, in order. What came of it is a `gpudoctor.core.run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gpudoctor.core.document import as_object, object_from_json, object_to_json, objects, open_document
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import frozen, replace

SCHEMA = "gpudoctor-plan/1"
GRAVE = ("root", "reboot", "downtime")
"""What a step needs that a single key press must not allow."""


@frozen
class Change:
    """One thing that a step changes: ``torch`` from ``2.9.0+cu130`` to ``2.9.0+cu128``; a side is empty for none."""

    name: str
    before: str = ""
    after: str = ""


@frozen
class Way:
    """One alternative cure of a finding (`cause`); `number` 1 is the preferred one."""

    cause: str
    number: int
    title: str
    undo: str = ""


Requires = Literal["program", "writable", "room", "unchanged"]


@frozen
class Requirement:
    """A precondition of a step: a program, a writable folder, `mib` MiB of free space, an unchanged environment."""

    kind: Requires
    subject: str
    mib: float = 0.0


@frozen
class PlanStep:
    """One command, or what a person must do (`argv` empty), or a rule that is judged again (`verify`).

    `needs` are of root, reboot, network, downtime; `touches` is environment, system, hardware or nothing. `cause` is
    the finding that it helps to cure, `way` the number of the cure that it belongs to, 0 for a step that all of them
    need. `makes_true` says in words what it brings about, `makes` as facts by name; `requires` must hold before it.
    `hindrance` is why it cannot be run from here, empty where it can.
    """

    id: str
    title: str
    argv: tuple[str, ...] = ()
    text: str = ""
    needs: tuple[str, ...] = ()
    touches: str = "nothing"
    makes_true: str = ""
    cause: str = ""
    way: int = 0
    verify: str = ""
    changes: tuple[Change, ...] = ()
    chosen: bool = True
    hindrance: str = ""
    makes: tuple[tuple[str, Json], ...] = ()
    requires: tuple[Requirement, ...] = ()

    @property
    def grave(self) -> bool:
        """Whether it needs root, a reboot or downtime."""
        return any(need in GRAVE for need in self.needs)

    def to_json(self) -> dict[str, Json]:
        """All fields of the step by name, ``makes`` as an object."""
        return {**object_to_json(self), "makes": dict(self.makes)}


@frozen
class Plan:
    """Steps in the order in which they are done, those left out among them.

    `machine` is the name of the host it is for, `environment` the folder whose packages it changes, `before` what is
    installed there now, in words; `downloads_mib` is None where nobody reckoned it; `undo` says how to take it back;
    `remarks` are what is to be known of its cures: which are at odds, which would bring about something new.
    """

    title: str
    machine: str
    steps: tuple[PlanStep, ...]
    ways: tuple[Way, ...] = ()
    environment: str = ""
    before: tuple[str, ...] = ()
    downloads_mib: float | None = None
    undo: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def chosen(self) -> tuple[PlanStep, ...]:
        """The steps that are not left out."""
        return tuple(step for step in self.steps if step.chosen)

    def number(self, step: str) -> int:
        """Position of that step among the chosen ones, from 1; 0 where it is not chosen."""
        return next((place for place, item in enumerate(self.chosen, 1) if item.id == step), 0)

    @property
    def commands(self) -> tuple[PlanStep, ...]:
        """The chosen steps that run a command."""
        return tuple(step for step in self.chosen if step.argv)

    @property
    def hindered(self) -> tuple[PlanStep, ...]:
        """The chosen steps up to the first reboot that cannot be run from here; their `hindrance` says why."""
        return tuple(step for step in self.until_reboot.chosen if step.hindrance)

    @property
    def until_reboot(self) -> Plan:
        """A copy in which no step after the first chosen reboot is chosen: these are planned anew.

        The plan itself where no reboot is chosen.
        """
        reboot = next((place for place, step in enumerate(self.steps) if step.chosen and "reboot" in step.needs), None)
        if reboot is None:
            return self
        later = tuple(replace(step, chosen=False) for step in self.steps[reboot + 1 :])
        return replace(self, steps=(*self.steps[: reboot + 1], *later))

    @property
    def grave(self) -> bool:
        """Whether a chosen step needs root or a reboot, or interrupts jobs."""
        return any(step.grave for step in self.chosen)

    @property
    def verifies(self) -> tuple[str, ...]:
        """Ids of the rules that the chosen steps judge again: they must find nothing once the plan is done."""
        return tuple(step.verify for step in self.chosen if step.verify)

    def toggled(self, step: str) -> Plan:
        """A copy with that step (its id) chosen if it was not, else not; raises `StopIteration` for no such step.

        Choosing it drops the steps of its cause's other ways.
        """
        toggled_step = next(item for item in self.steps if item.id == step)

        def is_chosen(item: PlanStep) -> bool:
            """Whether the step is chosen after the toggle."""
            if item.id == step:
                return not item.chosen
            is_other_way = (
                item.cause == toggled_step.cause and item.way and toggled_step.way and item.way != toggled_step.way
            )
            return item.chosen and not (is_other_way and not toggled_step.chosen)

        return self._choosing(is_chosen)

    def by_way(self, way: Way) -> Plan:
        """A copy with all steps of that way chosen and none of its cause's other ways; all other steps as they were."""
        return self._choosing(
            lambda item: item.way == way.number if item.cause == way.cause and item.way else item.chosen
        )

    def chosen_way(self, cause: str) -> int:
        """Number of the way of that cause's first chosen step that belongs to one; 0 where none is chosen."""
        return next((step.way for step in self.chosen if step.cause == cause and step.way), 0)

    def _choosing(self, is_chosen: Callable[[PlanStep], object]) -> Plan:
        """A copy with each step chosen where `is_chosen(step)` is true."""
        return replace(self, steps=tuple(replace(step, chosen=bool(is_chosen(step))) for step in self.steps))

    def to_json(self) -> dict[str, Json]:
        """The plan as a document ``gpudoctor-plan/1`` that `from_json` reads."""
        names = "title machine environment before downloads_mib undo remarks ways steps"
        return {"schema": SCHEMA, **object_to_json(self, names)}


def from_json(raw: object) -> Plan:
    """The inverse of `Plan.to_json`; raises `DocumentError`, also for two steps with one id."""
    document = open_document(raw, SCHEMA)
    steps = tuple(
        object_from_json(PlanStep, step, where, makes=tuple(as_object(step.get("makes", {}), f"{where}makes").items()))
        for step, where in objects(document, "steps")
    )
    if len({step.id for step in steps}) < len(steps):
        raise DocumentError("two steps with one id")
    return object_from_json(Plan, document, steps=steps)


# ---- What a plan would come to ----
# The findings of the machine as it would be once its steps are done.


@frozen
class Foreseen:
    """What judging again on the plan's expected results gives: ids of errors and warnings.

    `cleared` are no longer found, `stays` still are, `new` appear; `unjudged` need a fresh read.
    """

    cleared: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """One sentence with the ids of each list, without those that are empty.

        ``Judged on what these steps make true: cleared torch.cpu-build; nothing new.``
        """
        parts = [
            f"cleared {', '.join(self.cleared)}" if self.cleared else "",
            f"stays {', '.join(self.stays)}" if self.stays else "",
            f"to be read again {', '.join(self.unjudged)}" if self.unjudged else "",
            f"new {', '.join(self.new)}" if self.new else "nothing new",
        ]
        return f"Judged on what these steps make true: {'; '.join(part for part in parts if part)}."

    def to_json(self) -> dict[str, Json]:
        """``cleared``, ``stays``, ``new`` and ``unjudged``, each a list of ids."""
        return object_to_json(self)
