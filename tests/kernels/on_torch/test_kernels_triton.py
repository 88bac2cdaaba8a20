"""Triton itself: what it says where the machine is sick, and that our kernels compile for each generation of GPUs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).with_name("compiled_sick.py")
PTXAS = "import triton.backends.nvidia as of; print(of.__path__[0] + '/bin/ptxas')"


@pytest.fixture(scope="module")
def python() -> str:
    return needs.triton_python()


def _told(python: str, tmp_path: Path, step: str, *arguments: str, **environ: str) -> str:
    given = {name: value for name, value in os.environ.items() if name not in {"CC", "CXX"}}
    given.update(TRITON_CACHE_DIR=str(tmp_path / "cache"), **environ)
    argv = [python, str(PROGRAM), step, *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600, env=given)
    return done.stdout.splitlines()[-1]


def test_a_sound_toolchain_fails_at_nothing(python: str, tmp_path: Path) -> None:
    assert _told(python, tmp_path, "ahead", "90") == "nothing failed"


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


@pytest.mark.parametrize("capability", SHARED)
def test_every_kernel_compiles(capability: int, tmp_path: Path) -> None:
    environ = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    argv = [needs.triton_python(), str(AHEAD), str(capability)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, env=environ)
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told) == {"add", "softmax", "histogram", "matmul.fp16", "matmul.bf16", "matmul.fp32"}
    for name, kernel in told.items():
        assert bytes.fromhex(kernel["begins"]) == b"\x7fELF", name
        assert kernel["target"].rstrip("af") == f"sm_{capability}"
        assert kernel["shared"] <= SHARED[capability] << 10, name
    if capability >= 80:
        assert all(told[f"matmul.{kind}"]["matrix"] for kind in ("fp16", "bf16", "fp32"))
