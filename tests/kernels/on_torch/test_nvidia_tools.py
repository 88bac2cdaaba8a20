"""NVIDIA's own tools: `cuobjdump` lists the architectures that we read, `ptxas` takes the driver's kernels."""

import importlib.metadata
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from gpudoctor.kernels.child.driver import _ptx
from gpudoctor.probes._binaries import architectures
from tests import needs
from tests.processes import finished

LIBRARY_WHEEL = "nvidia-nvjpeg-cu12"  # 5 MB with fifteen architectures in eleven fat binaries
TOOL_WHEEL = "nvidia-cuda-cuobjdump"


def file_of(wheel: str, name: re.Pattern[str]) -> Path:
    """The file of an installed wheel whose name matches."""
    try:
        files = importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        needs.missing(f"the wheel {wheel}")
    return next((Path(str(file.locate())) for file in files if name.fullmatch(file.name)), None) or needs.missing(
        f"{name.pattern} in the wheel {wheel}"
    )


@pytest.fixture(scope="module")
def library() -> Path:
    return file_of(LIBRARY_WHEEL, re.compile(r"libnvjpeg\.so\.\d+"))


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(file_of(TOOL_WHEEL, re.compile("cuobjdump")), tmp_path_factory.mktemp("tool"))


def runnable(tool: Path, folder: Path) -> Path:
    """A copy that may be run: not every installer keeps the executable bit."""
    copy = folder / tool.name
    shutil.copy(tool, copy)
    copy.chmod(0o755)
    return copy


@pytest.mark.parametrize(("option", "ours"), [("--list-elf", "sm_"), ("--list-ptx", "compute_")])
def test_the_architectures_are_those_cuobjdump_lists(library: Path, cuobjdump: Path, option: str, ours: str) -> None:
    done = finished([cuobjdump, option, library])
    theirs = Counter(f"{ours}{arch}" for arch in re.findall(r"\.sm_(\d+[af]?)\.", done.out))
    counts = architectures(library).counts
    assert {name: count for name, count in counts.items() if name.startswith(ours)} == theirs
    assert theirs


@pytest.fixture(scope="module")
def ptxas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(file_of("nvidia-cuda-nvcc", re.compile("ptxas")), tmp_path_factory.mktemp("tool"))


@pytest.mark.full
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
