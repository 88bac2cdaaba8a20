"""A container that a file starts or builds, as a row of ``service``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Fact, Known, Row
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
    """One container. `asks` says how it asks for GPUs, empty where it does not; none where nothing says."""

    name: str
    image: str = ""
    asks: str | None = None
    shm_mib: int | None = None
    by_variable: bool = False

    def row(self, source: str) -> Row:
        """It as a row; what is not known is left out."""
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


def gpu_first(found: Sequence[tuple[Service, str, T]]) -> tuple[Service, str, T]:
    """The service that the file's single facts are of: the first that asks for GPUs, else one whose image has CUDA."""
    for service, source, more in found:
        if service.asks:
            return service, source, more
    for service, source, more in found:
        if service.by_variable or any(word in service.image for word in _CUDA_WORDS):
            return service, source, more
    return found[0]
