"""A snapshot as conditions see it: names that read facts, and remember which."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import check_current
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import NOTHING, CannotJudge

MATCHED_CHARACTERS = 4096
"""Characters of a value that a pattern is tried on: as many as a line of a paste or a kernel's command line has."""
Touched = dict[tuple[str, "int | None"], Fact]


def cannot_judge(name: str, snapshot: Snapshot) -> CannotJudge:
    """The `CannotJudge` to raise for a fact or group that is unread or missing; it is returned, with the reason."""
    state = snapshot.get(name) if "." in name else snapshot.rows(name)
    unread = state if isinstance(state, Unread) else snapshot.unanswered
    return CannotJudge(name, unread.why, unread.reason)


class Facts:
    """A snapshot as names in expressions; records in `touched` each fact that was read."""

    def __init__(self, snapshot: Snapshot, each: str = "", index: int = 0) -> None:
        """For a rule that is judged per row, `each` is the group and `index` the row; otherwise the whole machine."""
        self.snapshot = snapshot
        self.each = each
        self.index = index
        self.touched: Touched = {}
        self.asked: set[str] = set()
        """Columns of the judged row that were looked at, whatever they hold."""
        self._held: dict[str, Holder] = {}

    def __getitem__(self, name: str) -> Holder:
        """The topic, row or group of that name; created once per name."""
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = self._holder(name)
        return held

    def _holder(self, name: str) -> Holder:
        """What the name stands for: the judged row for `each`, all rows for a group, else a topic of the machine."""
        if name == self.each:
            rows = self.snapshot.rows(name)
            assert isinstance(rows, tuple), "a rule is judged for each row there is"
            return _JudgedRow(self, name, self.index, rows[self.index])
        if name in self.snapshot.groups:
            return Many(self, name)
        return _MachineTopic(self, name)

    def scalar(self, name: str) -> object:
        """The value of that fact of the machine; `NOTHING` where absent; raises `CannotJudge` where unread."""
        return self.value(name, self.snapshot.get(name), None)

    def value(self, name: str, fact: Fact, index: int | None) -> object:
        """The value of that fact, recorded in `touched`; `NOTHING` where absent; raises `CannotJudge` where unread."""
        if isinstance(fact, Unread):
            raise CannotJudge(name, fact.why, fact.reason)
        self.touched[name, index] = fact
        return fact.value if isinstance(fact, Known) else NOTHING


class UnreadAsAbsent(Facts):
    """Facts of which an unread one counts as absent; for ranking only, never to judge."""

    def value(self, name: str, fact: Fact, index: int | None) -> object:
        """The value of that fact, recorded in `touched`; `NOTHING` where absent, and, unrecorded, where unread."""
        return NOTHING if isinstance(fact, Unread) else super().value(name, fact, index)


class Holder(ABC):
    """Base of what has columns in an expression: a topic, one row, all rows of a group."""

    @abstractmethod
    def column(self, name: str) -> object:
        """The value of that column; `NOTHING` where absent; raises `CannotJudge` where unread."""


class _MachineTopic(Holder):
    """A topic of machine facts: ``driver`` in ``driver.version``; iterating it raises `CannotJudge`."""

    def __init__(self, facts: Facts, topic: str) -> None:
        self._facts = facts
        self._topic = topic

    def column(self, name: str) -> object:
        """The value of the machine's fact ``topic.name``; `NOTHING` where absent; raises `CannotJudge` where unread."""
        return self._facts.scalar(f"{self._topic}.{name}")

    def __iter__(self) -> Iterator[object]:
        raise cannot_judge(self._topic, self._facts.snapshot)

    def __len__(self) -> int:
        raise cannot_judge(self._topic, self._facts.snapshot)


