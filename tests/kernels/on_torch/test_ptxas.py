"""NVIDIA's own assembler takes the PTX of the driver's kernels, for every GPU that it knows of ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpudoctor.kernels.child.driver import _ptx
from tests.kernels.on_torch.test_fatbin_oracle import file_of, runnable

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ptxas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(file_of("nvidia-cuda-nvcc", re.compile("ptxas")), tmp_path_factory.mktemp("tool"))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"])
@pytest.mark.parametrize("name", _ptx.programs())
def test_every_program_is_assembled_without_a_word(ptxas: Path, name: str, arch: str, tmp_path: Path) -> None:
    program, made = tmp_path / f"{name}.ptx", tmp_path / f"{name}.cubin"
    program.write_text(_ptx.text(name))
    argv = [str(ptxas), f"--gpu-name={arch}", "--warn-on-spills", "--warning-as-error", str(program), "-o", str(made)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert made.read_bytes()[:4] == b"\x7fELF"
    for kernel in _ptx.entries(_ptx.text(name)):
        assert kernel.encode() in made.read_bytes()
