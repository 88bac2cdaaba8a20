"""A line with conditions as on a rule's page, judged on a snapshot: of the machine, or of every row of a group."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.expect.judgement import Judgement, Outcome
from gpudoctor.expect.profile import ConditionLine
from gpudoctor.expect.words import listed, shown
from gpudoctor.expression import Facts, fill
from gpudoctor.judge.cures import all_hold
from gpudoctor.model.diagnosis import Evidence
from gpudoctor.model.fact import Absent, Known, Row, Unread
from gpudoctor.model.values import CannotJudge


class ConditionJudgement(Judgement[ConditionLine]):
    """By its conditions, all of which must hold."""

    def outcome(self) -> Outcome:
        """Of the machine, or of every row of the group."""
        line = self.line
        if not line.each:
            return self._whole()
        rows = self.snapshot.rows(line.each)
        if isinstance(rows, Unread):
            return self.open(line.each, rows.why)
        if isinstance(rows, Absent) or not rows:
            evidence = [Evidence(line.each, rows if isinstance(rows, Absent) else Known(0, "number of rows"))]
            title = f"There is no {line.each} here, and {line.name} is about each ({self.profile.name})"
            return self.finding(title, line.told.why, evidence, line.each, ())
        return self._by_row(rows)

    def _whole(self) -> Outcome:
        facts = Facts(self.snapshot)
        self.evaluator.names = facts
        holds = all_hold(self.line.when, self.evaluator)
        if isinstance(holds, CannotJudge):
            return self.open(holds.what, holds.why)
        if holds:
            return None
        return self.finding(self._title("", facts), self.line.told.why, _evidence(facts), "", ())

    def _by_row(self, rows: Sequence[Row]) -> Outcome:
        unmet: list[tuple[int, Facts]] = []
        pending: CannotJudge | None = None
        for index in range(len(rows)):
            facts = Facts(self.snapshot, self.line.each, index)
            self.evaluator.names = facts
            holds = all_hold(self.line.when, self.evaluator)
            if isinstance(holds, CannotJudge):
                pending = pending or holds
            elif not holds:
                unmet.append((index, facts))
        if unmet:
            names = listed(self.line.each, [(index, rows[index]) for index, _ in unmet], len(rows))
            self.evaluator.names = unmet[0][1]
            evidence = [item for _, facts in unmet for item in _evidence(facts)]
            where = [index for index, _ in unmet]
            return self.finding(self._title(names, unmet[0][1]), self.line.told.why, evidence, self.line.each, where)
        return self.open(pending.what, pending.why) if pending else None

    def _title(self, names: str, facts: Facts) -> str:
        on = f"{names}: " if names else ""
        if self.line.says:
            return f"{on}{fill(self.line.says, self.evaluator)} ({self.profile.name})"
        seen = [f"{name} is {shown(state)}" for (name, _), state in facts.touched.items() if "." in name]
        here = f"{', '.join(dict.fromkeys(seen[:4]))}, " if seen else ""
        return f"{on}{here}expected {self._wanted()} ({self.profile.name})"

    def _wanted(self) -> str:
        return " and ".join(self.line.when)


def _evidence(facts: Facts) -> list[Evidence]:
    """What the condition rested on."""
    return [Evidence(name, state, index) for (name, index), state in facts.touched.items()]
