"""A measurement: what it says of itself, what it gives, and how the child says so.

The nouns are known to both processes. The child speaks in lines of ``@gpudoctor`` and a JSON object, on the standard
output that it began with.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import traceback
from typing import Any, Dict, NamedTuple, Optional, Tuple


class Spec(NamedTuple):
    """Description of one measurement, such as ``matmul.bf16``: unit of its value, time limit in seconds, scope."""

    id: str
    title: str
    unit: str = ""
    size: str = ""
    """What is reckoned or moved on a GPU, in words: ``8192³``. On a CPU all is small."""
    level: str = "deep"
    """``standard``: cheap enough for every diagnosis. ``soak``: works as long as it is asked to, where it is named."""
    seconds: float = 20.0
    """At most; of level ``soak`` what it may take beyond the time that it is asked for."""
    scope: str = "gpu"
    """``gpu``: once on each; ``node``: once, over all of them."""


class CannotRun(Exception):  # noqa: N818 - no error: it says why nothing was measured
    """A measurement cannot be made here; the message says why, and nothing counts against the device."""


_NO_MEMORY = re.compile(
    r"MemoryError|(?:CUDA|HIP)[^\n]* out of memory|_ALLOC(ATION)?_FAILED|can't allocate memory", re.IGNORECASE
)
"""How the lack of memory is told by Python, torch of any age (the host's, too), CUDA's runtime (of a context, of
page-locked memory), cuBLAS, cuFFT and cuDNN."""


def no_memory(text: str) -> bool:
    """True if an error's text (type and message) says that memory ran out, on the GPU or the host."""
    return bool(_NO_MEMORY.search(text))


class Broken(Exception):  # noqa: N818 - it is told, not caught
    """A failure whose cause is known: `what` is the message, `advice` what to do about it."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


class Outcome(NamedTuple):
    """Result of one measurement; whatever is None or empty is not known."""

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
        """The fields by name, those that are None or empty left out; 0 and False stay."""
        return {name: value for name, value in self._asdict().items() if value not in (None, "", {})}


_out = -1
"""The file descriptor of that standard output."""


def reserve_stdout() -> None:
    """Keep standard output for the protocol: save it for `say`, and send what libraries print to standard error."""
    global _out  # noqa: PLW0603 - one process, one standard output
    _out = os.dup(1)
    os.dup2(2, 1)


def say(**entry: Any) -> None:
    """Write one protocol line, ``@gpudoctor`` and a JSON object, to the reserved standard output, unbuffered."""
    os.write(_out, ("\n@gpudoctor " + json.dumps(_plain(entry), allow_nan=False) + "\n").encode())


def _plain(value: Any) -> Any:
    """The value as strict JSON: NaN and infinity become None, keys become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def last_line(error: BaseException) -> str:
    """Type and message of the error on one line, at most 600 characters."""
    lines = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    while lines and lines[0][:1] in {"", " "}:  # a SyntaxError shows the place first
        del lines[0]
    return " ".join(" ".join(lines).split())[:600] or type(error).__name__


_OLDEST_TORCH = (1, 12)
"""Of June 2022. Older ones lack what references are made and compared by, and round products on a CPU otherwise."""


def release(version: str) -> Tuple[int, ...]:
    """Major and minor number of a version, (2, 9) of ``2.9.0+cu128``; fewer where it has fewer numbers."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def import_torch() -> Any:
    """The module torch; raises `CannotRun` where there is none or one before 1.12, else what its import raises."""
    if importlib.util.find_spec("torch") is None:
        raise CannotRun("torch is not installed in this interpreter")
    import torch  # type: ignore[import-not-found,unused-ignore]

    if () < release(str(torch.__version__)) < _OLDEST_TORCH:
        oldest = "%d.%d" % _OLDEST_TORCH
        raise CannotRun("torch %s is older than %s, the oldest that is measured" % (torch.__version__, oldest))
    return torch
