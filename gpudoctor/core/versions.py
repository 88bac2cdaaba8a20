"""Versions and package names as the field writes them, made comparable (PEP 440, PEP 503)."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import Version

from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern

_LEADING = pattern(r"v?(\d+(?:\.\d+)*(?:\.?(?:dev|post|rc|a|b)\d+)*(?:\+[A-Za-z0-9.]+)?)")


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """The PEP 440 version at the start of `text`, an optional ``v`` before it; None where there is none."""
    match = _LEADING.match(text.strip())
    if not match:
        return None
    try:
        return Version(match.group(1))
    except ValueError:  # no version, or a number of more digits than Python reads
        return None


def normal(name: str) -> str:
    """The name as PEP 503 compares it: ``nvidia_cudnn_cu12`` is ``nvidia-cudnn-cu12``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def numbered(number: int, wide: int) -> str:
    """The version that a library gives as one number: 22705 is 2.27.5, 8902 is 8.9.2.

    From the number `wide` on the major counts in ten thousands, below in thousands.
    """
    major, rest = divmod(number, 10000 if number >= wide else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


CUDNN_WIDE, NCCL_WIDE = 90000, 10000
"""From these numbers on: cuDNN 9.0, NCCL 2.9."""


# ---- What an extension was built for, by the local part of its version ----
# ``cu122torch2.3cxx11abiFALSE`` (flash-attn), ``pt24cu121`` (PyG), ``torch271.cu118`` (vLLM).

_CUDA = pattern(r"cu(?:da)?-?(\d{2})\.?(\d?)(?!\d)", re.IGNORECASE)
_TORCH = pattern(r"(?:torch-?|pt)(?:(\d+\.\d+(?:\.\d+)?)|(\d)(1?\d)(\d?)(?!\d))", re.IGNORECASE)
_ABI = pattern(r"cxx11abi(true|false|1|0)", re.IGNORECASE)


@frozen
class BuildTag:
    """A build tag; a part that the name lacks is empty. `cuda` is ``12.2``, or ``12`` where only the major is named."""

    torch: str = ""
    cuda: str = ""
    abi: str = ""


def build_tag(local: str) -> BuildTag:
    """The torch, CUDA and C++ ABI (``cxx11``, ``pre-cxx11``) that the local part of a version names.

    In numbers without dots a minor release has two digits where it begins with 1: 210 is 2.10, 271 is 2.7.1.
    """
    torch, cuda, abi = _TORCH.search(local), _CUDA.search(local), _ABI.search(local)
    return BuildTag(
        torch=(torch[1] or ".".join(filter(None, torch.groups()[1:]))) if torch else "",
        cuda=".".join(filter(None, cuda.groups())) if cuda else "",
        abi="" if not abi else "cxx11" if abi[1].lower() in ("true", "1") else "pre-cxx11",
    )
