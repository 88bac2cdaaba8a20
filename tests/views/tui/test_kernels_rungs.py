"""Kernels of a whole ladder: rungs as sections, what all GPUs did together, figures with advice, facts of a file."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpudoctor.app import interactive
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.measurement import Device, Kernel, Measurements, Run, Step
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.kernels.facts import measured as with_facts
from gpudoctor.views.tui.screens.kernels import KernelsScreen
from tests.views.tui.conftest import WIDE, Opened, shown, text, until
from tests.views.tui.test_kernels import kernels, sound, work

ADD = Kernel("driver.add", "vector add, driver alone", "", rung="driver")
FFT = Kernel("fft", "Fourier transforms", "")
PEERS = Kernel("peer.copy", "GPU to GPU", "GB/s")
LOADER = Kernel("readiness.dataloader", "DataLoader at its best", "samples/s", level="deep", rung="training")
_HOLDS = (Step("driver", True), Step("torch", True))


def ladder() -> Measurements:
    """Two GPUs, of which one fails in one operation of torch's."""
    failed = Step("torch", False, "fft: RuntimeError: CUFFT_INTERNAL_ERROR")
    said = "812 samples/s with 4 workers, 230 with none; a step takes 790."
    runs = (
        *(Run("driver.add", gpu, "ran", right=True, compared=4096, ladder=_HOLDS[:1]) for gpu in range(2)),
        Run("fft", 0, "ran", right=True, ladder=_HOLDS),
        Run("fft", 1, "failed", because="RuntimeError: CUFFT_INTERNAL_ERROR", ladder=(_HOLDS[0], failed)),
        Run("peer.copy", -1, "ran", 24.1, right=True, ladder=_HOLDS, details={"rates": {"0-1": 24.1, "1-0": 24.0}}),
        Run("readiness.dataloader", -1, "ran", 812, words=said, advice="Set num_workers=4.", details={"best": 4}),
    )
    devices = tuple(Device(gpu, "H100") for gpu in range(2))
    return Measurements("node05", (ADD, FFT, PEERS, LOADER), devices, runs)


async def to(pilot: Pilot[None], screen: KernelsScreen, kernel: str) -> str:
    """The words about that kernel."""
    assert screen.found
    screen.action_kernel([one.id for one in screen.found.kernels].index(kernel))
    await pilot.pause()
    await pilot.pause()
    return screen.detail.prose.text


async def test_each_rung_says_what_failed_what_was_measured_together_and_what_to_do(opened: Opened) -> None:
    async with opened(work(ladder()), WIDE) as pilot:
        screen = await kernels(pilot)
        for rung, title in (("driver", "vector add"), ("torch", "Fourier"), ("train", "DataLoader")):
            assert any(f"{rung} " in line and title in line for line in shown(pilot))
        said = screen.detail.prose.text
        assert "GPU 1: Fourier transforms failed at torch" in said
        assert said.count("CUFFT_INTERNAL_ERROR") == 1
        assert "torch itself works on this GPU" in said
        said = await to(pilot, screen, "peer.copy")
        assert "all GPUs: GPU to GPU as it should be" in said
        assert "rates: 0-1 24.1, 1-0 24" in said
        assert any(" all GPUs " in line and "24.1" in line for line in shown(pilot))
        said = await to(pilot, screen, "readiness.dataloader")
        assert "812 samples/s with 4 workers, 230 with none" in said
        assert "Set num_workers=4." in said
        assert "best: 4" in said
        await to(pilot, screen, "driver.add")
        assert sum("✓ values as those of the reference" in line for line in shown(pilot)) == 2


async def test_on_a_cpu_there_is_no_gpu_0(opened: Opened) -> None:
    run = Run("fft", 0, "ran", right=False, differ=1, compared=64)
    async with opened(work(Measurements("x", (FFT,), (Device(0, "CPU"),), (run,))), WIDE) as pilot:
        await kernels(pilot)
        assert "CPU computes wrong values" in shown(pilot)[0]
        assert "GPU 0" not in text(pilot)
        assert "CUDA_VISIBLE_DEVICES" not in text(pilot)


async def test_what_was_measured_becomes_part_of_the_diagnosis(opened: Opened) -> None:
    def judged(diagnosis: Diagnosis, found: Measurements) -> Diagnosis:
        assert found.runs == ladder().runs
        return Diagnosis(with_facts(diagnosis.snapshot, found), "broken", (), (), (), "1")

    async with opened(work(kernels=lambda *_: ladder(), judged=judged)) as pilot:
        await kernels(pilot)
        await pilot.press("R")
        await until(pilot, lambda: pilot.app.diagnosis.verdict == "broken")  # type: ignore[attr-defined]
        assert len(pilot.app.diagnosis.snapshot.rows("measured")) == 6  # type: ignore[attr-defined]


def test_a_file_gives_what_was_measured_there(tmp_path: Path) -> None:
    snapshot = with_facts(Snapshot(Target("local", "node05"), sound().snapshot.facts), ladder())
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(snapshot.to_json()))
    opened_file = interactive.of_files([str(path)], ())
    assert opened_file.measured
    assert opened_file.measured() is None
    opened_file.diagnose(lambda _: None, lambda _: None)
    found = opened_file.measured()
    assert found
    assert [(run.kernel, run.gpu, run.status, run.advice) for run in found.runs] == [
        (run.kernel, run.gpu, run.status, run.advice) for run in ladder().runs
    ]


def test_without_a_gpu_nothing_is_measured_from_here_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    here = interactive.of_this_machine("quick", None, ())
    assert here.kernels
    with pytest.raises(UsageError, match=r"no GPU that CUDA lists.*gpudoctor bench --device cpu"):
        here.kernels([], lambda _: None, threading.Event())
