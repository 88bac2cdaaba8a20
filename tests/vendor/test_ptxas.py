"""NVIDIA's own assembler takes the PTX of the driver's kernels, for every GPU that it knows of ours."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudoctor.kernels.child.driver import _ptx
from tests import needs

pytestmark = pytest.mark.full

WHEEL = "nvidia-cuda-nvcc"


@pytest.fixture(scope="module")
def ptxas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that may be run: not every installer keeps the executable bit."""
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        needs.missing(f"the wheel {WHEEL}")
    found = next((Path(str(file.locate())) for file in files if file.name == "ptxas"), None)
    if found is None:
        needs.missing(f"ptxas in the wheel {WHEEL}")
    tool = tmp_path_factory.mktemp("tool") / "ptxas"
    shutil.copy(found, tool)
    tool.chmod(0o755)
    return tool


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"])
@pytest.mark.parametrize("name", _ptx.programs())
def test_every_program_is_assembled_without_a_word(ptxas: Path, name: str, arch: str, tmp_path: Path) -> None:
    program, made = tmp_path / f"{name}.ptx", tmp_path / f"{name}.cubin"
    program.write_text(_ptx.text(name))
    argv = [str(ptxas), f"--gpu-name={arch}", "--warn-on-spills", "--warning-as-error", str(program), "-o", str(made)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert made.read_bytes()[:4] == b"\x7fELF"
    for kernel in _ptx.entries(_ptx.text(name)):
        assert kernel.encode() in made.read_bytes()
