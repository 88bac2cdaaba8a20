"""On a real GPU: our copies are as fast as torch's own, and a sound GPU reaches what the table expects of it."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import needs
from tests.conftest import Program
from tests.gpu.measured import Runs, measured

pytestmark = pytest.mark.gpu

NAMES = ("copy.device", "copy.to", "copy.from", "launch", "allocator", "matmul.fp32", "matmul.bf16")
OWN = """
import json, time, torch
source = torch.empty(512 << 17, dtype=torch.int64, device="cuda").random_()
target = torch.empty_like(source)
def rate():
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(200):
        target.copy_(source)
    torch.cuda.synchronize()
    return 200 * 2 * source.nbytes / (time.perf_counter() - began) / 1e9
rate()
print(json.dumps(max(rate() for _ in range(5))))
"""


@pytest.fixture(scope="module")
def found(gpudoctor: Program) -> Runs:
    return measured(gpudoctor, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_ran_and_was_right(found: Runs, name: str) -> None:
    assert found[name]["status"] == "ran", found[name]["because"]
    assert found[name].get("right") is not False, found[name]["words"]


def test_a_copy_in_its_memory_is_as_fast_as_torchs_own(found: Runs) -> None:
    done = subprocess.run([needs.torch_python(), "-c", OWN], check=True, capture_output=True, text=True, timeout=300)
    assert found["copy.device"]["value"] >= 0.95 * float(json.loads(done.stdout))


@pytest.mark.parametrize("name", ["copy.device", "matmul.fp32", "matmul.bf16"])
def test_a_sound_gpu_reaches_what_is_expected_of_it(found: Runs, name: str) -> None:
    expected = found[name].get("expected")
    if expected is None:
        pytest.skip(f"nothing is expected of {name} on this GPU")
    assert found[name]["value"] > expected["value"]