class GroupRow(Holder):
    """One row of a group, as a loop variable sees it."""

    def __init__(self, facts: Facts, group: str, index: int, row: Row) -> None:
        self._facts = facts
        self._group = group
        self._index = index
        self._row = row

    @property
    def place(self) -> tuple[str, Row]:
        """(the group's name, the row)."""
        return self._group, self._row

    def __call__(self, column: str) -> tuple[tuple[str, int], Fact | None]:
        """The column's full name with the row's index, and its fact in this row (None: a fact of the machine)."""
        name = f"{self._group}.{column}"
        fact = self._row.get(column)
        if fact is None and name not in self._facts.snapshot.facts:
            fact = self._facts.snapshot.unanswered
        return (name, self._index), fact

    def column(self, name: str) -> object:
        """The value in this row, else of the machine's fact of that name; `NOTHING` where absent.

        Raises `CannotJudge` where it is unread, or neither has it.
        """
        fact = f"{self._group}.{name}"
        if name in self._row:
            return self._facts.value(fact, self._row[name], self._index)
        if fact in self._facts.snapshot.facts:
            return self._facts.scalar(fact)
        raise cannot_judge(fact, self._facts.snapshot)


class _JudgedRow(GroupRow):
    """The row that a rule is judged for; records in `Facts.asked` the columns that were looked at."""

    def __call__(self, column: str) -> tuple[tuple[str, int], Fact | None]:
        self._facts.asked.add(column)
        return super().__call__(column)

    def column(self, name: str) -> object:
        """The value in the judged row, as `GroupRow.column`; the column's name is added to `Facts.asked`."""
        self._facts.asked.add(name)
        return super().column(name)


@frozen
class SplitRows:
    """Rows split by a column: `alike` equal to a value or absent, `unread`, and the facts of the `unlike` rows."""

    alike: Sequence[object]
    unread: Sequence[object]
    unlike: Touched


def split_by_value(rows: Sequence[object], column: str, value: object) -> SplitRows:
    """The rows split by that column: equal to the value or not there, unread, and the known facts that differ."""
    alike: list[object] = []
    unread: list[object] = []
    unlike: Touched = {}
    for row in rows:
        name, fact = row(column) if isinstance(row, GroupRow) else (("", None), None)
        if isinstance(fact, Known) and fact.value != value:
            unlike[name] = fact
        else:
            (unread if isinstance(fact, Unread) else alike).append(row)
    return SplitRows(alike, unread, unlike)


class Many(Holder):
    """All rows of a group, as expressions iterate them; ``gpu.count`` stays a fact of the machine."""

    def __init__(self, facts: Facts, group: str) -> None:
        self._facts = facts
        self._group = group

    def _rows(self) -> tuple[Row, ...]:
        """The group's rows; empty where absent; raises `CannotJudge` where unread. Their number is recorded as read."""
        rows = self._facts.snapshot.rows(self._group)
        if isinstance(rows, Unread):
            raise CannotJudge(self._group, rows.why, rows.reason)
        if isinstance(rows, Absent):
            self._facts.touched[self._group, None] = rows
            return ()
        self._facts.touched[self._group, None] = Known(len(rows), "number of rows")
        return rows

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in the ``line`` of some row; where in none, raises `CannotJudge` if a row has no
        such column.

        The first matching line is recorded as proof, or all lines where none matches. An absent group has no rows; for
        an unread one `CannotJudge` is raised.
        """
        name = f"{self._group}.line"
        rows = self._rows()
        searched: set[str] = set()
        for index, row in enumerate(rows):
            line = known(row.get("line"))
            if line is None or (text := str(line.value)) in searched:
                continue
            searched.add(text)
            check_current(len(text))
            if pattern.search(text, 0, MATCHED_CHARACTERS):
                self._facts.touched[name, index] = line
                return True
        if not all("line" in row for row in rows):
            raise cannot_judge(name, self._facts.snapshot)
        self._facts.touched.update({(name, index): row["line"] for index, row in enumerate(rows)})
        return False

    def __iter__(self) -> Iterator[GroupRow]:
        return iter([GroupRow(self._facts, self._group, index, row) for index, row in enumerate(self._rows())])

    def __len__(self) -> int:
        return len(self._rows())

    def column(self, name: str) -> object:
        """The value of the machine's fact ``group.name``, as ``gpu.count``; `NOTHING` where absent.

        Raises `CannotJudge` where unread.
        """
        return self._facts.scalar(f"{self._group}.{name}")
