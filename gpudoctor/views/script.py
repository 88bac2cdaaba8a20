"""The steps that need root as a script for an administrator: every word quoted, with reasons and the way back.

It never reboots: its last line says that one is due.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gpudoctor.model.plan import Plan, PlanStep, Way
from gpudoctor.views._terminal import one_line, wrapped

NAME = "gpudoctor-root-steps.sh"


def steps_of(plan: Plan) -> tuple[PlanStep, ...]:
    """The chosen commands that need root, up to a reboot, save those that a person has to complete first."""
    return tuple(step for step in plan.until_reboot.commands if "root" in step.needs and not _incomplete(step))


def _incomplete(step: PlanStep) -> bool:
    blank = any(word in step.hindrance.split() for word in step.argv if word.isupper())
    return blank or any(not word.isprintable() for word in step.argv)


def render(plan: Plan) -> str:
    """A POSIX shell script that runs these steps and ends at the first that fails; empty where there are none."""
    steps = steps_of(plan)
    return "\n".join(_lines(plan, steps)) if steps else ""


def _lines(plan: Plan, steps: Sequence[PlanStep]) -> Iterator[str]:
    yield "#!/bin/sh"
    where = one_line(plan.machine) or "this machine"
    yield from _comment(f"What needs root, of gpudoctor's plan for {where}: {one_line(plan.title)}.")
    yield from _comment("To be run as root, on that machine. It ends at the first command that fails.")
    yield "set -eu"
    before = None
    for step in steps:
        yield ""
        way = next((way for way in plan.ways if (way.cause, way.number) == (step.cause, step.way)), None)
        if way and way != before:
            yield from _cure(way)
        before = way
        yield from _step(step)
    yield ""
    if any("reboot" in step.needs for step in steps):
        yield "echo 'Done. Now reboot this machine, when no job runs, and then: gpudoctor check'"
    else:
        yield "echo 'Done. To see what it came to: gpudoctor check'"


def _cure(way: Way) -> Iterator[str]:
    """What the next commands are for, and how they are taken back."""
    yield from _comment(f"{one_line(way.title)}  [{way.cause}]")
    if way.undo:
        yield from _comment(f"To undo: {one_line(way.undo)}")


def _step(step: PlanStep) -> Iterator[str]:
    """The command; a reboot is left to whom it is said to, and what only shows something may fail."""
    if step.text:
        yield from _comment(one_line(step.text))
    if "downtime" in step.needs:
        yield from _comment("This interrupts jobs.")
    if "reboot" in step.needs:
        yield from _comment(f"Left to you, at the end: {shlex.join(step.argv)}")
    elif step.touches == "nothing":
        yield f"{shlex.join(step.argv)} || true"
    else:
        yield shlex.join(step.argv)


def _comment(text: str) -> Iterator[str]:
    return (f"# {row}" for row in wrapped(text))
