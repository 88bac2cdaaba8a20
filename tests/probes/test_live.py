"""The GPUs as they are now: a real child asks the simulated NVML, whatever it does."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import bench, live_gpus
from gpudoctor.app.monitoring.gpus import GPUUse
from gpudoctor.core.fact import Known, number_of
from gpudoctor.core.measurement import COUNTERS
from gpudoctor.core.sample import GPU, Sample
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.probes._nvml.client import child_argv
from gpudoctor.target.local import Local
from tests.processes import gone
from tests.sim import clients

GPUS = 8
FAST = 0.05


class Heard:
    """Samples as they come, and whoever waits for one."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._news = threading.Condition()

    def hear(self, sample: Sample) -> None:
        with self._news:
            self.samples.append(sample)
            self._news.notify_all()

    def until(self, true: Callable[[Sample], bool], seconds: float = 60.0) -> Sample:
        """The first sample of which that is true."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            with self._news:
                while seen == len(self.samples):
                    if not self._news.wait(max(0.0, deadline - time.monotonic())):
                        raise AssertionError(f"not in {seen} samples; the last: {self.samples[-1:]}")
            for sample in self.samples[seen:]:
                if true(sample):
                    return sample
                seen += 1


@contextmanager
def watching(folder: Path, *faults: dict[str, Any], **parts: Any) -> Iterator[Heard]:
    heard = Heard()
    nvml = clients.hgx(GPUS, faults=list(faults), **parts)
    stop = live_gpus.watch(heard.hear, Local(environ=clients.environ(folder, nvml)), FAST)
    try:
        yield heard
    finally:
        stop()


def answering(sample: Sample) -> list[GPU]:
    return [gpu for gpu in sample.gpus if not gpu.error]


def test_every_number_of_eight_gpus_is_told(tmp_path: Path) -> None:
    processes = [{"pid": os.getpid(), "usedGpuMemory": 9 << 30}]
    every = {"nvmlDeviceGetComputeRunningProcesses": processes, "nvmlDeviceGetFieldValues(138,4294967295)": 7}
    with watching(tmp_path, every=every) as heard:
        sample = heard.until(lambda one: one.gpus[3].pcie_send_mb_s is not None)
    gpu = sample.gpus[3]
    assert [one.index for one in sample.gpus] == list(range(GPUS))
    assert (gpu.name, gpu.utilization, gpu.memory_mib, gpu.memory_used_mib) == ("NVIDIA H100 80GB HBM3", 0, 81559, 1)
    assert (gpu.power_limit_w, gpu.temperature_slowdown_c, gpu.clock_mhz, gpu.clock_max_mhz) == (700, 89, 345, 1980)
    assert gpu.throttle_reasons == ("gpu_idle",)
    assert (gpu.ecc_uncorrected, gpu.remapped_uncorrected) == (0, 0)
    assert (gpu.link_generation, gpu.link_width, gpu.links, gpu.links_up) == (5, 16, 18, 18)
    assert gpu.pcie_send_mb_s == pytest.approx(0.567)
    assert gpu.nvlink_send_mb_s == 0
    assert gpu.processes
    assert (gpu.processes[0].pid, gpu.processes[0].memory_mib) == (os.getpid(), 9 << 10)
    assert gpu.processes[0].name
    assert dict(gpu.unanswered) == {}
    assert gpu.retired_double_bit is None, "an H100 retires no pages, and that is no failure"


RISING = {
    "nvmlDeviceGetTotalEccErrors(0,0)": {"from": 5, "per_second": 10_000},
    "nvmlDeviceGetTotalEccErrors(1,0)": 7,
    "nvmlDeviceGetPcieReplayCounter": {"per_second": 500},
    "nvmlDeviceGetFieldValues(163,*)": {"per_second": 1000},
    "nvmlDeviceGetFieldValues(162,*)": 3,
}
"""Memory that is repaired, packets that are sent again; what was counted before and stands still."""


def test_what_counters_gain_is_told_and_what_stands_still_is_none(tmp_path: Path) -> None:
    use = GPUUse()
    with watching(tmp_path, every=RISING) as heard:
        first = heard.until(lambda one: bool(one.gpus) and one.gpus[3].nvlink_crc is not None).gpus[3]
        assert first.nvlink_crc is not None
        assert first.nvlink_failures == 3 * 18
        more = first.nvlink_crc + 18_000
        heard.until(lambda one: bool(one.gpus) and (one.gpus[3].nvlink_crc or 0) >= more)
        for sample in list(heard.samples):
            use.add(sample)
    rows = use.rows(())
    assert isinstance(rows, tuple)
    gained = {name: number_of(rows[3][name]) or 0 for name in COUNTERS if isinstance(rows[3][name], Known)}
    assert gained["ecc_corrected"] > 5000
    assert gained["pcie_replays"] > 250
    assert gained["nvlink_crc"] >= 18_000
    assert gained["ecc_uncorrected"] == gained["nvlink_failures"] == 0


def test_what_counters_gain_while_a_kernel_runs(tmp_path: Path) -> None:
    environ = clients.environ(tmp_path, clients.hgx(1, every=RISING))
    gpu = {"index": Known(0, "test"), "uuid": Known("GPU-0", "test")}
    snapshot = Snapshot(Target("local", "test"), {}, groups={"gpu": (gpu,), "cuda_device": (gpu,)})
    deadline = time.monotonic() + 600
    with bench.meters(Local(environ=environ), snapshot, "") as meter:
        assert meter
        seen = None
        while not (seen and seen.seconds and seen.ecc_corrected) and time.monotonic() < deadline:
            end = meter("matmul.bf16", 0)
            time.sleep(1)
            seen = end()
    assert seen
    assert seen.seconds
    assert (seen.ecc_corrected or 0) > 0
    assert (seen.nvlink_crc or 0) > 0
    assert seen.ecc_uncorrected == seen.nvlink_failures == 0


def test_a_gpu_that_is_lost_meanwhile_costs_no_other(tmp_path: Path) -> None:
    with watching(tmp_path, {"call": "*", "gpu": 2, "do": 15, "from": 200}) as heard:
        assert heard.until(lambda one: len(answering(one)) == GPUS).gpus[2].error == ""
        sample = heard.until(lambda one: bool(one.gpus) and bool(one.gpus[2].error))
        later = heard.until(lambda one: one.seconds is not None and one.seconds > (sample.seconds or 0))
    assert sample.gpus[2].error == "GPU is lost"
    assert len(answering(later)) == GPUS - 1


def test_a_number_that_fails_says_why_and_the_others_are_there(tmp_path: Path) -> None:
    with watching(tmp_path, {"call": "nvmlDeviceGetPowerUsage", "gpu": 1, "do": 999}) as heard:
        gpu = heard.until(lambda one: bool(one.gpus)).gpus[1]
    assert gpu.power_w is None
    assert gpu.why("power_w") == "Unknown Error"
    assert gpu.temperature_c == 30


def test_a_call_that_hangs_is_named_and_its_gpu_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_gpus, "HANG_SECONDS", 2.0)
    with watching(tmp_path, {"call": "nvmlDeviceGetTemperature", "gpu": 2, "do": "hang", "from": 3}) as heard:
        heard.until(lambda one: len(answering(one)) == GPUS)
        waits = heard.until(lambda one: bool(one.trouble))
        after = heard.until(lambda one: len(answering(one)) == GPUS - 1)
    assert waits.trouble == "nvmlDeviceGetTemperature of GPU 2 has not returned"
    assert after.gpus[2].error == "nvmlDeviceGetTemperature of GPU 2 did not return within 2 s"


def test_gpus_that_wake_slowly_are_waited_for_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_gpus, "HANG_SECONDS", 1.0)
    with watching(tmp_path, {"call": "nvmlDeviceGetHandleByIndex", "do": "sleep:2500"}) as heard:
        heard.until(lambda one: one.trouble == "GPU 0 is waking")
        heard.until(lambda one: one.trouble in {f"GPU {number} is waking" for number in range(1, GPUS)})
        heard.until(lambda one: len(answering(one)) == GPUS)


def test_a_call_that_crashes_is_found_by_asking_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_gpus, "RESTART_SECONDS", (0.0,))
    with watching(tmp_path, {"call": "nvmlDeviceGetTemperature", "gpu": 2, "do": "crash"}) as heard:
        first = heard.until(lambda one: bool(one.trouble))
        after = heard.until(lambda one: len(answering(one)) == GPUS - 1)
    assert first.trouble == "NVML crashed (signal 11)"
    assert after.gpus[2].error == "nvmlDeviceGetTemperature of GPU 2 crashed (signal 11)"


def test_nvml_that_does_not_start_says_so_and_is_asked_again_less_and_less(tmp_path: Path) -> None:
    with watching(tmp_path, {"call": "nvmlInit", "do": 9}) as heard:
        assert heard.until(lambda one: bool(one.trouble)).trouble == "Driver Not Loaded"
        time.sleep(1.5)
    assert len(heard.samples) <= 3


def test_the_child_ends_with_the_one_who_listens(tmp_path: Path) -> None:
    """Even where it hangs in NVML, and though it was only abandoned, not ended."""
    nvml = clients.hgx(1, faults=[{"call": "nvmlDeviceGetTemperature", "do": "hang"}])
    argv = child_argv("watch_nvml.py", "0.1", "[]", "")
    parent = "import subprocess, sys\nchild = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=-3)\n"
    parent += "print(child.pid, flush=True)\ninput()\n"
    started = subprocess.Popen(
        [sys.executable, "-c", parent, *argv],
        env=clients.environ(tmp_path, nvml),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert started.stdout
    pid = int(started.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    started.kill()
    started.communicate()
    assert gone(pid), "it outlived its parent"


def test_all_who_want_samples_share_one_child_and_the_last_to_leave_ends_it(tmp_path: Path) -> None:
    shared = live_gpus.Shared(Local(environ=clients.environ(tmp_path, clients.hgx(GPUS))))
    first, second = Heard(), Heard()
    leave_first = shared.watch(first.hear)
    first.until(lambda sample: len(sample.gpus) == GPUS)
    leave_second = shared.watch(second.hear)
    assert len(second.samples[0].gpus) == GPUS, "what is known is told at once"
    leave_first()
    count = len(first.samples)
    heard = len(second.samples)
    second.until(lambda _: len(second.samples) > heard + 1)
    assert len(first.samples) <= count + 1, "one may have been on its way"
    leave_second()
    leave_second()
    third = Heard()
    leave_third = shared.watch(third.hear)
    assert third.until(lambda sample: len(sample.gpus) == GPUS).seconds != second.samples[-1].seconds
    leave_third()
