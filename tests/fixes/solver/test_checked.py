"""The solver's answers: those that were worked out by hand, from the sources beside each, and those of the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.diagnosis.pages import toml
from gpudoctor.fixes.solver.described import parse_machine
from gpudoctor.fixes.solver.solver import solve
from tests.fixes.solver.combinations import trial

CASES: list[Mapping[str, Any]] = toml(Path(__file__).with_name("checked.toml"))["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_answer_is_the_one_that_was_worked_out(case: Mapping[str, Any]) -> None:
    wishes = replace(parse_machine(case["machine"]), wants=tuple(case.get("wants", ())))
    solution = solve(wishes)
    best = solution.best
    if "torch" in case:
        assert best
        assert (best.torch, case.get("build", best.build)) == (case["torch"], best.build)
        beside = {package.name: package.version for package in best.packages}
        assert beside == {**beside, **case.get("beside", {})}
        assert not any(remedy.text for remedy in solution.smallest)
    else:
        assert best is None
        assert bool(solution.smallest) is not bool(case.get("nothing"))
    for field, least in case.get("change", {}).items():
        remedy = solution.smallest[0]
        assert (remedy.field, remedy.least) == (field, least)
        assert remedy.value == case.get("sets", remedy.value)
        assert case.get("also_change", field) in [other.field for other in solution.smallest]
    for remedy in solution.smallest:
        assert solve(wishes.remedied(remedy)).best, remedy
    assert case.get("says", "") in " ".join(reason.because for reason in solution.reasons)


SEEDS, EACH = 10, 1000
CHANGES = 10
"""Of every tenth combination the smallest changes are tried, too; `python -m tests.fixes.solver` tries all."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, SEEDS))])
def test_the_solver_says_what_the_oracle_says(seed: int) -> None:
    differences = trial(seed, EACH, CHANGES)
    assert not differences, "\n".join(differences[:5])
