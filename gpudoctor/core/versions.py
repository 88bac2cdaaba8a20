"""Versions and package names as the field writes them, made comparable (PEP 440, PEP 503)."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import Version

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
