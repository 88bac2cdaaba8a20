"""Kernels: bars against what was expected, what is wrong with a GPU or a rung, and measuring from here."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.app import interactive
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.core.measurement import Device, Kernel, Measurements, Run, Step
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.kernels.facts import measured as with_facts
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.kernels import KernelsScreen
from gpudoctor.views.tui.work import Work
from tests import measured
from tests.views.tui.conftest import SIZES, WIDE, Opened, opened_by, shown, text, until
from tests.views.tui.machines import diagnosis_of


@cache
def sound() -> Diagnosis:
    """A machine that nothing is wrong with, as far as its facts go."""
    return diagnosis_of("hgx-h100")


def work(found: Measurements | None = None, **more: Any) -> Work:
    """That machine, with what was measured on it."""
    return Work("node05", lambda _, __: sound(), lambda name: name, measured=lambda: found, **more)


async def kernels(pilot: Pilot[None]) -> KernelsScreen:
    """The screen, with what was measured on it."""
    return await opened_by("4", KernelsScreen, pilot, "Reading what was measured …")


async def test_a_slow_gpu_says_what_held_it_back_and_e_where_the_expected_value_comes_from(opened: Opened) -> None:
    async with opened(work(measured.node()), WIDE) as pilot:
        screen = await kernels(pilot)
        await pilot.press("e")
        assert "73 % of it is what sound ones achieve" in screen.detail.prose.text
        assert "ml-engineering" in screen.detail.prose.text
        await pilot.press("escape")
        assert "values differ" in screen.detail.prose.text
        await pilot.press("up")
        said = screen.detail.prose.text
        assert "GPU 5 does 56 % of what it should in bf16 matmul" in said
        assert "Held back by: heat (hardware slowdown)." in said
        assert "1110 of 1980 MHz · 88 °C · 412 of 700 W" in said
        assert "▼ heat" in text(pilot)
        while screen.kernel and screen.kernel.id != "launch":  # of which no table says what to expect
            await pilot.press("right")
        assert any("of the median 4.1" in line for line in shown(pilot))
        await pilot.press("e")
        assert "the median of 7 GPUs of this name" in screen.detail.prose.text


async def test_n_goes_from_bad_to_bad_through_all_kernels(opened: Opened) -> None:
    async with opened(work(measured.node())) as pilot:
        screen = await kernels(pilot)
        places = []
        for _ in range(6):
            assert screen.bars.run
            places.append((screen.bars.run.kernel.partition(".")[2], screen.bars.run.gpu))
            await pilot.press("n")
        assert places == [("bf16", 6), ("fp16", 5), ("fp16", 6), ("tf32", 5), ("fp8", 5), ("bf16", 5)]
        await pilot.press("N")
        assert screen.bars.run
        assert (screen.bars.run.kernel, screen.bars.run.gpu) == ("matmul.bf16", 5)


async def test_a_click_on_a_tab_opens_its_kernel(opened: Opened) -> None:
    async with opened(work(measured.node())) as pilot:
        screen = await kernels(pilot)
        line = next(y for y, line in enumerate(shown(pilot)) if "[✗ bf16 matmul]" in line)
        await pilot.click(offset=(shown(pilot)[line].index("tf32"), line))
        assert screen.kernel
        assert screen.kernel.id == "matmul.tf32"


async def test_the_tab_that_is_open_is_always_seen(opened: Opened) -> None:
    async with opened(work(measured.node())) as pilot:
        screen = await kernels(pilot)
        await pilot.press("right", "left")
        for title in ["bf16 matmul", *(kernel.title for kernel in measured.node().kernels[1:])]:
            assert screen.kernel
            assert screen.kernel.title == title
            assert any(f"{title}]" in line for line in shown(pilot))
            assert screen.bars.cursor == 6  # the GPU stays
            await pilot.press("right")


async def test_the_rung_that_failed_is_named_with_its_message(opened: Opened) -> None:
    async with opened(work(measured.too_old()), WIDE) as pilot:
        screen = await kernels(pilot)
        assert shown(pilot)[0].startswith(" ✗ BROKEN  8 GPUs fail")
        assert any("failed at torch: CUDA initialization" in line for line in shown(pilot))
        said = screen.detail.prose.text
        assert "GPU 0: bf16 matmul failed at torch" in said
        assert "✓ driver   ✗ torch   · triton   · nccl" in said
        assert "the driver answers, torch does not get through" in said


async def test_c_copies_what_leaves_the_wrong_gpu_out(opened: Opened) -> None:
    async with opened(work(measured.node())) as pilot:
        await kernels(pilot)
        await pilot.press("c")
        assert pilot.app.clipboard == "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,7"
        await pilot.press("up", "c")
        assert pilot.app.clipboard == "nvidia-smi -i 5 -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER"
        await pilot.press("up", "c")
        assert "no command to copy here" in shown(pilot)[1]


@pytest.mark.parametrize("gpu", [0, -1])
async def test_where_no_sound_gpu_is_left_none_is_named(opened: Opened, gpu: int) -> None:
    wrong = Run(PEERS.id, gpu, "ran", 24.1, right=False)
    async with opened(work(Measurements("x", (PEERS,), (Device(0, "H100"),), (wrong,))), WIDE) as pilot:
        screen = await kernels(pilot)
        said = screen.detail.prose.text
        assert "CUDA_VISIBLE_DEVICES" not in said
        assert "leave it out:" not in said
        what = "all GPUs compute wrong values" if gpu < 0 else "GPU 0 computes wrong values"
        assert what in said
        assert what in shown(pilot)[0]


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_measured_is_said_in_words(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work(), size) as pilot:
        screen = await kernels(pilot)
        assert "Nothing was measured here yet." in screen.detail.prose.text
        assert "gpudoctor bench" in screen.detail.prose.text
        await pilot.press("n", "N", "e", "c", "left", "right", "enter", "x")
        assert "nothing is measured now" in shown(pilot)[1]
        await pilot.press("R")
        assert "nothing can be measured from here" in shown(pilot)[1]


async def test_what_cannot_be_read_is_said_in_words(opened: Opened) -> None:
    def broken() -> Measurements:
        raise DocumentError("runs.0.gpu is not a whole number: [/b]")

    async with opened(replace(work(), measured=broken)) as pilot:
        screen = await kernels(pilot)
        assert "cannot be read: runs.0.gpu is not a whole number: [/b]" in screen.detail.prose.text


class Engine:
    """Measures a GPU each time it is let."""

    def __init__(self) -> None:
        self.wanted: list[Sequence[str]] = []
        self.go = threading.Semaphore(0)
        self.done = threading.Semaphore(0)

    def __call__(
        self, wanted: Sequence[str], tell: Callable[[Measurements], None], stop: threading.Event
    ) -> Measurements:
        self.wanted.append(wanted)
        found = measured.node()
        runs = [Run("matmul.bf16", gpu, "waiting") for gpu in range(8)]
        for gpu in range(8):
            runs[gpu] = Run("matmul.bf16", gpu, "running")
            tell(replace(found, runs=tuple(runs), kernels=found.kernels[:1]))
            self.done.release()
            self.go.acquire(timeout=600)
            if stop.is_set():
                runs[gpu:] = [Run("matmul.bf16", rest, "not-run", because="stopped") for rest in range(gpu, 8)]
                break
            runs[gpu] = Run("matmul.bf16", gpu, "ran", 700.0 + gpu, right=True)
        return replace(found, runs=tuple(runs), kernels=found.kernels[:1])


@pytest.mark.parametrize("size", SIZES)
async def test_measuring_shows_each_gpu_as_it_comes_and_stops_when_told(opened: Opened, size: tuple[int, int]) -> None:
    engine = Engine()
    async with opened(replace(work(), kernels=engine), size) as pilot:
        screen = await kernels(pilot)
        assert "R measures every kernel" in screen.detail.prose.text
        await pilot.press("R")
        for _ in range(3):
            engine.go.release()
        await until(pilot, lambda: "3 of 8 measured · matmul.bf16 on GPU 3" in shown(pilot)[1])
        assert any("GPU 2" in line and "702" in line for line in shown(pilot))
        assert any("GPU 4" in line and "waits" in line for line in shown(pilot))
        await pilot.press("R")
        assert "measured already" in shown(pilot)[1]
        await pilot.press("x")
        assert "stopping; what was measured stays" in shown(pilot)[1]
        engine.go.release()
        await until(pilot, lambda: "stopped; what was measured stays" in shown(pilot)[1])
        assert any("GPU 2" in line and "702" in line for line in shown(pilot))
        assert any("GPU 5" in line and "not run: stopped" in line for line in shown(pilot))
        assert engine.wanted == [[]]


async def test_enter_measures_the_kernel_that_is_shown(opened: Opened) -> None:
    engine = Engine()
    for _ in range(8):
        engine.go.release()
    async with opened(work(measured.node(), kernels=engine)) as pilot:
        screen = await kernels(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: shown(pilot)[1].startswith(" measured"))
        assert engine.wanted == [["matmul.bf16"]]
        assert screen.found
        assert screen.found.state(screen.found.of("matmul.bf16")[6]) == "sound"
        assert screen.found.state(screen.found.of("matmul.fp16")[6]) == "wrong"  # what was not measured again stays


async def test_an_engine_that_dies_leaves_what_was_measured_before(opened: Opened) -> None:
    def dies(*_: object) -> Measurements:
        raise OSError("[Errno 5] Input/output error")

    async with opened(work(measured.node(), kernels=dies)) as pilot:
        screen = await kernels(pilot)
        await pilot.press("R")
        await until(pilot, lambda: "not measured to the end: OSError" in shown(pilot)[1])
        assert screen.found
        assert len(screen.found.runs) == len(measured.node().runs)


@pytest.mark.parametrize("size", SIZES)
async def test_where_there_is_no_gpu_it_says_why_in_full(opened: Opened, size: tuple[int, int]) -> None:
    def nowhere(_: object, tell: Callable[[Measurements], None], __: object) -> Measurements:
        tell(Measurements("node05", measured.node().kernels, (), ()))
        raise UsageError("no GPU that CUDA lists: the loader finds no libcuda.so.1; try gpudoctor bench --device cpu")

    async with opened(work(kernels=nowhere), size=size) as pilot:
        await kernels(pilot)
        await pilot.press("R")
        await until(pilot, lambda: "gpudoctor bench --device cpu" in " ".join(text(pilot).split()))
        assert "nothing to compare with" not in text(pilot)


async def test_what_the_user_chose_stays_while_results_come(opened: Opened) -> None:
    engine = Engine()
    async with opened(work(measured.node(), kernels=engine)) as pilot:
        screen = await kernels(pilot)
        await pilot.press("right", "right", "home", "R")
        engine.go.release()
        await until(pilot, lambda: "on GPU 1" in shown(pilot)[1])
        assert screen.kernel
        assert (screen.kernel.id, screen.bars.cursor) == ("matmul.tf32", 0)
        await pilot.press("x")
        engine.go.release()


@pytest.mark.parametrize("size", [(40, 10), (240, 60)])
async def test_72_gpus_at_any_size(opened: Opened, size: tuple[int, int]) -> None:
    devices = tuple(Device(gpu, "GB200") for gpu in range(72))
    runs = tuple(Run("matmul.bf16", gpu, "ran", 1600.0 + gpu, 0.004, right=True) for gpu in range(72))
    kernel = Kernel("matmul.bf16", "bf16 matmul", "TFLOP/s", "8192³")
    async with opened(work(Measurements("rack", (kernel,), devices, runs)), size) as pilot:
        await kernels(pilot)
        await pilot.press("G")
        assert all(len(line) == size[0] for line in shown(pilot))
        if size[1] > 10:
            assert any("GPU 71" in line for line in shown(pilot))
        await pilot.resize_terminal(40, 10)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert any("GPU 71" in line and "1,671" in line for line in shown(pilot))


@pytest.mark.parametrize("size", SIZES)
def test_looks(snap_compare: Any, size: tuple[int, int]) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await kernels(pilot)

    assert snap_compare(DoctorApp(work(measured.node())), terminal_size=size, run_before=there)


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
