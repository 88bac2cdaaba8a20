"""What came of a line: it holds, it does not, or it cannot be told; and what both kinds of lines need to say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpudoctor.expect.levels import beyond
from gpudoctor.expect.profile import ConditionLine, FactLine, Profile, finding_id
from gpudoctor.expression import Evaluator
from gpudoctor.judge.subjects import of_row
from gpudoctor.model.diagnosis import Evidence, Finding, Unjudged
from gpudoctor.model.fact import Row, listed
from gpudoctor.model.snapshot import Snapshot

L = TypeVar("L", bound="FactLine | ConditionLine")
LAYER = "expect"
_MOST_EVIDENCE = 64


@dataclass(frozen=True, slots=True)
class Open:
    """A line that cannot be told. `asked` is false where the level that was asked for does not measure it."""

    unjudged: Unjudged
    asked: bool = True


Outcome = Finding | Open | None
"""None: it holds."""


class Judgement(Generic[L]):
    """A line, the machine, and the finding or the reason that comes of it. `evaluator` is lent for as long."""

    def __init__(self, line: L, profile: Profile, snapshot: Snapshot, evaluator: Evaluator) -> None:
        self.line = line
        self.profile = profile
        self.snapshot = snapshot
        self.evaluator = evaluator

    def open(self, fact: str, why: str) -> Open:
        """It cannot be told of that fact, because."""
        level = beyond(self.line.level, self.snapshot.target.level)
        unasked = bool(level) and not self.snapshot.pasted
        return Open(Unjudged(finding_id(self.line.name), f"{fact}: {level if unasked else why}"), not unasked)

    def finding(self, title: str, why: str, evidence: Sequence[Evidence], group: str, rows: Sequence[int]) -> Finding:
        """The line is not met, in these rows of the group or on the machine."""
        told = self.line.told
        return Finding(
            id=finding_id(self.line.name),
            layer=LAYER,
            severity=told.severity,
            role="cause",
            confidence="certain",
            title=title,
            why=why,
            evidence=tuple(evidence[:_MOST_EVIDENCE]),
            subjects=tuple(of_row(self.snapshot, group, row) for row in rows),
            fixes=told.fixes,
            references=(f"profile {self.profile.name}: {told.origin}", *self.profile.sources),
        )

    def rows(self, group: str) -> tuple[Row, ...]:
        """Those of a group that has any."""
        return listed(self.snapshot.rows(group))
