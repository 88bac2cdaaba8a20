"""NVIDIA's own `cuobjdump` and we read the same architectures from the same NVIDIA library."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from gpudoctor.probes._elf import architectures
from tests import needs

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
    done = subprocess.run(
        [str(cuobjdump), option, str(library)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ},
        timeout=600,
    )
    theirs = Counter(f"{ours}{arch}" for arch in re.findall(r"\.sm_(\d+[af]?)\.", done.stdout))
    counts = architectures(library).counts
    assert {name: count for name, count in counts.items() if name.startswith(ours)} == theirs
    assert theirs
