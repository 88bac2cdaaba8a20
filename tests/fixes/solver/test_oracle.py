"""The solver and the oracle agree on every machine and want that chance comes up with."""

from __future__ import annotations

import pytest

from tests.fixes.solver.combinations import trial

SEEDS, EACH = 10, 1000
CHANGES = 10
"""Of every tenth combination the smallest changes are tried, too; `python -m tests.fixes.solver` tries all."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, SEEDS))])
def test_the_solver_says_what_the_oracle_says(seed: int) -> None:
    differences = trial(seed, EACH, CHANGES)
    assert not differences, "\n".join(differences[:5])
