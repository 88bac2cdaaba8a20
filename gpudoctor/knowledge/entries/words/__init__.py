"""What the tables' sections and columns are called when a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpudoctor.knowledge.entries.words import hardware, named, software
from gpudoctor.knowledge.entries.words._section import Section
from gpudoctor.knowledge.entries.words.software import PAIRED

__all__ = ["PAIRED", "SECTIONS", "TABLES", "Section"]


class About(NamedTuple):
    """What a table is about, and keys to try."""

    says: str
    tries: tuple[str, ...]


TABLES: Mapping[str, About] = {
    "codes": About("return codes of NVML, CUDA and NCCL", ("802", "nvml 15", "ncclRemoteError")),
    "companions": About("what stands beside torch", ("torchvision 0.24", "flash-attn 2.8.3", "bitsandbytes")),
    "compilers": About("what each nvcc takes: host compilers, GPUs", ("12.4", "sm_120")),
    "drivers": About("which driver serves which CUDA", ("12.8", "570.124.06", "ubuntu 24.04")),
    "gpus": About("GPUs by the names that tools print", ("RTX 5090", "10de:2b85", "GRID A100-10C", "8.9", "Hopper")),
    "images": About("what container images bring, by their names", ("nvcr.io/nvidia/pytorch:24.12-py3", "bookworm")),
    "nccl": About(
        "NCCL's transports, variables and the bandwidth that sound machines reach", ("NCCL_P2P_LEVEL", "PIX")
    ),
    "rates": About("what a GPU can at most, and what sound ones reach", ("9.0", "matmul.bf16", "PCIe 5", "NVLink 4.0")),
    "symbols": About("what a missing symbol says", ("_ZN3c104cuda9SetDeviceEab", "ncclCommSplit")),
    "torch": About("torch releases and their CUDA builds", ("2.9.0+cu128", "2.9", "cu128")),
    "xid": About("Xid and SXid, the numbers of NVIDIA's kernel log lines", ("79", "SXid 22013", "RESET_GPU")),
}

SECTIONS: Mapping[tuple[str, str], Section] = {**hardware.SECTIONS, **software.SECTIONS, **named.SECTIONS}
