"""Sizes as container engines write them: 16gb, 2Gi, 67108864."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1, "m": 2, "g": 3, "t": 4}


def mib(text: str) -> int | None:
    """The size in MiB; a number without a unit is of bytes. Kubernetes' M and G (of 1000) count as Docker's (1024)."""
    match = _SIZE.fullmatch(text[:40])
    if not match:
        return None
    number, unit = float(match[1]), match[2].lower()
    size = number * 1024 ** _FACTORS[unit] if unit else number
    return int(size / 1024**2)
