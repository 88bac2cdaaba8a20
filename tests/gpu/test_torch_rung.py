"""On a real GPU: torch's operations are right, and our matmul rate is the one that Triton's own benchmark gets."""

from __future__ import annotations

import json
import subprocess

import pytest

from gpudoctor.kernels import specs
from tests import needs
from tests.conftest import Program
from tests.gpu.measured import Runs, measured
from tests.gpu.steps import DO_BENCH

pytestmark = pytest.mark.gpu

IDS = [one.spec.id for one in specs.all_kernels() if one.family == "eager" and one.spec.scope == "gpu"]


@pytest.fixture(scope="module")
def found(gpudoctor: Program) -> Runs:
    return measured(gpudoctor, IDS)


@pytest.mark.parametrize("name", IDS)
def test_a_sound_gpu_is_right_or_says_what_it_has_not(found: Runs, name: str) -> None:
    run = found[name]
    assert run["status"] != "failed", run["because"]
    if run["status"] == "ran":
        assert run.get("right") is not False, run["words"]
    else:
        assert run["because"]


def test_repetitions_are_equal_to_the_bit(found: Runs) -> None:
    assert [name for name, run in found.items() if run.get("details", {}).get("repeats_equal") is False] == []


def test_the_bf16_rate_is_that_of_tritons_benchmark(found: Runs) -> None:
    run = found["matmul.bf16"]
    argv = [needs.torch_python(), "-c", DO_BENCH, str(run["details"]["side"])]
    best = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300).stdout)
    assert run["value"] >= 0.95 * best
