"""The machines of ``gpudoctor demo``, made of the simulator's: ``python -m tests.demos --write`` makes them anew.

What their GPUs did, a minute and a half each, is made of what their records say of one moment: invented values that
swing as those of a training step do; a GPU that is held back slows down on the way."""

from __future__ import annotations

import gzip
import json
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpudoctor.app import pipeline
from gpudoctor.app.demos import LIVE_SCHEMA, Demo
from gpudoctor.core.sample import GPU, Sample, sample_of
from gpudoctor.target.record import to_json
from gpudoctor.target.recorded import Recorded
from tests import demo_jobs, demo_runs
from tests.needs import REPOSITORY
from tests.sim import scenario

EVERY = 0.5
MOMENTS = 200
SLOWS_AT = 130
"""The moment when a GPU that is too hot begins to slow down, one of those that are told at once."""
AGAIN = 152
_EVALUATES = 48
"""Moments from one evaluation to the next, during which all GPUs do less."""
_LINK_MB_S = 148_000


def document(first: Sample, seed: int) -> dict[str, Any]:
    """The document that `gpudoctor.app.demos` plays."""
    noise = random.Random(seed)
    rows = [[_numbers(gpu, moment, noise) for gpu in first.gpus] for moment in range(MOMENTS)]
    names = {name: None for row in rows for numbers in row for name in numbers}
    return {
        "schema": LIVE_SCHEMA,
        "every": EVERY,
        "again": AGAIN,
        "first": first.to_json(),
        "series": {name: [[numbers.get(name) for numbers in row] for row in rows] for name in names},
    }


def at_work(gpu: GPU) -> bool:
    """Whether its record was made while a job ran on it."""
    return (gpu.utilization or 0) >= 90


def _numbers(gpu: GPU, moment: int, noise: random.Random) -> dict[str, float]:
    if gpu.error:
        return {}
    if not at_work(gpu):
        return _idle(gpu, noise)
    step = math.sin(2 * math.pi * (moment / 12 + 0.02 * gpu.index))
    rest = 0.45 if moment % _EVALUATES < 9 else 1.0
    held = bool(gpu.throttle_reasons)
    share = 1.0 if not held else min(1.0, max(0.0, (moment - SLOWS_AT) / 16))
    top, power, hot = gpu.clock_max_mhz or 0, gpu.power_w or 0, gpu.temperature_c or 0
    cool, full = 80.0, 655.0
    return {
        "utilization": round(min(100, 97 + 3 * step + noise.uniform(-1, 1)) * rest),
        "power_w": round(((full + (power - full) * share if held else power) + 18 * step) * (rest + 1) / 2),
        "temperature_c": round((cool + (hot - cool) * min(1, share + 0.3)) if held else hot + noise.uniform(-0.6, 0.6)),
        "clock_mhz": 15 * round((top + ((gpu.clock_mhz or top) - top) * share if held else top) / 15),
        "nvlink_send_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "nvlink_receive_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "pcie_send_mb_s": round(310 + 60 * step),
        "pcie_receive_mb_s": round(1240 + 200 * step),
    }


def _idle(gpu: GPU, noise: random.Random) -> dict[str, float]:
    return {
        "utilization": gpu.utilization or 0,
        "power_w": round((gpu.power_w or 0) + noise.uniform(-1, 1)),
        "temperature_c": gpu.temperature_c or 0,
        "clock_mhz": gpu.clock_mhz or 0,
    }


HOME = REPOSITORY / "gpudoctor/app/demos"
FOLDERS = (scenario.SICK, scenario.PROFILES)


@dataclass(frozen=True, slots=True)
class Told:
    """A machine of the simulator, by a name that is easily typed, and what one meets there before one looks."""

    name: str
    scenario: str
    host: str
    machine: str
    title: str
    meets: str


