"""Which level of a check answers for a fact: what is not asked at a lower one is not judged there."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

DEEP = "deep"
ORDER = ("quick", "standard", DEEP)
_JOB = "job"
"""Told by a check of the whole job only."""


@lru_cache(maxsize=1)
def _levels() -> Mapping[str, str]:
    """The lowest level that answers for each fact that is not answered for at level quick."""
    from gpudoctor import probes
    from gpudoctor.discovery import modules_of
    from gpudoctor.kernels import facts

    found = {spec.name: DEEP for spec in facts.FACTS}
    for module in modules_of(probes):
        found.update({spec.name: getattr(module, "LEVEL", "quick") for spec in module.FACTS})
    found.update({name: _JOB for name in found if name.startswith("collective.")})
    return found


def level_of(fact: str) -> str:
    """``quick``, ``standard``, ``deep`` or ``job``."""
    return _levels().get(fact, "quick")


def level_of_condition(condition: str, each: str) -> str:
    """The highest of those of the facts that it names, as far as these are of one machine."""
    from gpudoctor.expression import parse
    from gpudoctor.rulebook.reading import facts_in, loops

    tree: ast.AST = parse(condition)
    levels = {level_of(fact) for fact in facts_in(tree, loops(tree, each))} & set(ORDER)
    return max(levels, key=ORDER.index, default="quick")


def beyond(level: str, asked: str) -> str:
    """Why that was not asked at the level that was; empty where it was."""
    if level == _JOB:
        return "measured across the ranks of a job only: gpudoctor preflight under srun or torchrun"
    if level in ORDER and ORDER.index(level) > ORDER.index(asked):
        return f"measured from level {level} on; this was level {asked}"
    return ""
