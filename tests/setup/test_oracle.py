"""The solver and the oracle agree on every machine and want that chance comes up with."""

from __future__ import annotations

import pytest

from tests.setup.combinations import share_that_fits, trial

SEEDS, EACH = 20, 1000
CHANGES = 10
"""Of every tenth combination the smallest changes are tried, too; `python -m tests.setup` tries all."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, SEEDS))])
def test_the_solver_says_what_the_oracle_says(seed: int) -> None:
    differences = trial(seed, EACH, CHANGES)
    assert not differences, "\n".join(differences[:5])


def test_chance_comes_up_with_machines_that_something_fits_and_with_others() -> None:
    assert 0.3 < share_that_fits(0, 500) < 0.7
    assert SEEDS * EACH >= 20_000
