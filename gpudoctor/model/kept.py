"""A kept run in a few words, as it is listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gpudoctor.model.fact import Json
from gpudoctor.model.frozen import frozen

SCHEMA = "gpudoctor-history/1"


@frozen
class Kept:
    """`time` is UTC (2026-11-03T06:25:14Z); `findings` are ``id``, ``severity``, ``title``, the first to act on first.

    `trouble` says why its file cannot be read: then only what the file's name says is known.
    """

    id: str
    time: str
    level: str
    verdict: str
    python: str | None
    findings: Sequence[dict[str, str]]
    trouble: str = ""

    def to_json(self) -> dict[str, Json]:
        """One entry of the list."""
        return {
            "id": self.id,
            "time": self.time,
            "level": self.level,
            "verdict": self.verdict,
            "python": self.python,
            "findings": [cast(Json, finding) for finding in self.findings],
            "trouble": self.trouble or None,
        }
