"""A plan: the steps that cure what was found, in order. What came of it is a `gpudoctor.core.run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

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
        """The chosen steps that cannot be run from here."""
        return tuple(step for step in self.until_reboot.chosen if step.hindrance)

    @property
    def until_reboot(self) -> Plan:
        """The plan with everything after the first reboot not chosen: that is planned anew after it."""
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
        """Ids of the rules that must find nothing once the plan is done."""
        return tuple(step.verify for step in self.chosen if step.verify)

    def toggled(self, step: str) -> Plan:
        """The plan with that step chosen or not; choosing it drops steps of the cause's other ways."""
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
        """The plan with all steps of that way chosen and none of the cause's other ways."""
        return self._choosing(
            lambda item: item.way == way.number if item.cause == way.cause and item.way else item.chosen
        )

    def chosen_way(self, cause: str) -> int:
        """Number of the way chosen for that cause; 0 where none of its steps is chosen."""
        return next((step.way for step in self.chosen if step.cause == cause and step.way), 0)

    def _choosing(self, choice: Any) -> Plan:
        """The plan with each step chosen as `choice` says."""
        return replace(self, steps=tuple(replace(step, chosen=bool(choice(step))) for step in self.steps))

    def to_json(self) -> dict[str, Json]:
        """A document that `from_json` takes back."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "machine": self.machine,
            "environment": self.environment,
            "before": list(self.before),
            "downloads_mib": self.downloads_mib,
            "undo": list(self.undo),
            "remarks": list(self.remarks),
            "ways": [
                {"cause": way.cause, "number": way.number, "title": way.title, "undo": way.undo} for way in self.ways
            ],
            "steps": cast(Json, [_step_to_json(step) for step in self.steps]),
        }


def from_json(raw: object) -> Plan:
    """The inverse of `Plan.to_json`; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != SCHEMA:
            raise DocumentError(f"schema {str(document['schema'])[:40]!r} is not {SCHEMA}")
        megabytes = document.get("downloads_mib")
        return Plan(
            title=text(document["title"]),
            machine=text(document.get("machine", "")),
            steps=_with_distinct_ids(_step_from_json(item) for item in document["steps"]),
            ways=tuple(
                Way(text(way["cause"]), int(way["number"]), text(way["title"]), text(way.get("undo", "")))
                for way in document.get("ways", ())
            ),
            environment=text(document.get("environment", "")),
            before=texts(document.get("before", ())),
            downloads_mib=None if megabytes is None else float(megabytes),
            undo=texts(document.get("undo", ())),
            remarks=texts(document.get("remarks", ())),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole plan: {type(error).__name__} {error}") from error


def _step_to_json(step: PlanStep) -> dict[str, Json]:
    """The JSON object of a step."""
    out: dict[str, Json] = {
        "id": step.id,
        "title": step.title,
        "argv": list(step.argv),
        "text": step.text,
        "needs": list(step.needs),
        "touches": step.touches,
        "makes_true": step.makes_true,
        "cause": step.cause,
        "way": step.way,
        "verify": step.verify,
        "changes": [{"name": item.name, "before": item.before, "after": item.after} for item in step.changes],
        "chosen": step.chosen,
        "hindrance": step.hindrance,
        "makes": dict(step.makes),
        "requires": [{"kind": item.kind, "subject": item.subject, "mib": item.mib} for item in step.requires],
    }
    return out


def _step_from_json(raw: Mapping[str, Any]) -> PlanStep:
    """A step of a document; raises `KeyError`, `TypeError` or `ValueError`."""
    return PlanStep(
        id=text(raw["id"]),
        title=text(raw["title"]),
        argv=texts(raw.get("argv", ())),
        text=text(raw.get("text", "")),
        needs=texts(raw.get("needs", ())),
        touches=text(raw.get("touches", "nothing")),
        makes_true=text(raw.get("makes_true", "")),
        cause=text(raw.get("cause", "")),
        way=int(raw.get("way", 0)),
        verify=text(raw.get("verify", "")),
        changes=tuple(
            Change(text(item["name"]), text(item.get("before", "")), text(item.get("after", "")))
            for item in raw.get("changes", ())
        ),
        chosen=bool(raw.get("chosen", True)),
        hindrance=text(raw.get("hindrance", "")),
        makes=tuple((text(name), value) for name, value in raw.get("makes", {}).items()),
        requires=tuple(_requirement_from_json(item) for item in raw.get("requires", ())),
    )


def _requirement_from_json(raw: Mapping[str, Any]) -> Requirement:
    """A requirement of a document; raises `KeyError`, `TypeError` or `ValueError`."""
    if raw["kind"] not in get_args(Requires):
        raise ValueError(f"{str(raw['kind'])[:40]!r} is nothing that a step can require")
    return Requirement(raw["kind"], text(raw["subject"]), float(raw.get("mib", 0)))


def _with_distinct_ids(steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps; raises `ValueError` where two have one id."""
    found = tuple(steps)
    if len({step.id for step in found}) < len(found):
        raise ValueError("two steps with one id")
    return found


def text(raw: object) -> str:
    """The value, a text; raises `TypeError` for anything else."""
    if not isinstance(raw, str):
        raise TypeError(f"{str(raw)[:40]!r} is no text")
    return raw


def texts(raw: object) -> tuple[str, ...]:
    """The value, a list of texts, as a tuple; raises `TypeError` for anything else."""
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise TypeError(f"{str(raw)[:40]!r} is no list of texts")
    return tuple(text(item) for item in raw)


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
        """``Judged on what these steps make true: cleared torch.cpu-build; nothing new.``"""
        parts = [
            f"cleared {_comma_list(self.cleared)}" if self.cleared else "",
            f"stays {_comma_list(self.stays)}" if self.stays else "",
            f"to be read again {_comma_list(self.unjudged)}" if self.unjudged else "",
            f"new {_comma_list(self.new)}" if self.new else "nothing new",
        ]
        return f"Judged on what these steps make true: {'; '.join(part for part in parts if part)}."

    def to_json(self) -> dict[str, Json]:
        """The four lists by name."""
        return {name: list(getattr(self, name)) for name in ("cleared", "stays", "new", "unjudged")}


def _comma_list(ids: Iterable[str]) -> str:
    """The ids, separated by commas."""
    return ", ".join(ids)
