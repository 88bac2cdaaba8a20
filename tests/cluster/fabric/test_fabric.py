"""What is promised of 1,024 hosts, and what holds of the rest: 500 trials by ``python -m tests.cluster.fabric``."""

from __future__ import annotations

import pytest

from tests.cluster.fabric.trials import SCENES, trials

PROMISED = "one_slow_one_dead"


@pytest.mark.full
def test_one_slow_and_one_dead_of_1024_are_named_and_nobody_else() -> None:
    figures = trials(PROMISED, 60, seed=1)
    assert figures.named >= 0.98  # one of 60 may be missed; of 500 the module asserts 99 %
    assert figures.wronged == 0
    assert figures.rounds <= 4


@pytest.mark.parametrize(
    "scene", [pytest.param(one, marks=pytest.mark.full) for one in SCENES if one not in (PROMISED, "few")] + ["few"]
)
def test_the_other_scenes(scene: str) -> None:
    figures = trials(scene, 200 if "few" in scene or "busy" in scene else 10, seed=1)
    assert figures.named >= {"few": 0.95, "few_bad_path": 0.95, "bad_path": 0.9}.get(scene, 0.99)
    assert figures.wronged <= 0.005
    assert figures.rounds <= 4
