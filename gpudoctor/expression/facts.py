"""A snapshot as conditions see it: names that read facts, and remember which."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from gpudoctor.model.budget import check_current
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import NOTHING, CannotJudge

WIDTH = 4096
"""Characters of a value that a pattern is tried on: as many as a line of a paste or a kernel's command line has."""
Touched = dict[tuple[str, "int | None"], Fact]


class Facts:
    """A snapshot as expressions see it: reads facts, and remembers which."""

    def __init__(self, snapshot: Snapshot, each: str = "", index: int = 0) -> None:
        self.snapshot = snapshot
        self.each = each
        self.index = index
        self.touched: Touched = {}
        self.asked: set[str] = set()
        """Columns of the judged row that were looked at, whatever they hold."""
        self._held: dict[str, Holder] = {}

    def __getitem__(self, name: str) -> Holder:
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = self._holder(name)
        return held

    def _holder(self, name: str) -> Holder:
        if name == self.each:
            rows = self.snapshot.rows(name)
            assert isinstance(rows, tuple), "a rule is judged for each row there is"
            return _Judged(self, name, self.index, rows[self.index])
        if name in self.snapshot.groups:
            return Many(self, name)
        return _Topic(self, name)

    def scalar(self, name: str) -> object:
        """The value of a fact of the machine."""
        return self.value(name, self.snapshot.get(name), None)

    def value(self, name: str, fact: Fact, index: int | None) -> object:
        """The value of a fact; `NOTHING` where absent; raises `CannotJudge` where unread."""
        if isinstance(fact, Unread):
            raise CannotJudge(name, fact.why)
        self.touched[name, index] = fact
        return fact.value if isinstance(fact, Known) else NOTHING


class Mentioned(Facts):
    """Facts seen as a listener does who takes what nobody mentioned for not being there: to order, never to judge."""

    def value(self, name: str, fact: Fact, index: int | None) -> object:
        """The value of a fact; `NOTHING` where absent or unread."""
        return NOTHING if isinstance(fact, Unread) else super().value(name, fact, index)


class Holder(ABC):
    """What has facts as columns: a topic, a row, a group."""

    @abstractmethod
    def column(self, name: str) -> object:
        """The value of that fact; raises `CannotJudge` where unread."""


class _Topic(Holder):
    """``driver`` of ``driver.version``."""

    def __init__(self, facts: Facts, topic: str) -> None:
        self._facts = facts
        self._topic = topic

    def column(self, name: str) -> object:
        """The value of that fact of the machine."""
        return self._facts.scalar(f"{self._topic}.{name}")

    def __iter__(self) -> Iterator[object]:
        raise CannotJudge(self._topic, getattr(self._facts.snapshot.rows(self._topic), "why", ""))

    def __len__(self) -> int:
        raise CannotJudge(self._topic, getattr(self._facts.snapshot.rows(self._topic), "why", ""))


class GroupRow(Holder):
    """One row of a group."""

    def __init__(self, facts: Facts, group: str, index: int, row: Row) -> None:
        self._facts = facts
        self._group = group
        self._index = index
        self._row = row

    @property
    def place(self) -> tuple[str, Row]:
        """The group's name, and the row."""
        return self._group, self._row

    def __call__(self, column: str) -> tuple[tuple[str, int], Fact | None]:
        """The column's name, and its fact in this row as it is; none where it is no column of rows."""
        name = f"{self._group}.{column}"
        fact = self._row.get(column)
        if fact is None and name not in self._facts.snapshot.facts:
            fact = Unread(self._facts.snapshot.nobody)
        return (name, self._index), fact

    def column(self, name: str) -> object:
        """The value in this row, else that of the machine."""
        fact = f"{self._group}.{name}"
        if name in self._row:
            return self._facts.value(fact, self._row[name], self._index)
        if fact in self._facts.snapshot.facts:
            return self._facts.scalar(fact)
        raise CannotJudge(fact, self._facts.snapshot.nobody)


class _Judged(GroupRow):
    """The row that a rule is judged for."""

    def __call__(self, column: str) -> tuple[tuple[str, int], Fact | None]:
        self._facts.asked.add(column)
        return super().__call__(column)

    def column(self, name: str) -> object:
        self._facts.asked.add(name)
        return super().column(name)


@frozen
class Apart:
    """Rows by whether a column is a value: it may be, nobody can say, or it is not, with the facts that show it."""

    alike: Sequence[object]
    unread: Sequence[object]
    unlike: Touched


def apart(rows: Sequence[object], column: str, value: object) -> Apart:
    """The rows of one group told apart."""
    alike: list[object] = []
    unread: list[object] = []
    unlike: Touched = {}
    for row in rows:
        name, fact = row(column) if isinstance(row, GroupRow) else (("", None), None)
        if isinstance(fact, Known) and fact.value != value:
            unlike[name] = fact
        else:
            (unread if isinstance(fact, Unread) else alike).append(row)
    return Apart(alike, unread, unlike)


class Many(Holder):
    """All rows of a group; ``gpu.count`` beside it stays a fact of the machine."""

    def __init__(self, facts: Facts, group: str) -> None:
        self._facts = facts
        self._group = group

    def _rows(self) -> tuple[Row, ...]:
        rows = self._facts.snapshot.rows(self._group)
        if isinstance(rows, Unread):
            raise CannotJudge(self._group, rows.why)
        if isinstance(rows, Absent):
            self._facts.touched[self._group, None] = rows
            return ()
        self._facts.touched[self._group, None] = Known(len(rows), "number of rows")
        return rows

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Whether the ``line`` of some row holds the pattern: the first that does is the proof, or all that do not."""
        name = f"{self._group}.line"
        rows = self._rows()
        searched: set[str] = set()
        for index, row in enumerate(rows):
            line = row.get("line")
            if not isinstance(line, Known) or (text := str(line.value)) in searched:
                continue
            searched.add(text)
            check_current(len(text))
            if pattern.search(text, 0, WIDTH):
                self._facts.touched[name, index] = line
                return True
        if not all("line" in row for row in rows):
            raise CannotJudge(name, self._facts.snapshot.nobody)
        self._facts.touched.update({(name, index): row["line"] for index, row in enumerate(rows)})
        return False

    def __iter__(self) -> Iterator[GroupRow]:
        return iter([GroupRow(self._facts, self._group, index, row) for index, row in enumerate(self._rows())])

    def __len__(self) -> int:
        return len(self._rows())

    def column(self, name: str) -> object:
        """The value of a fact of the machine that is named beside the rows, as ``gpu.count``."""
        return self._facts.scalar(f"{self._group}.{name}")
