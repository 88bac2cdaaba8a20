"""How the child speaks: lines of ``@gpudoctor`` and a JSON object, on the standard output that it began with."""

from __future__ import annotations

import json
import math
import os
import traceback
from typing import Any

_out = -1


def begin() -> None:
    """Keep standard output for the protocol: whatever libraries print is no answer."""
    global _out  # noqa: PLW0603 - one process, one standard output
    _out = os.dup(1)
    os.dup2(2, 1)


def say(**entry: Any) -> None:
    """One line, out at once."""
    os.write(_out, ("\n@gpudoctor " + json.dumps(_plain(entry), allow_nan=False) + "\n").encode())


def _plain(value: Any) -> Any:
    """The value as JSON takes it: no NaN, no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def last_line(error: BaseException) -> str:
    """``RuntimeError: CUDA error: no kernel image ...``: what ends a traceback, on one line."""
    lines = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    while lines and lines[0][:1] in {"", " "}:  # a SyntaxError shows the place first
        del lines[0]
    return " ".join(" ".join(lines).split())[:600] or type(error).__name__
