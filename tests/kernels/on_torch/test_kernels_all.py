"""Every kernel there is, on the CPU, as ``gpudoctor bench --device cpu`` runs it: each runs, and each is checked."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.kernels import specs
from tests import needs
from tests.conftest import Program

pytestmark = pytest.mark.full

FRAMEWORKS = ("jax.", "tensorflow.")
"""What need not be installed beside torch."""
TIMES_ALONE = {"driver.launch", "allocator", "compile.caches"}
"""Kernels without a result that could be right or wrong."""


@pytest.fixture(scope="module")
def runs(gpudoctor: Program) -> dict[str, Any]:
    argv = ("bench", "--device", "cpu", "--json", "--python", needs.triton_python())
    ran = gpudoctor(*argv, timeout=550)
    assert ran.code == 0, ran.out
    return {run["kernel"]: run for run in ran.document["runs"]}


def test_every_kernel_runs_without_a_gpu(runs: dict[str, Any]) -> None:
    every = {one.spec.id for one in specs.select_kernels(())}
    assert set(runs) == every
    idle = {name: run.get("because") for name, run in runs.items() if run["status"] != "ran"}
    assert [name for name in idle if not name.startswith(FRAMEWORKS)] == [], idle
    assert all("is not installed" in str(because) for because in idle.values())


def test_every_result_is_compared_with_a_reference(runs: dict[str, Any]) -> None:
    assert [name for name, run in runs.items() if run.get("right") is False] == []
    unchecked = {name for name, run in runs.items() if run["status"] == "ran" and run.get("right") is None}
    assert unchecked <= TIMES_ALONE, unchecked


def test_readiness_says_what_a_figure_means_and_what_to_do(runs: dict[str, Any]) -> None:
    for name, run in runs.items():
        if name.startswith("readiness."):
            assert run.get("words"), name
            assert run.get("advice"), name
