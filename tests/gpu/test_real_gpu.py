"""On a real GPU: we read what nvidia-smi prints, and its record makes the simulated libraries answer the same."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.conftest import Program
from tests.sim import scenario
from tests.sim.root import Machine

pytestmark = pytest.mark.gpu

_SMI = {
    "name": "name",
    "uuid": "uuid",
    "memory.total": "memory_mib",
    "pcie.link.gen.max": "link_generation_max",
    "pcie.link.width.max": "link_width_max",
    "power.default_limit": "power_limit_default_w",
    "clocks.max.sm": "clock_max_mhz",
    "vbios_version": "vbios",
}
"""Fields of ``nvidia-smi --query-gpu`` that stand still, and our columns."""


@pytest.fixture(scope="module")
def document(gpudoctor: Program) -> Any:
    """This machine, diagnosed."""
    if not shutil.which("nvidia-smi"):
        pytest.skip("needs an NVIDIA GPU with nvidia-smi")
    return gpudoctor("--json", "--level", "quick").document


def test_we_read_what_nvidia_smi_prints(document: Any) -> None:
    argv = ["nvidia-smi", f"--query-gpu={','.join(_SMI)}", "--format=csv,noheader,nounits"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
    printed = [[field.strip() for field in row] for row in csv.reader(said.splitlines())]
    assert len(printed) == document["facts"]["gpu.count"]["value"]
    for row, gpu in zip(printed, document["facts"]["gpu"], strict=True):
        for field, column in zip(row, _SMI.values(), strict=True):
            value = gpu[column].get("value")
            if field not in ("[N/A]", "[Not Supported]"):
                assert str(value) == field or float(field) == pytest.approx(float(value), abs=1), column


def test_the_driver_answers_and_no_call_is_unknown_to_it(document: Any) -> None:
    assert document["facts"]["nvml.state"]["value"] == "ok"
    unread = {name for gpu in document["facts"]["gpu"] for name, state in gpu.items() if "unread" in state}
    assert unread == set()


def test_a_record_of_it_makes_the_simulated_driver_answer_the_same(
    document: Any, gpudoctor: Program, tmp_path: Path
) -> None:
    """The one proof that our simulated libraries are true: the same program, over the real driver and over them."""
    assert gpudoctor("record", "--level", "quick", "-o", str(tmp_path / "record.json")).code == 0
    root = tmp_path / "root"
    root.mkdir()
    again = Machine(scenario.load(tmp_path / "record.json"), root).gpudoctor("--json", "--level", "quick").document
    assert [one["id"] for one in again["findings"]] == [one["id"] for one in document["findings"]]
    for real, simulated in zip(document["facts"]["gpu"], again["facts"]["gpu"], strict=True):
        assert {name: sorted(state) for name, state in simulated.items()} == {
            name: sorted(state) for name, state in real.items()
        }


def test_cuda_runs_a_checked_kernel_on_every_gpu(document: Any, gpudoctor: Program) -> None:
    python = needs.torch_python()
    whole = gpudoctor("--json", "--python", python, timeout=120).document
    if "value" not in whole["facts"]["torch.cuda"]:
        pytest.skip(f"needs torch with CUDA in {python}")
    kernels = [gpu["kernel"]["value"] for gpu in whole["facts"]["live_gpu"]]
    assert kernels == ["ok"] * len(document["facts"]["gpu"])
