"""What a measurement says of itself, and what it gives: nouns that both processes know."""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Optional


class Spec(NamedTuple):
    """One measurement: ``matmul.bf16``. `unit` is that of its value; `seconds` is how long it may take."""

    id: str
    title: str
    unit: str = ""
    size: str = ""
    """What is reckoned or moved on a GPU, in words: ``8192³``. On a CPU all is small."""
    level: str = "deep"
    """``standard``: cheap enough for every diagnosis."""
    seconds: float = 20.0
    scope: str = "gpu"
    """``gpu``: once on each; ``node``: once, over all of them."""


class CannotRun(Exception):  # noqa: N818 - no error: it says why nothing was measured
    """Why a measurement cannot be made here, which says nothing against the device."""


_NO_MEMORY = re.compile(
    r"MemoryError|(?:CUDA|HIP)[^\n]* out of memory|_ALLOC(ATION)?_FAILED|can't allocate memory", re.IGNORECASE
)
"""How the lack of memory is told by Python, torch of any age (the host's, too), CUDA's runtime (of a context, of
page-locked memory), cuBLAS, cuFFT and cuDNN."""


def no_memory(said: str) -> bool:
    """Whether those words, type and message of an error, say that there is no memory for it."""
    return bool(_NO_MEMORY.search(said))


class Broken(Exception):  # noqa: N818 - it is told, not caught
    """A failure whose cause is known: what is, and what to do about it."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


class Outcome(NamedTuple):
    """What was measured. Whatever is None or empty is not known."""

    value: Optional[float] = None
    spread: Optional[float] = None
    """Half the distance between the fastest and the slowest repetition, as a share of the value."""
    right: Optional[bool] = None
    """Whether the answer is that of an independent reference; None where nothing was compared."""
    differ: Optional[int] = None
    """How many values are not those of the reference, of how many `compared`."""
    compared: Optional[int] = None
    words: str = ""
    """What is, in sentences."""
    advice: str = ""
    """What to do, as follows from the figure."""
    details: Optional[Dict[str, Any]] = None
    """Further figures by name: numbers, texts, or lists of these."""

    def to_json(self) -> Dict[str, Any]:
        """What is known of it."""
        return {name: value for name, value in self._asdict().items() if value not in (None, "", {})}
