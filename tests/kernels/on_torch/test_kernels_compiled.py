"""The compiled rung on the CPU: Triton, inductor, JAX and TensorFlow; what sick machines make of them."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import runner, specs
from gpudoctor.target.local import Local
from tests import needs
from tests.processes import left

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
GPU = [one for one in specs.select_kernels(["compiled"]) if one.spec.scope == "gpu"]


@pytest.fixture(scope="module")
def python() -> str:
    return needs.triton_python()


def _ask(python: str, names: list[str], **environ: str) -> runner.RungResult:
    target = Local("deep", python, environ={**os.environ, **environ})
    kernels = [one for one in specs.all_kernels() if one.spec.id in names]
    return runner.ask(target, runner.Question("compiled", "cpu", kernels), lambda *_: None, lambda: "")


def test_a_child_that_is_killed_leaves_no_folder(python: str, tmp_path: Path) -> None:
    halted = False

    def hear(_: str, outcome: Mapping[str, Any]) -> None:
        nonlocal halted
        halted = True

    target = Local("deep", python, environ={**os.environ, "TMPDIR": str(tmp_path)})
    kernels = [one for one in GPU if one.spec.id == "compile.function"]
    question = runner.Question("compiled", "cpu", kernels)
    heard = runner.ask(target, question, hear, lambda: "stopped" if halted else "")
    assert halted
    assert not heard.outcomes
    assert left(tmp_path.iterdir) == []


def test_without_triton_only_its_kernels_cannot_be_run(python: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    heard = _ask(python, ["triton.add", "compile.caches"], PYTHONPATH=str(tmp_path))
    assert heard.outcomes["triton.add"]["status"] == "not-run"
    assert heard.outcomes["triton.add"]["because"] == "triton is not installed in this interpreter"
    assert heard.outcomes["compile.caches"]["status"] == "ran"


def test_without_a_compiler_inductor_cannot_be_run_on_the_cpu(python: str, tmp_path: Path) -> None:
    outcome = _ask(python, ["compile.function"], PATH=str(tmp_path), CXX="g++").outcomes["compile.function"]
    assert outcome["status"] == "not-run"
    assert outcome["because"] == "inductor compiles for the CPU with g++ or clang++, and there is none"


def test_torch_compile_that_is_switched_off_is_not_measured(python: str) -> None:
    outcome = _ask(python, ["compile.function"], TORCHDYNAMO_DISABLE="1").outcomes["compile.function"]
    assert outcome["status"] == "not-run"
    assert outcome["because"] == "TORCHDYNAMO_DISABLE=1 switches torch.compile off"


def test_a_cache_folder_that_is_none_is_told(python: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    heard = _ask(python, ["compile.caches"], TRITON_CACHE_DIR=str(tmp_path / "file" / "cache"))
    outcome = heard.outcomes["compile.caches"]
    assert outcome["status"] == "failed"
    assert f"{tmp_path}/file may not be written to" in outcome["because"]
    assert outcome["advice"] == "set TRITON_CACHE_DIR to a folder on a local disk"


def test_every_flipped_bit_is_seen(python: str) -> None:
    """Of results at random sizes, one bit that the check states it sees; and clean results raise no alarm."""
    argv = [python, str(HERE / "compiled_faults.py"), "100", "1"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["bad"] == []
    assert told["flipped"] == 100
    assert told["clean"] >= 100
    assert set(told["kernels"]) == {one.spec.id for one in GPU if one.spec.id.startswith("triton.")}


def _ask_family(python: str, family: str, device: str, **environ: str) -> runner.RungResult:
    target = Local("deep", python, environ={**os.environ, **environ})
    kernels = [one for one in specs.all_kernels() if one.family == family]
    return runner.ask(target, runner.Question(family, device, kernels), lambda *_: None, lambda: "")


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_what_is_not_installed_is_not_run(family: str) -> None:
    heard = _ask_family(needs.torch_python(), family, "cpu")
    assert (heard.opened, heard.failed) == (False, False)
    assert heard.closed == f"{family} is not installed in this interpreter"


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_the_cpu_is_seen_and_its_product_right(family: str) -> None:
    heard = _ask_family(needs.framework_python(family), family, "cpu")
    seen, product = heard.outcomes[f"{family}.device"], heard.outcomes[f"{family}.matmul"]
    assert seen["right"] is True
    assert "cpu" in seen["details"]["device"].lower()
    assert (product["status"], product["right"], product["differ"]) == ("ran", True, 0)
    assert product["compared"] > 9000
    assert product["value"] > 0


@pytest.mark.parametrize("family", ["jax", "tensorflow"])
def test_a_build_for_the_cpu_alone_says_nothing_against_the_gpu(family: str) -> None:
    heard = _ask_family(needs.framework_python(family), family, "cuda:0")
    assert (heard.opened, heard.failed) == (False, False)
    assert "without" in heard.closed
    assert "CUDA" in heard.closed


def test_a_gpu_that_jax_does_not_see_is_a_failure_with_its_words(tmp_path: Path) -> None:
    """Its plugin is there, by name; no driver is."""
    (tmp_path / "jax_cuda12_plugin.py").touch()
    heard = _ask_family(
        needs.framework_python("jax"), "jax", "cuda:0", PYTHONPATH=str(tmp_path), CUDA_VISIBLE_DEVICES=""
    )
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


PROGRAM = Path(__file__).with_name("compiled_sick.py")
PTXAS = "import triton.backends.nvidia as of; print(of.__path__[0] + '/bin/ptxas')"


def _told(python: str, tmp_path: Path, step: str, *arguments: str, **environ: str) -> str:
    given = {name: value for name, value in os.environ.items() if name not in {"CC", "CXX"}}
    given.update(TRITON_CACHE_DIR=str(tmp_path / "cache"), **environ)
    argv = [python, str(PROGRAM), step, *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600, env=given)
    return done.stdout.splitlines()[-1]


def test_a_compiler_that_is_none_not_there_or_fails(python: str, tmp_path: Path) -> None:
    told = _told(python, tmp_path, "build", PATH=str(tmp_path))
    assert told.startswith("Broken: there is no C compiler: Triton builds its launcher")
    told = _told(python, tmp_path, "build", CC="/nowhere/gcc-14")
    assert (
        told == "Broken: CC names /nowhere/gcc-14, which is not there; unset CC, or name a C compiler that is installed"
    )
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexit 4\n")
    compiler.chmod(0o755)
    told = _told(python, tmp_path, "build", CC=str(compiler))
    assert told.startswith((f"Broken: {compiler}, with which Triton", "Broken: Python.h is missing"))


def test_an_assembler_too_old_for_the_gpu(python: str, tmp_path: Path) -> None:
    """The older of the two that this Triton brings along, asked for a GPU that came after it."""
    old = subprocess.run([python, "-c", PTXAS], check=True, capture_output=True, text=True).stdout.strip()
    told = _told(python, tmp_path, "ahead", "103", TRITON_PTXAS_BLACKWELL_PATH=old)
    assert told.startswith("Broken: Triton's ptxas is too old for this GPU: it does not know sm_103")


def test_an_assembler_that_cannot_be_run(python: str, tmp_path: Path) -> None:
    """It says its release, and then nothing more."""
    broken = tmp_path / "ptxas"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, release 12.8, V12.8.93" && exit 0\nexit 9\n'
    )
    broken.chmod(0o755)
    told = _told(python, tmp_path, "ahead", "80", TRITON_PTXAS_PATH=str(broken))
    assert told.startswith(f"Broken: {broken}, which Triton runs, ended with status 9")


def test_no_driver_library(python: str, tmp_path: Path) -> None:
    if "libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout:
        pytest.skip("this machine has libcuda.so.1")
    told = _told(python, tmp_path, "driver", LD_LIBRARY_PATH="")
    assert told.startswith("Broken: Triton does not find libcuda.so.1: the loader's cache (ldconfig -p)")


AHEAD = Path(__file__).with_name("compiled_ahead.py")
SHARED = {75: 64, 80: 163, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a block may use: CUDA C++ Programming Guide 13.0, table of compute capabilities."""


def test_every_kernel_compiles(tmp_path: Path) -> None:
    environ = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    argv = [needs.triton_python(), str(AHEAD), *map(str, SHARED)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600, env=environ)
    for (capability, shared), told in zip(
        SHARED.items(), json.loads(done.stdout.splitlines()[-1]).values(), strict=True
    ):
        assert set(told) == {"add", "softmax", "histogram", "matmul.fp16", "matmul.bf16", "matmul.fp32"}
        for name, kernel in told.items():
            assert bytes.fromhex(kernel["begins"]) == b"\x7fELF", name
            assert kernel["target"].rstrip("af") == f"sm_{capability}"
            assert kernel["shared"] <= shared << 10, name
        if capability >= 80:
            assert all(told[f"matmul.{kind}"]["matrix"] for kind in ("fp16", "bf16", "fp32"))
