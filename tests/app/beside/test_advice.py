"""What would make a sound run faster, by the figure that shows it; a well-fed run gets no advice."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app.beside import judging
from gpudoctor.app.beside.gpus import GPUUse
from gpudoctor.core.fact import value_of
from gpudoctor.core.sample import GPU, Process, Sample
from gpudoctor.target.beside.command import Ended
from tests import needs
from tests.app.beside.running import document, found

TRAIN = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
slow, workers = sys.argv[1] == "slow", int(sys.argv[2])
torch.set_num_threads(1)
class Data(Dataset):
    def __len__(self): return 10 ** 6
    def __getitem__(self, at):
        end = time.process_time() + (0.02 if slow else 0)
        while time.process_time() < end: pass
        return torch.ones(64)
model, weight = torch.nn.Linear(64, 64), torch.ones(1200, 1200)
end = time.monotonic() + 25
for batch in DataLoader(Data(), batch_size=16, num_workers=workers):
    model(batch).sum().backward()
    if not slow:
        weight @ weight
    if time.monotonic() > end:
        break
"""
"""Either the data is slow and the step is nothing, or the other way round."""
GIB = 1024.0


def train(tmp_path: Path, how: str, workers: int) -> list[str]:
    """A training on one processor with real torch and its DataLoader."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    cpu = str(min(os.sched_getaffinity(0)))
    return [needs.program("taskset"), "-c", cpu, needs.torch_python(), str(script), how, str(workers)]


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 3])
def test_a_training_that_waits_for_its_data(workers: int, tmp_path: Path) -> None:
    whole, end = document(train(tmp_path, "slow", workers), tmp_path)
    assert end.code == 0
    assert whole["verdict"] == "sound"
    title = found(whole)["workload.input-bound"]
    assert title.startswith("The training waits for data: it was at work for ")
    assert f"its DataLoader workers ({workers}) for " in title
    assert ("3 workers share 1 of the machine's processors" in title) == (workers == 3)
    assert [finding["severity"] for finding in whole["findings"]] == ["info"]


@pytest.mark.full
def test_a_training_that_is_fed(tmp_path: Path) -> None:
    whole, end = document(train(tmp_path, "fed", 2), tmp_path)
    assert end.code == 0
    assert whole["facts"]["run.loader_workers"]["value"] == 2
    assert whole["findings"] == []


def eight(change: Callable[[int, int], dict[str, Any]]) -> GPUUse:
    """Eight GPUs at full load for ten minutes, as the samples show it; `change` differs by GPU and second."""
    use = GPUUse()
    for second in range(600):
        gpus = []
        for index in range(8):
            python = Process(4200 + index, "python", memory_mib=70000)
            whole = GPU(index, "NVIDIA H100 80GB HBM3", processes=(python,), power_w=690.0, temperature_c=70.0)
            full = replace(whole, utilization=98.0, clock_mhz=1700.0 + index, throttle_reasons=("sw_power_cap",))
            full = replace(full, memory_mib=80 * GIB, memory_used_mib=72 * GIB)
            gpus.append(replace(full, **change(index, second)))
        use.add(Sample(1000.0 + second, tuple(gpus)))
    return use


def advice(use: GPUUse) -> dict[str, str]:
    """The findings about a command that used these GPUs for ten minutes."""
    own = range(4200, 4208)
    ended = Ended(4200, 0, None, False, 0.0, 600.0, 600.0, 100, ())
    groups = {"run_gpu": use.rows(own)}
    judged = judging.judge(ended, ["python", "train.py"], use.facts(own), groups, None, alarming=False)
    return {finding.id: finding.title for finding in judged.findings}


def test_eight_gpus_at_full_load_get_none() -> None:
    assert advice(eight(lambda _index, _second: {})) == {}


def test_a_pause_at_the_begin_and_the_end_is_no_idleness() -> None:
    """Compiling before the first step, and saving after the last one."""
    use = eight(lambda _index, second: {"utilization": 0.0} if second < 250 or second > 500 else {})
    assert value_of(use.facts([4200])["run.gpu_busy"]) == 98
    assert advice(use) == {}


def test_a_gpu_that_is_slower_than_the_others() -> None:
    found_of_it = advice(eight(lambda index, _second: {"clock_mhz": 1105.0} if index == 5 else {}))
    assert found_of_it == {
        "workload.gpu-slowed": "GPU 5 ran at 1105 MHz while it worked, 65 % of what the other GPUs had"
    }


def test_a_gpu_that_is_too_hot() -> None:
    hot = {"throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown"), "temperature_c": 92.0}
    title = advice(eight(lambda index, second: hot if index == 2 and second >= 300 else {}))["workload.gpu-slowed"]
    assert title.startswith("GPU 2 was held down by ")
    assert title.endswith(" for 300 of 600 s; it was up to 92 degrees C hot")


def test_memory_that_lies_free() -> None:
    small = {"memory_used_mib": 8 * GIB, "utilization": 40.0}
    assert advice(eight(lambda _index, _second: small)) == {
        "workload.memory-free": "The GPUs were 40 % busy and at most 10 % of a GPU's memory was in use:"
        " a larger batch would fit"
    }
    assert advice(eight(lambda _index, _second: {"memory_used_mib": 8 * GIB})) == {}
