"""What to install on a Windows machine, and how it would be mended."""

from __future__ import annotations

import pytest

from tests.windows.machines import RTX_4090, registry
from tests.windows.rig import Windows
from tests.windows.test_check import cuda, nvml

pytestmark = pytest.mark.full


@pytest.fixture
def machine(windows: Windows) -> Windows:
    """An RTX 4090 and, for its Python, torch's build for the CPU."""
    windows.registry(registry(RTX_4090))
    windows.driver(nvml(), cuda())
    windows.with_torch()
    return windows


def test_the_stack_for_this_machine(machine: Windows) -> None:
    ran = machine.gpudoctor("setup", "torch", "--python", "D:\\patient\\python.exe")
    assert ran.code == 0
    assert "for NVIDIA GeForce RTX 4090, driver 581.29, Python 3.11.9, windows x86_64" in ran.out
    assert "$ D:\\patient\\python.exe -m pip install torch==" in ran.out
    assert "NCCL" not in ran.out, "which torch for Windows does not have"


def test_a_dry_run_installs_the_build_for_cuda(machine: Windows) -> None:
    before = sorted(path.name for path in (machine.folder / "patient/Lib/site-packages").iterdir())
    ran = machine.gpudoctor("fix", "--dry-run", "--python", "D:\\patient\\python.exe", env={"KMP_AFFINITY": "disabled"})
    assert ran.code == 0
    assert "$ D:\\patient\\python.exe -m pip install torch==2.9.0+cu" in ran.out
    assert "no longer found: torch.cpu-build" in ran.out
    assert "nvidia-" not in ran.out, "the wheel for Windows has CUDA's libraries in it"
    assert before == sorted(path.name for path in (machine.folder / "patient/Lib/site-packages").iterdir())


def test_a_kernel_on_the_processor(machine: Windows) -> None:
    """By the real torch for Windows."""
    words = ["bench", "--device", "cpu", "--kernel", "elementwise", "--python", "D:\\patient\\python.exe"]
    ran = machine.gpudoctor(*words, env={"KMP_AFFINITY": "disabled"})
    assert ran.code == 0, ran.out + ran.err
    assert "1 right, 0 wrong, 0 failed, 0 not run" in ran.out
