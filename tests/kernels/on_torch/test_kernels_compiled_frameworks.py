"""JAX and TensorFlow: seen and checked where they are installed, and no failure where they are not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpudoctor.kernels import runner, specs
from gpudoctor.target.local import Local
from tests import needs

pytestmark = pytest.mark.full


def _ask(python: str, family: str, device: str, **environ: str) -> runner.RungResult:
    target = Local("deep", python, environ={**os.environ, **environ})
    kernels = [one for one in specs.all_kernels() if one.family == family]
    return runner.ask(target, runner.Question(family, device, kernels), lambda *_: None, lambda: "")


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_what_is_not_installed_is_not_run(family: str) -> None:
    heard = _ask(needs.torch_python(), family, "cpu")
    assert (heard.opened, heard.failed) == (False, False)
    assert heard.closed == f"{family} is not installed in this interpreter"


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_the_cpu_is_seen_and_its_product_right(family: str) -> None:
    heard = _ask(needs.framework_python(family), family, "cpu")
    seen, product = heard.outcomes[f"{family}.device"], heard.outcomes[f"{family}.matmul"]
    assert seen["right"] is True
    assert "cpu" in seen["details"]["device"].lower()
    assert (product["status"], product["right"], product["differ"]) == ("ran", True, 0)
    assert product["compared"] > 9000
    assert product["value"] > 0


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_a_build_for_the_cpu_alone_says_nothing_against_the_gpu(family: str) -> None:
    heard = _ask(needs.framework_python(family), family, "cuda:0")
    assert (heard.opened, heard.failed) == (False, False)
    assert "without" in heard.closed
    assert "CUDA" in heard.closed


def test_a_gpu_that_jax_does_not_see_is_a_failure_with_its_words(tmp_path: Path) -> None:
    """Its plugin is there, by name; no driver is."""
    (tmp_path / "jax_cuda12_plugin.py").touch()
    heard = _ask(needs.framework_python("jax"), "jax", "cuda:0", PYTHONPATH=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    seen = heard.outcomes["jax.device"]
    assert seen["status"] == "failed"
    assert "sees no GPU: " in seen["because"]
    assert "gpu" in seen["because"].partition("sees no GPU: ")[2]
    assert "jax[cuda12]" in seen["advice"]
    assert heard.outcomes["jax.matmul"]["status"] == "not-run"


def test_a_wrong_product_is_seen() -> None:
    """One value of what the framework brings back is off by one unit of the last place."""
    code = f"""
import json, sys
sys.path.insert(0, {str(Path(runner.program()).parent.parent)!r})
import numpy
from child import _framework
def multiply(left, right):
    def once():
        result = left @ right
        result[3, 5] = numpy.nextafter(result[3, 5], numpy.float32(numpy.inf))
        return result
    return once
print(json.dumps(_framework.product(1, True, multiply).to_json()))
"""
    python = needs.triton_python()  # any that has numpy
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=600)
    told = json.loads(done.stdout)
    assert (told["right"], told["differ"]) == (False, 1)
    assert told["words"] == "1 of 9216 values are wrong, the first at [3, 5]"
