"""How Python's packages are called."""

from __future__ import annotations

import re


def normal(name: str) -> str:
    """The name as PEP 503 compares it: ``nvidia_cudnn_cu12`` is ``nvidia-cudnn-cu12``."""
    return re.sub(r"[-_.]+", "-", name).lower()
