"""A line about one fact, judged on a snapshot: of the machine, or of every row of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.expect.judgement import Judgement, Outcome
from gpudoctor.expect.levels import beyond
from gpudoctor.expect.profile import FactLine
from gpudoctor.expect.words import Place, actual_words, shown
from gpudoctor.expression import Facts, evaluate
from gpudoctor.model.diagnosis import Evidence, Finding
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, listed
from gpudoctor.model.values import CannotJudge


class FactJudgement(Judgement[FactLine]):
    """By what the fact is, wherever it counts."""

    def outcome(self) -> Outcome:
        """By the rows that count, or by the machine's one fact."""
        line = self.line
        if not line.group:
            return self._told([(None, self.snapshot.get(line.fact))])
        rows = self.snapshot.rows(line.group)
        if isinstance(rows, Unread):
            return self.open(line.group, rows.why)
        if line.level != "quick" and beyond(line.level, self.snapshot.target.level) and not rows:
            return self.open(line.group, "")
        return self._told(list(self._places(rows)))

    def _places(self, rows: Rows) -> Iterator[Place]:
        """The fact in each row that counts."""
        column = self.line.fact.rpartition(".")[2]
        for index, row in enumerate(listed(rows)):
            try:
                if self._counts(index, row):
                    yield index, row.get(column) or self.snapshot.get(self.line.fact)
            except CannotJudge as unread:
                yield index, Unread(str(unread))

    def _counts(self, index: int, row: Row) -> bool:
        """Whether the row is one of those that are meant; raises `CannotJudge`."""
        if self.line.kernel:
            kernel = row.get("kernel")
            return isinstance(kernel, Known) and kernel.value == self.line.kernel
        if not self.line.where:
            return True
        self.evaluator.names = Facts(self.snapshot, self.line.group, index)
        return bool(evaluate(self.line.where, self.evaluator))

    def _told(self, places: Sequence[Place]) -> Outcome:
        held, unmet, unread = self._apart(places)
        line, fact = self.line, self.line.kernel or self.line.fact
        if line.at_least and len(held) >= line.at_least:
            return None
        if line.at_least and len(held) + len(unread) < line.at_least:
            return self._unmet([*unmet, *unread], len(held))
        if not line.at_least and unmet:
            return self._unmet(unmet, len(held))
        if unread:
            return self.open(fact, "; ".join({state.why: None for _, state in unread if isinstance(state, Unread)}))
        if line.kernel and not places:
            return self.open(fact, "no measurement of it")
        return None if places else self._unmet((), 0)

    def _apart(self, places: Sequence[Place]) -> tuple[list[Place], list[Place], list[Place]]:
        """Those that are as they must be, those that are not, and those of which it cannot be told."""
        held: list[Place] = []
        unmet: list[Place] = []
        unread: list[Place] = []
        for index, state in places:
            if isinstance(state, Unread):
                unread.append((index, state))
            elif (holds := self._holds(state)) is None:
                unread.append((index, Unread(f"{shown(state)} cannot be compared with {self.line.wanted.says}")))
            else:
                (held if holds else unmet).append((index, state))
        return held, unmet, unread

    def _holds(self, state: Known | Absent) -> bool | None:
        return self.line.wanted.holds(state.value) if isinstance(state, Known) else self.line.wanted.absent

    def _unmet(self, unmet: Sequence[Place], held: int) -> Finding:
        line = self.line
        rows = [index for index, _ in unmet if index is not None]
        evidence = [Evidence(line.fact, state, index) for index, state in unmet if not isinstance(state, Unread)]
        if not evidence:
            evidence = [Evidence(line.group, self._group_state())]
        title = actual_words(line, unmet, self.rows(line.group), self.profile.name, held)
        return self.finding(title, _why(line), evidence, line.group, rows)

    def _group_state(self) -> Fact:
        rows = self.snapshot.rows(self.line.group)
        return Known(len(rows), "number of rows") if isinstance(rows, tuple) else rows


def _why(line: FactLine) -> str:
    """The profile's own reason, else what the fact means."""
    from gpudoctor.catalog import catalog

    if line.told.why or line.kernel:
        return line.told.why
    spec = catalog().find(line.fact)
    return f"{line.fact}: {spec.about}." if spec else ""
