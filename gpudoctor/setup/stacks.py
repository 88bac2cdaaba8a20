"""The solver's answer as a stack to show: with the commands and files that set it up, and what an index says to it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpudoctor.model.stack import Reason, Stack, Wishes
from gpudoctor.setup import makes
from gpudoctor.setup.candidate import Candidate
from gpudoctor.setup.described import words
from gpudoctor.setup.emit import BASE, COMMANDS, FILES, Order, completed, conda
from gpudoctor.setup.environment import ELSEWHERE, Environment
from gpudoctor.setup.solution import Solution
from gpudoctor.setup.solver import solved
from gpudoctor.setup.verified import Shelves

_MOST_ASKED = 4
"""Candidates that an index is asked for before its answer is taken to be that it has none of them."""


@dataclass(frozen=True, slots=True)
class _Choice:
    candidate: Candidate | None
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()
    hashes: Mapping[str, tuple[str, str]] | None = None


def stack(wishes: Wishes, environment: Environment = ELSEWHERE, shelves: Shelves | None = None) -> Stack:
    """What fits these wishes, for that environment. With `shelves` the indexes are asked whether they have it.

    Raises `UsageError` for a wanted requirement that is none.
    """
    found = solved(wishes)
    best = completed(found.best, wishes.arch) if found.best else None
    choice = _asked(found, wishes, shelves) if shelves and best else _Choice(best)
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
    return _written(replace(empty, needs=found.needs), order)


def _written(stack: Stack, order: Order) -> Stack:
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
        remarks=(*stack.remarks, *(conda.remarks(order) if order.environment.tool == "conda" else ())),
        makes=dict(makes.installed(best, order.environment, _machine(stack.wishes))),
    )


def _order(choice: _Choice, wishes: Wishes, environment: Environment, shelves: Shelves | None) -> Order:
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


def _asked(found: Solution, wishes: Wishes, shelves: Shelves) -> _Choice:
    """The first candidate that the indexes have; where they do not answer, the best, and that it is not verified."""
    rejected: list[Reason] = []
    for candidate in (completed(one, wishes.arch) for one in found.ranked[:_MOST_ASKED]):
        verdict = shelves.verdict(Order(candidate, base=shelves.base), minor(wishes.python), wishes.os, wishes.arch)
        if not verdict.lacks:
            return _Choice(candidate, tuple(rejected), (verdict.said, *_to_verify(wishes, shelves)), verdict.hashes)
        name = f"torch {candidate.torch} {candidate.build}"
        rejected.append(Reason(name, "rejected", f"{verdict.said}: {', '.join(verdict.lacks)}"))
    return _Choice(None, tuple(rejected), ("The index has none of the builds that fit; --offline leaves it unasked.",))


def _to_verify(wishes: Wishes, shelves: Shelves) -> tuple[str, ...]:
    """The command that says what an index must know of a machine that is not here, where it was not all said."""
    if not shelves.ask or not wishes.elsewhere or (wishes.python and wishes.os and wishes.arch):
        return ()
    wanted = ("--want", " ".join(wishes.wants)) if wishes.wants else ()
    command = shlex.join(["gpudoctor", "setup", "torch", "--for", words(wishes), *wanted])
    return (f"To have it verified, say which; for the usual ones: {command}",)


def _machine(wishes: Wishes) -> str:
    return "windows" if wishes.os == "windows" else wishes.arch or "x86_64"


def minor(python: str) -> str:
    """``3.12`` of ``3.12.3``; empty where it is no version."""
    match = re.match(r"\d+\.\d+t?", python)
    return match[0] if match else ""
