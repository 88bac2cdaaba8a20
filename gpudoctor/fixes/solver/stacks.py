"""The solver's answer as a stack to show: with the commands and files that set it up, and what an index says to it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpudoctor.core.stack import Reason, Stack, Wishes
from gpudoctor.fixes.solver.described import machine_text
from gpudoctor.fixes.solver.environment import ELSEWHERE, Environment
from gpudoctor.fixes.solver.files import FILES
from gpudoctor.fixes.solver.index import Indexes
from gpudoctor.fixes.solver.order import BASE, COMMANDS, Order, completed, conda_remarks
from gpudoctor.fixes.solver.solution import Candidate, Solution, facts_once_installed
from gpudoctor.fixes.solver.solver import solve

_MOST_ASKED = 4
"""Candidates that an index is asked for before its answer is taken to be that it has none of them."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The chosen candidate (None if the indexes have none), with reasons, remarks and wheel hashes by package."""

    candidate: Candidate | None
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()
    hashes: Mapping[str, tuple[str, str]] | None = None


def stack(wishes: Wishes, environment: Environment = ELSEWHERE, shelves: Indexes | None = None) -> Stack:
    """Stack that fits the wishes, with the commands and files to install it; without `torch` if nothing fits.
    With `shelves` the indexes are asked whether they have its packages. An invalid requirement raises `UsageError`.
    """
    found = solve(wishes)
    best = completed(found.best, wishes.arch) if found.best else None
    choice = _verified_choice(found, wishes, shelves) if shelves and best else _Choice(best)
    empty = Stack(
        wishes,
        torch="",
        heading=found.heading,
        reasons=(*choice.reasons, *found.reasons),
        remarks=(*choice.remarks, *found.remarks),
        smallest=found.smallest,
        sources=found.sources,
        offers=found.offers,
    )
    if choice.candidate is None:
        return empty
    order = _order(choice, wishes, environment, shelves)
    return _with_commands(replace(empty, needs=found.needs), order)


def _with_commands(stack: Stack, order: Order) -> Stack:
    """The stack with packages, commands, files and effects of the order."""
    best = order.candidate
    versions = (
        (item.name, order.pin(item).partition("==")[2] or item.version or item.requirement) for item in best.packages
    )
    return replace(
        stack,
        torch=f"{best.torch}+{best.build}",
        packages=tuple(versions),
        libraries=best.libraries,
        commands={
            tool: write(replace(order, environment=order.environment.by(tool))) for tool, write in COMMANDS.items()
        },
        files={form: text for form, write in FILES.items() if (text := write(order))},
        remarks=(*stack.remarks, *(conda_remarks(order) if order.environment.tool == "conda" else ())),
        makes=dict(facts_once_installed(best, order.environment, stack.wishes)),
    )


def _order(choice: _Choice, wishes: Wishes, environment: Environment, shelves: Indexes | None) -> Order:
    """Order that installs the chosen candidate (not None) into the environment."""
    assert choice.candidate
    return Order(
        choice.candidate,
        environment,
        base=shelves.base if shelves else BASE,
        python=minor(wishes.python),
        system=wishes.os,
        arch=wishes.arch,
        pinned=bool(wishes.torch),
        hashes=choice.hashes or {},
    )


def _verified_choice(solution: Solution, wishes: Wishes, shelves: Indexes) -> _Choice:
    """First candidate that the indexes have; if they do not answer, the best one, noted as not verified."""
    rejected: list[Reason] = []
    for candidate in (completed(candidate_fit, wishes.arch) for candidate_fit in solution.ranked[:_MOST_ASKED]):
        verdict = shelves.verdict(Order(candidate, base=shelves.base), minor(wishes.python), wishes.os, wishes.arch)
        if not verdict.lacks:
            return _Choice(
                candidate, tuple(rejected), (verdict.summary, *_verify_hint(wishes, shelves)), verdict.hashes
            )
        name = f"torch {candidate.torch} {candidate.build}"
        rejected.append(Reason(name, "rejected", f"{verdict.summary}: {', '.join(verdict.lacks)}"))
    return _Choice(None, tuple(rejected), ("The index has none of the builds that fit; --offline leaves it unasked.",))


def _verify_hint(wishes: Wishes, shelves: Indexes) -> tuple[str, ...]:
    """Sentence with the command that verifies a described machine completely; empty if that is not needed."""
    if not shelves.ask or not wishes.elsewhere or (wishes.python and wishes.os and wishes.arch):
        return ()
    wanted = ("--want", " ".join(wishes.wants)) if wishes.wants else ()
    command = shlex.join(["gpudoctor", "setup", "torch", "--for", machine_text(wishes), *wanted])
    return (f"To have it verified, say which; for the usual ones: {command}",)


def minor(python: str) -> str:
    """Minor version of a Python version, ``3.12`` for ``3.12.3``; ``""`` if it is no version."""
    match = re.match(r"\d+\.\d+t?", python)
    return match[0] if match else ""
