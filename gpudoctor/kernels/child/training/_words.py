"""Figures as people say them."""

from __future__ import annotations

_PREFIXES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(count: float) -> str:
    """``1.5 GB``, in powers of ten as memory rates are given."""
    for unit, name in _PREFIXES:
        if count >= unit:
            return "%.3g %s" % (count / unit, name)
    return "%d B" % count


def rate(count: float) -> str:
    """``12.4 GB/s``."""
    return size(count) + "/s"
