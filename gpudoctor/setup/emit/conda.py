"""conda's command, which mamba and micromamba take as well; and what conda-forge has under which name.

The channel ``pytorch`` ended with torch 2.5.1; conda-forge builds torch itself, once for each CUDA major. A build runs
with any CUDA of its major from the one on that it was built with, so a lower bound is asked for, no single release.
"""

from __future__ import annotations

import re

from gpudoctor.setup.emit.order import Argvs, Order

_CHANNEL = ("--override-channels", "--channel", "conda-forge")
_CPU, _GPU = "pytorch-cpu", "pytorch-gpu"
_SERVED = ("bitsandbytes", "flash-attn", "jax", "tensorflow", "torchaudio", "torchvision", "transformers", "xformers")
_BUILT = ("torchaudio", "torchvision")
"""Packages that are pinned beside a pinned torch."""
NAME = "torch"
"""What a new environment is called."""
FIRST = 12
"""The oldest CUDA major that conda-forge still builds torch for."""


def commands(order: Order) -> Argvs:
    """One command, for the environment's own folder or, where conda has made none, for a new environment.

    None where conda-forge has no such build.
    """
    found = specs(order)
    prefix = order.environment.prefix
    if not found:
        return ()
    if prefix:
        return (("conda", "install", "--yes", "--prefix", prefix, *_CHANNEL, *found),)
    python = (f"python={order.python}",) if order.python else ()
    return (("conda", "create", "--yes", "--name", NAME, *_CHANNEL, *python, *found),)


def specs(order: Order) -> tuple[str, ...]:
    """What is asked of conda-forge: ``pytorch-gpu=2.9``, ``cuda-version>=12.6,<13``, ``torchvision``.

    The very release where something comes by pip, which would bring a torch of its own beside any other.
    """
    candidate = order.candidate
    if not served(order):
        return ()
    pin = _exact if left_out(order) else _minor if order.pinned else _any
    release = pin(candidate.torch)
    if not candidate.cuda:
        torch = [f"{_CPU}{release}"]
    else:
        major = int(candidate.cuda.partition(".")[0])
        torch = [f"{_GPU}{release}", f"cuda-version>={candidate.cuda},<{major + 1}"]
    beside = (package for package in candidate.packages[1:] if package.name in _SERVED)
    return (*torch, *(item.name + (pin(item.version) if item.name in _BUILT else "") for item in beside))


def served(order: Order) -> bool:
    """Whether conda-forge builds for that CUDA and system."""
    major = order.candidate.cuda.partition(".")[0]
    return order.candidate.build == "cpu" or bool(major and int(major) >= FIRST)


def left_out(order: Order) -> tuple[str, ...]:
    """Packages that conda-forge does not have."""
    return tuple(package.name for package in order.candidate.packages[1:] if package.name not in _SERVED)


def remarks(order: Order) -> tuple[str, ...]:
    """What conda cannot serve, in words."""
    if not served(order):
        return (f"conda-forge no longer builds torch for CUDA {order.candidate.cuda}: use pip or uv",)
    missing = left_out(order)
    said = [f"conda-forge has no {', '.join(missing)}: those come by pip afterwards"] if missing else []
    return (*said, "conda-forge builds torch itself, and a new release comes there weeks after PyTorch's own")


def _exact(version: str) -> str:
    return f"={version}"


def _minor(version: str) -> str:
    match = re.match(r"\d+\.\d+", version)
    return f"={match[0]}" if match else ""


def _any(_: str) -> str:
    return ""
