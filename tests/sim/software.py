"""Software of a simulated machine: the driver's libraries, and an environment with torch."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.environments import CUBIN, PTX, Venv, container, elf, entry, ld_cache
from tests.sim.files import Files

PREFIX = "/opt/venv"
PYTHON = f"{PREFIX}/bin/python"

SIMULATED = b"gpudoctor-sim:"
"""Content that stands for a library of ours: ``gpudoctor-sim:libcuda``, replaced when the root is laid out."""

WHEELS = {
    "12": {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.27.5"},
    "13": {"nvidia-cudnn-cu13": "9.13.0.50", "nvidia-nccl-cu13": "2.27.7"},
}
"""What torch 2.9 pins, as far as it matters here."""

BUILDS = {
    "12.6": ((50, 60, 70, 75, 80, 86, 90), ()),
    "12.8": ((70, 75, 80, 86, 90, 100, 120), (120,)),
    "13.0": ((75, 80, 86, 90, 100, 110, 120), (120,)),
}
"""Architectures in libtorch_cuda.so 2.9 by its CUDA: cubins and PTX."""


def driver_libraries(files: Files, version: str, folder: str, versioned: bool = True) -> None:
    """libcuda and libnvidia-ml with their links; WSL has them without a version in their names."""
    for name in ("libcuda", "libnvidia-ml"):
        content = SIMULATED + name.encode()
        if versioned:
            files.add(f"{folder}/{name}.so.{version}", content)
            files.link(f"{folder}/{name}.so.1", f"{name}.so.{version}")
        else:
            files.add(f"{folder}/{name}.so.1", content)
    files.link(f"{folder}/libcuda.so", "libcuda.so.1")


def loader_cache(libraries: Mapping[str, str]) -> bytes:
    """``/etc/ld.so.cache`` with these names and paths; names go downwards, as the loader searches."""
    return ld_cache([(0x0303, name, libraries[name]) for name in sorted(libraries, reverse=True)])


class _Kept(Venv):
    """A virtual environment written into `Files` instead of a folder."""

    def __init__(self, files: Files, version: str) -> None:
        self.files = files
        super().__init__(Path("/"), version, PREFIX)

    def at(self, path: str) -> Path:
        return Path(path)

    def write(self, path: str, content: str | bytes = "") -> None:
        self.files.add(path, content)

    def link(self, path: str, to: str) -> None:
        self.files.link(path, to)


def torch(files: Files, words: Mapping[str, Any], gpus: Iterable[Mapping[str, Any]]) -> None:
    """A venv of Python 3.12 with torch as ``pip install torch`` leaves it: pins met, kernels for its architectures."""
    venv = _Kept(files, words.get("python", "3.12.3"))
    cuda = words.get("cuda")
    wheels = WHEELS.get(str(cuda).partition(".")[0], {})
    venv.torch(words["version"], cuda, [f"{name}=={version}" for name, version in wheels.items()], words.get("hip"))
    for name, version in {"pip": "24.0", **wheels}.items():
        venv.dist(name, version)
    if cuda:
        cubins, ptx = words.get("archs") or BUILDS[cuda]
        entries = [entry(CUBIN, arch) for arch in cubins] + [entry(PTX, arch) for arch in ptx]
        files.add(f"{venv.site}/torch/lib/libtorch_cuda.so", elf({".nv_fatbin": container(*entries) * 40}))
