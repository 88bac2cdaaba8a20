"""Where plans are run, and which of their steps may be: nobody's environment is changed by another user.

A step that may not be run keeps its place in the plan and says why; what comes after it in the same cure waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gpudoctor.core import files, system
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan, PlanStep


@dataclass(frozen=True, slots=True)
class RunContext:
    """This machine as the place where steps are run.
    `python` is the interpreter whose environment may be changed, None if none may. `judge` reads and judges the machine
    anew, with the environment in that folder as the one meant (None: that of `python`). `environ` is what commands
    inherit, less the variables that would divert them.
    """

    journals: Path
    python: str | None
    judge: Callable[[str | None], Diagnosis]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: bool = field(default_factory=system.is_root)


def journals_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of run records: ``GPUDOCTOR_STATE``, else ``gpudoctor/runs`` in the user's state folder; it is not
    created. Raises `UsageError` if others can write to the one that the variable names.
    """
    folder = files.state_folder(environ)
    return folder if files.configured_folder(environ) else folder / "runs"


# ---- Who may run which step ----
# Nothing reboots without a word.

Only = Literal["", "user", "root"]
Asked = Literal["each", "once", "never"]
"""Whether a person is asked before each step, once before all of them, or not at all."""


@dataclass(frozen=True, slots=True)
class RunMode:
    """How a plan is run: whether to ask, whose steps (`only`), and the environment's `owner` if it is another user."""

    asked: Asked = "each"
    only: Only = ""
    owner: str = ""


def run_mode_of_process(plan: Plan, asked: Asked = "each", only: Only = "") -> RunMode:
    """Mode for running this plan in this process; as root its `owner` is the environment's, unless that is root."""
    return RunMode(asked, only, _other_owner(plan.environment) if system.is_root() else "")


def _other_owner(folder: str) -> str:
    """Name, or number if it has none, of the user that owns the folder; ``""`` for root or a missing folder."""
    try:
        number = os.stat(folder).st_uid if folder else 0  # noqa: PTH116 - a text, as the plan has it
        return system.account(number).name if number else ""
    except (OSError, ValueError):  # not there, or no name that a folder can have
        return ""
    except KeyError:
        return str(number)


def with_hindrances(plan: Plan, mode: RunMode) -> Plan:
    """The plan with a hindrance on each chosen step that is not run in this mode; steps by hand are, if a person is
    asked before each. Later steps of the same cause wait for it, unless all were agreed to at once.
    """
    waits: dict[str, str] = {}
    steps: list[PlanStep] = []
    for step in plan.steps:
        by_hand = mode.asked == "each" and step.hindrance.startswith("by hand")  # a person does it, and says so
        why = "" if by_hand else step.hindrance
        if step.chosen and not why:
            why = _hindrance(step, plan, mode) or waits.get(step.cause, "")
        if step.chosen and why and step.cause and mode.asked != "once":
            waits.setdefault(step.cause, say("waits for step {number}", number=plan.number(step.id)))
        steps.append(replace(step, hindrance=why))
    return replace(plan, steps=tuple(steps))


def _hindrance(step: PlanStep, plan: Plan, mode: RunMode) -> str:
    """Why a chosen step is not run in this mode (other owner, root, reboot, interruption); ``""`` if it is."""
    if step.verify:
        return ""
    if step.touches == "environment" and mode.owner:
        return f"{plan.environment} belongs to {mode.owner}: run gpudoctor fix as {mode.owner}"
    if mode.only == "user" and "root" in step.needs:
        return "needs root: it is in the administrator's script"
    if mode.only == "root" and step.touches == "environment":
        return "only what needs root is run"
    if mode.asked == "never" and "reboot" in step.needs:
        return "nothing reboots unattended"
    if mode.asked == "never" and "downtime" in step.needs:
        return "nothing interrupts jobs unattended"
    return ""


def runnable(plan: Plan) -> Plan:
    """The plan, in which the steps that have a hindrance are no longer chosen."""
    return replace(plan, steps=tuple(replace(step, chosen=step.chosen and not step.hindrance) for step in plan.steps))
