"""The history of a machine: a kept run as it is listed, and a version or setting that was another when it worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import frozen

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
    command: str | None = None
    """The command that ran with the doctor beside it; None of a check."""

    def to_json(self) -> dict[str, Json]:
        """One entry of the list."""
        return {
            "id": self.id,
            "time": self.time,
            "level": "quick" if self.level == "run" else self.level,  # a run's machine is looked at so
            "verdict": self.verdict,
            "python": self.python,
            "findings": [cast(Json, finding) for finding in self.findings],
            "trouble": self.trouble or None,
            "command": self.command,
        }


@frozen
class Since:
    """One change, with what is known of it; None is not known, or nothing: an installation has no `before`.

    `what` is the driver, the kernel, torch, a package or an environment variable. `at` is a time with its offset from
    UTC (2025-11-03T06:25:14+01:00), `by` who or what did it, `source` where that was read. `worked` is when a kept run
    of this machine was last in order (2025-11-02T08:15:00Z); without one it is None, and the change is a recent one.
    """

    what: str
    before: str | None
    after: str | None
    at: str | None
    by: str | None
    source: str
    worked: str | None = None

    def to_json(self) -> dict[str, Json]:
        """As documents have it."""
        return {
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "at": self.at,
            "by": self.by,
            "source": self.source,
            "worked": self.worked,
        }


def since_from_json(raw: Mapping[str, Any]) -> Since:
    """The inverse of `Since.to_json`; raises what a mapping raises where a part is missing."""
    keys = ("before", "after", "at", "by", "worked")
    said = {key: None if raw[key] is None else str(raw[key]) for key in keys}
    return Since(what=str(raw["what"]), source=str(raw["source"]), **said)
