"""A container that a file starts or builds, as a row of ``service``; sizes and variables as such files write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Row
from gpudoctor.readers._paste import clean

T = TypeVar("T")
_CUDA_WORDS = ("cuda", "nvidia", "pytorch", "vllm", "tensorrt", "triton")

FACTS = (
    fact("container.compat_cuda", "version", "CUDA of the compatibility libraries (cuda-compat) that the image brings"),
    column("service.name", "text", "a container that a compose file or a pod starts, or the image that is built"),
    column(
        "service.image", "text", "the image that it starts from, such as pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
    ),
    column("service.for_gpus", "bool", "whether that image is made for GPUs"),
    column("service.system_python", "bool", "whether no command of it installs a Python beside the distribution's"),
    column("service.asks_gpus", "bool", "whether it asks for GPUs"),
    column("service.asks", "text", "how it asks, such as gpus: all, nvidia.com/gpu: 2, runtime: nvidia"),
    column(
        "service.by_variable", "bool", "whether it names GPUs in NVIDIA_VISIBLE_DEVICES, which NVIDIA's runtime reads"
    ),
    column("service.shm_mib", "int", "the size that it gives /dev/shm"),
)


@dataclass(frozen=True, slots=True)
class Service:
    """One container of a compose file, pod or image. `shm_mib` is its /dev/shm in MiB.

    `asks` says how it asks for GPUs: empty where it does not, None where the file cannot tell.
    """

    name: str
    image: str = ""
    asks: str | None = None
    shm_mib: int | None = None
    by_variable: bool = False

    def row(self, source: str) -> Row:
        """The container as a row of ``service``; columns without a value are left out."""
        row: dict[str, Fact] = {"name": Known(clean(self.name)[:100], source)}
        if self.image:
            row["image"] = Known(clean(self.image)[:300], source)
        if self.asks is not None:
            row["asks_gpus"] = Known(bool(self.asks), source)
            row["by_variable"] = Known(self.by_variable, source)
            if self.asks:
                row["asks"] = Known(clean(self.asks)[:100], source)
        if self.shm_mib is not None:
            row["shm_mib"] = Known(self.shm_mib, source)
        return row


def first_gpu_service(services: Sequence[tuple[Service, str, T]]) -> tuple[Service, str, T]:
    """The first service that asks for GPUs, else the first with a CUDA image or NVIDIA variable, else the first.

    Each entry is service, source and details; at least one is needed.
    """
    for service, source, details in services:
        if service.asks:
            return service, source, details
    for service, source, details in services:
        if service.by_variable or any(word in service.image for word in _CUDA_WORDS):
            return service, source, details
    return services[0]


# ---- Sizes as container engines write them: 16gb, 2Gi, 67108864 ----

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1, "m": 2, "g": 3, "t": 4}


def size_mib(text: str) -> int | None:
    """The size in MiB, rounded down; a bare number is bytes; None for no size. M and G count as 1024-based."""
    match = _SIZE.fullmatch(text[:40])
    if not match:
        return None
    number, unit = float(match[1]), match[2].lower()
    size = number * 1024 ** _FACTORS[unit] if unit else number
    return int(size / 1024**2)


# ---- Variables in the text of a Dockerfile or a compose file ----

_VARIABLE = re.compile(r"\\\$|\$(?:\{([A-Za-z_]\w*)(?:(:?[-+])([^{}]*))?\}|([A-Za-z_]\w*))")


def substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with ``$NAME``, ``${NAME}`` and ``${NAME:-default}`` replaced; unset names stay, cut at 8000 signs."""

    def replacement(match: re.Match[str]) -> str:
        """What replaces one variable reference."""
        name, operator, alternative = match[1] or match[4], match[2], match[3] or ""
        if not name:
            return "$"
        if operator and operator.endswith("+"):
            return alternative if values.get(name) else ""
        if name in values and (values[name] or not (operator or "").startswith(":")):
            return values[name]
        return alternative if operator else match[0]

    return _VARIABLE.sub(replacement, text)[:8000]
