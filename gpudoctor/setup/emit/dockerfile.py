"""A Dockerfile. The wheels bring CUDA along, so a plain Python image does; one with nvcc only where it compiles."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpudoctor.model.frozen import replace
from gpudoctor.setup.emit import pip
from gpudoctor.setup.emit.order import Order
from gpudoctor.setup.environment import Environment

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
