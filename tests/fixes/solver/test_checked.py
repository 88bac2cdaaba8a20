"""Machines whose answer was worked out by hand, from the sources named beside each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.diagnosis.pages import toml
from gpudoctor.fixes.solver.described import parse_machine
from gpudoctor.fixes.solver.solver import solve

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


def test_every_case_has_its_source() -> None:
    assert len(CASES) >= 40
    assert all(len(case["source"]) > 20 for case in CASES)
    assert len({case["machine"] + str(case.get("wants")) for case in CASES}) == len(CASES)
