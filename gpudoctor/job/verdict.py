"""What a diagnosis comes to for whoever waits to start: a word, and a code to exit with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.model.diagnosis import Diagnosis

UNKNOWN = 3


def code_of(diagnosis: Diagnosis) -> int:
    """Of the contract."""
    return {"broken": 1, "unknown": UNKNOWN}.get(diagnosis.verdict, 0)


def word_of(diagnosis: Diagnosis) -> str:
    """``go``, ``no-go`` or ``unknown``."""
    return diagnosis.fleet.verdict if diagnosis.fleet else {0: "go", 1: "no-go"}.get(code_of(diagnosis), "unknown")
