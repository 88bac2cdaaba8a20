"""The machines of ``gpudoctor demo``, made of the simulator's: ``python -m tests.demos --write`` makes them anew."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.core.sample import sample_of
from gpudoctor.target.record import to_json
from gpudoctor.target.recorded import Recorded
from tests import demo_runs, sampled
from tests.needs import REPOSITORY
from tests.sim import scenario

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
        if any(gpu.error or sampled.at_work(gpu) for gpu in gpus.gpus):
            watched = json.dumps(sampled.document(gpus, len(index)), separators=(",", ":"))
            yield HOME / told.name / "live.json.gz", watched.encode()
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
