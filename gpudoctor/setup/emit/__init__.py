"""A candidate written down: as commands of a tool, as a project's file, as an image. One file a form."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import table
from gpudoctor.model.frozen import replace
from gpudoctor.setup.candidate import Candidate, Package
from gpudoctor.setup.emit import conda, environment, pip, pixi, pyproject, requirements, uv
from gpudoctor.setup.emit.order import BASE, Argvs, Order
from gpudoctor.setup.environment import Environment

# A Dockerfile. The wheels bring CUDA along, so a plain Python image does; one with nvcc only where it compiles.

_PYTHON = "3.12"
"""Of an image where nobody named one: of the wheels of every torch since 2.2."""
_TOOLKITS = {"11.8": "11.8.0", "12.1": "12.1.1", "12.4": "12.4.1", "12.6": "12.6.3", "12.8": "12.8.1", "12.9": "12.9.1"}
_TOOLKITS.update({"13.0": "13.0.2", "13.2": "13.2.0"})
"""The patch release of NVIDIA's image of each CUDA release."""
_UBUNTU = {"11": "ubuntu22.04", "12": "ubuntu22.04", "13": "ubuntu24.04"}


def text(order: Order) -> str:
    """What builds the image, led by how it is run. Shared memory is for the workers of a DataLoader, and for NCCL."""
    run = "docker run --gpus all --shm-size=8g" if order.candidate.cuda else "docker run"
    return "\n".join([f"# docker build -t torch . && {run} --rm -it torch", *_image(order), ""])


def _image(order: Order) -> Iterator[str]:
    python = order.python or _PYTHON
    if order.compiled:
        release = order.candidate.cuda
        ubuntu = _UBUNTU[release.partition(".")[0]]
        yield f"FROM nvidia/cuda:{_TOOLKITS.get(release, release + '.0')}-devel-{ubuntu}"
        yield "COPY --from=ghcr.io/astral-sh/uv:0.9 /uv /usr/local/bin/uv"
        yield f"RUN uv venv --python {python} --seed /opt/venv"
        yield "ENV PATH=/opt/venv/bin:$PATH"
    else:
        yield f"FROM python:{python}-slim"
    inside = replace(order, environment=Environment(python="python"))
    for argv in pip.commands(inside):
        yield "RUN " + shlex.join([*argv[:4], "--no-cache-dir", *argv[4:]])


COMMANDS = {"pip": pip.commands, "uv": uv.commands, "conda": conda.commands}
FILES = {
    "requirements": requirements.text,
    "pyproject": pyproject.text,
    "dockerfile": text,
    "environment": environment.text,
    "pixi": pixi.text,
}

__all__ = ["BASE", "COMMANDS", "FILES", "Argvs", "Order", "completed"]


# A candidate with what its packages would bring by themselves, from the index that it has to come from. vllm requires
# torchvision and torchaudio: taken from the user's index they would be those of another CUDA. torchaudio ended with
# 2.11.0, so for later builds of torch there is none of their own; that of the same CUDA major serves them.

_BROUGHT = ("torchvision", "torchaudio")


def completed(candidate: Candidate, machine: str = "x86_64") -> Candidate:
    """The candidate with every package of torch's family named; `machine` is ``x86_64`` or ``aarch64``."""
    named = {package.name for package in candidate.packages}
    brought = [package for package in _brought(candidate) if package.name not in named]
    packages = [candidate.packages[0], *brought, *candidate.packages[1:]]
    return replace(candidate, packages=tuple(_placed(package, candidate, machine) for package in packages))


def _brought(candidate: Candidate) -> Iterator[Package]:
    vllm = next((package.version for package in candidate.packages if package.name == "vllm"), "")
    rows = (row for row in table("companions")["vllm"] if row["version"] == vllm)
    yield from (Package(name, row[name], "torch") for row in rows for name in _BROUGHT if name in row)


def _placed(package: Package, candidate: Candidate, machine: str) -> Package:
    """torchaudio from the user's index where torch's has none of that build and the user's is of the same CUDA."""
    if package.name != "torchaudio" or not candidate.cuda or builds.build(package.version, candidate.cuda):
        return package
    usual = builds.default_cuda(package.version, machine) or ""
    same = usual.partition(".")[0] == candidate.cuda.partition(".")[0]
    return replace(package, origin="pypi") if same and builds.base(package.version) else package