TOLD = (
    Told(
        "torch-cu130",
        "torch-driver-too-old-beside-heat-h100",
        "node17",
        "8 × H100, driver 535",
        "torch for a newer CUDA than the driver; one GPU too hot",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)",
    ),
    Told(
        "rtx-5090",
        "torch-arch-too-new-5090",
        "desk",
        "RTX 5090",
        "A new GPU, and a torch from before its architecture",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    Told(
        "cpu-torch",
        "torch-cpu-build-4090",
        "render4",
        "4 × RTX 4090",
        "torch's CPU build took the place of its CUDA build",
        "AssertionError: Torch not compiled with CUDA enabled",
    ),
    Told(
        "no-gpus",
        "container-without-gpus-docker",
        "3f9c1e7ab204",
        "Docker on an 8 × H100 node",
        "A container that was started without its GPUs",
        "RuntimeError: Found no NVIDIA driver on your system",
    ),
    Told(
        "upgraded",
        "upgraded-hgx-h100",
        "node03",
        "8 × H100, Ubuntu",
        "Unattended upgrades exchanged the driver while it ran",
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    Told(
        "lost-gpu",
        "lost-gpu-h100",
        "node22",
        "8 × H100",
        "One of eight GPUs has fallen off the bus",
        "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.",
    ),
    Told(
        "hot-gpu",
        "throttled-heat-h100",
        "node05",
        "8 × H100",
        "One GPU is held back by heat, and seven wait for it",
        "Nothing fails: the training is slow, on this node only",
    ),
    Told(
        "bad-memory",
        "ecc-remap-pending-a100",
        "node11",
        "8 × A100",
        "A bad row of memory waits for a reset to be replaced",
        "NVRM: Xid (PCI:0000:b7:00): 63, Row Remapper: New row marked for remapping",
    ),
    Told(
        "fabric-manager",
        "fabric-manager-missing-rhel",
        "node41",
        "8 × H200, RHEL",
        "Eight GPUs on NVSwitches, and no fabric manager",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(): Error 802: system not yet initialized",
    ),
    Told(
        "dark-nvlink",
        "nvlink5-gpu-dark-b200",
        "node08",
        "8 × B200",
        "A B200 has lost all its NVLinks",
        "NCCL: unhandled cuda error, then a hang of all eight ranks",
    ),
    Told(
        "library-path",
        "library-path-nvjitlink",
        "login2",
        "4 × RTX 4090",
        "An older CUDA stands in front of torch's own libraries",
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4",
    ),
    Told(
        "secure-boot",
        "secure-boot-laptop",
        "thinkpad",
        "RTX 4070 laptop",
        "Secure Boot refuses the unsigned kernel module",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    ),
    Told(
        "wsl-driver",
        "wsl-linux-driver",
        "WORKSTATION",
        "RTX 4080, WSL 2",
        "A Linux driver was installed inside WSL",
        "torch.cuda.is_available() is False; nvidia-smi works in Windows",
    ),
    Told(
        "sound", "training-h100", "node01", "8 × H100", "Nothing is wrong here", "Eight H100 at work, as they should be"
    ),
)
"""In the order of the list: what most people meet comes first."""


def made() -> Iterator[tuple[Path, bytes]]:
    """Every file of the demos, and what is in it; a machine's is packed when it is written."""
    index = []
    for told in TOLD:
        path = next(path for path in (folder / f"{told.scenario}.json" for folder in FOLDERS) if path.exists())
        record = replace(scenario.load(path), title=told.title, name=told.host, expect={})
        with Recorded(record) as target:
            diagnosis = pipeline.check(target=target)
        about = {"verdict": diagnosis.verdict, "title": told.title, "meets": told.meets, "machine": told.machine}
        index.append({"name": told.name, **about})
        text = json.dumps(to_json(record), ensure_ascii=True, separators=(",", ":"))
        yield HOME / told.name / "machine.json.gz", text.encode()
        yield from demo_runs.made(HOME, told.name, diagnosis)
        gpus = sample_of(diagnosis.snapshot)
        if any(gpu.error or at_work(gpu) for gpu in gpus.gpus):
            watched = json.dumps(document(gpus, len(index)), separators=(",", ":"))
            yield HOME / told.name / "live.json.gz", watched.encode()
    for one in demo_jobs.RECORDED:
        about = {"title": one.title, "meets": one.meets, "machine": one.machine}
        demo = Demo(one.name, "unknown", one.title, one.meets, one.machine)
        index.insert(-1, {"name": one.name, "verdict": demo.diagnosis().verdict, **about})  # the sound machine is last
    yield HOME / "index.json", f"{json.dumps(index, ensure_ascii=False, indent=1)}\n".encode()


def kept(path: Path) -> bytes:
    """What is in a file of the demos, unpacked; nothing where it is missing."""
    raw = path.read_bytes() if path.exists() else b""
    return gzip.decompress(raw) if path.suffix == ".gz" and raw else raw


def write() -> None:
    """Write what is not as it should be; an unchanged machine keeps its bytes, whoever packed it."""
    for path, content in made():
        if kept(path) != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        sys.exit("\n".join(str(path) for path, content in made() if kept(path) != content))
