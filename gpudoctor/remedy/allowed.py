"""Who may run which step: nobody's environment is changed by another user, and nothing reboots without a word.

A step that may not be run keeps its place in the plan and says why; what comes after it in the same cure waits for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from gpudoctor.language import say
from gpudoctor.model.plan import Plan, PlanStep

Only = Literal["", "user", "root"]


Asked = Literal["each", "once", "never"]
"""Whether a person is asked before each step, once before all of them, or not at all."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a plan is run. `only`: whose steps are run; `owner`: whose environment it is, where it is somebody else's."""

    asked: Asked = "each"
    only: Only = ""
    owner: str = ""


def is_root() -> bool:
    """Whether this process is root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def here(plan: Plan, asked: Asked = "each", only: Only = "") -> Manner:
    """The manner of this process, for this plan."""
    return Manner(asked, only, _other_owner(plan.environment) if is_root() else "")


def _other_owner(folder: str) -> str:
    """The name of the user that a folder belongs to, where that is not root; its number where it has no name."""
    import pwd

    try:
        number = os.stat(folder).st_uid if folder else 0  # noqa: PTH116 - a text, as the plan has it
        return pwd.getpwuid(number).pw_name if number else ""
    except (OSError, ValueError):  # not there, or no name that a folder can have
        return ""
    except KeyError:
        return str(number)


def hindered(plan: Plan, manner: Manner) -> Plan:
    """The plan with a hindrance on every chosen step that is not run in this manner.

    Where all steps are agreed to at once the person leaves out what waits for another step, and sees it done.
    """
    waits: dict[str, str] = {}
    steps: list[PlanStep] = []
    for step in plan.steps:
        by_hand = manner.asked == "each" and step.hindrance.startswith("by hand")  # a person does it, and says so
        why = "" if by_hand else step.hindrance
        if step.chosen and not why:
            why = _hindrance(step, plan, manner) or waits.get(step.cause, "")
        if step.chosen and why and step.cause and manner.asked != "once":
            waits.setdefault(step.cause, say("waits for step {number}", number=plan.number(step.id)))
        steps.append(replace(step, hindrance=why))
    return replace(plan, steps=tuple(steps))


def _hindrance(step: PlanStep, plan: Plan, manner: Manner) -> str:
    if step.verify:
        return ""
    if step.touches == "environment" and manner.owner:
        return f"{plan.environment} belongs to {manner.owner}: run gpudoctor fix as {manner.owner}"
    if manner.only == "user" and "root" in step.needs:
        return "needs root: it is in the administrator's script"
    if manner.only == "root" and step.touches == "environment":
        return "only what needs root is run"
    if manner.asked == "never" and "reboot" in step.needs:
        return "nothing reboots unattended"
    if manner.asked == "never" and "downtime" in step.needs:
        return "nothing interrupts jobs unattended"
    return ""


def runnable(plan: Plan) -> Plan:
    """The plan with what cannot be run from here left out."""
    return replace(plan, steps=tuple(replace(step, chosen=step.chosen and not step.hindrance) for step in plan.steps))
