"""What a child says of a kernel, as a run: each thing of the kind that it must be, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from gpudoctor.model.fact import Json
from gpudoctor.model.measurement import Meanwhile, Run, Status, Step
from gpudoctor.target.protocol import printable

_TEXT = 2000
_MOST_DETAILS = 200
_DEEPEST = 3
_LARGEST = 1e300


def run_of(kernel: str, gpu: int, said: Mapping[str, Any], ladder: tuple[Step, ...], seen: Meanwhile | None) -> Run:
    """The child's line about a kernel that is over."""
    right, details = said.get("right"), _plain(said.get("details"))
    return Run(
        kernel=kernel,
        gpu=gpu,
        status=status_of(said),
        value=_number(said.get("value")),
        spread=_number(said.get("spread")),
        right=right if isinstance(right, bool) else None,
        differ=_whole(said.get("differ")),
        compared=_whole(said.get("compared")),
        words=_text(said.get("words")),
        advice=_text(said.get("advice")),
        because=_text(said.get("because")),
        details=details if isinstance(details, dict) else {},
        ladder=ladder,
        meanwhile=seen,
    )


def status_of(said: Mapping[str, Any]) -> Status:
    """``ran``, ``not-run``, or ``failed`` for whatever else it says."""
    status = said.get("status")
    return "ran" if status == "ran" else "not-run" if status == "not-run" else "failed"


def trouble(kernel: str, said: Mapping[str, Any]) -> str:
    """``matmul.fp16: 3 of 4096 values are wrong``; empty where it is right, or was not run."""
    if status_of(said) == "failed":
        return f"{kernel}: {_text(said.get('because')) or 'it does not say why'}"
    wrong = status_of(said) == "ran" and said.get("right") is False
    return f"{kernel}: {_text(said.get('words')) or 'wrong values'}" if wrong else ""


def is_unfinished(answer: Mapping[str, Any]) -> bool:
    """Whether the kernel was given up: it may be slow, or hang."""
    details = answer.get("details")
    return status_of(answer) == "not-run" and isinstance(details, Mapping) and details.get("unfinished") is True


def _number(value: object) -> float | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST
    return float(value) if fits else None  # type: ignore[arg-type]


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 63 else None


def _text(value: object) -> str:
    return printable(" ".join(value.split()), _TEXT) if isinstance(value, str) else ""


def _plain(value: object, depth: int = 0) -> Json:
    """JSON that every reader takes: no NaN, nothing without end."""
    if isinstance(value, Mapping):
        items = list(value.items())[:_MOST_DETAILS] if depth < _DEEPEST else []
        return {printable(key, 80): _plain(item, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value[:_MOST_DETAILS]] if depth < _DEEPEST else []
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return printable(value, _TEXT)
