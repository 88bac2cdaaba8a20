"""The CUDA driver library alone, by ctypes."""

from __future__ import annotations

from typing import Any, Mapping

from .._kernel import CannotRun


def opened(_: Mapping[str, Any]) -> Any:
    """Not built yet."""
    raise CannotRun("not built yet")
