"""The facts of a snapshot as rows. A row is made when it is looked at: a log has a hundred thousand lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import overload

from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, listed
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.model.topics import TOPICS
from gpudoctor.views.tui.words.listing import COUNTED, Item, Listing, Proof, named, proof_of, text_of

_RANKS = {prefix: rank for rank, prefix in enumerate(prefix for names in TOPICS.values() for prefix in names)}


class _Machine:
    """Facts of the machine that share the first part of their names."""

    def __init__(self, facts: Mapping[str, Fact], names: Sequence[str]) -> None:
        self.names, self._facts, self.size = names, facts, len(names)

    def at(self, place: int) -> tuple[str, int | None, Fact]:
        name = self.names[place]
        return name, None, self._facts[name]

    def all(self) -> Iterator[tuple[str, int | None, Fact]]:
        return ((name, None, self._facts[name]) for name in self.names)

    def find(self, fact: str, index: int | None) -> int | None:
        return self.names.index(fact) if index is None and fact in self.names else None


class _Group:
    """A group: itself, then each column of each row."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self._state: Fact = Known(len(rows), COUNTED) if isinstance(rows, tuple) else rows
        self._rows: tuple[Row, ...] = listed(rows)
        self._starts = list(accumulate(map(len, self._rows), initial=1))
        self.size = self._starts[-1]

    def at(self, place: int) -> tuple[str, int | None, Fact]:
        if place == 0:
            return self.name, None, self._state
        index = bisect_right(self._starts, place) - 1
        row = self._rows[index]
        column = list(row)[place - self._starts[index]]
        return f"{self.name}.{column}", index, row[column]

    def all(self) -> Iterator[tuple[str, int | None, Fact]]:
        yield self.name, None, self._state
        for index, row in enumerate(self._rows):
            for column, state in row.items():
                yield f"{self.name}.{column}", index, state

    def find(self, fact: str, index: int | None) -> int | None:
        group, _, column = fact.rpartition(".")
        if index is None:
            return 0 if fact == self.name else None
        if group != self.name or index >= len(self._rows) or column not in self._rows[index]:
            return None
        return self._starts[index] + list(self._rows[index]).index(column)

    def columns(self, column: str) -> Iterator[tuple[int, Fact]]:
        """That column in every row that has it."""
        return ((index, row[column]) for index, row in enumerate(self._rows) if column in row)


class Facts(Listing):
    """All facts of a snapshot: driver and GPUs first, by topic; facts of the machine before the rows of groups."""

    def __init__(self, snapshot: Snapshot, findings: Iterable[Finding] = ()) -> None:
        self._proof: Proof = proof_of(findings)
        self._parts = list(_parts(snapshot))
        self._starts = list(accumulate((part.size for part in self._parts), initial=0))
        states = [type(state) for _, _, state in self.all()]
        self.unread = [place for place, kind in enumerate(states) if kind is Unread]
        self.absent = [place for place, kind in enumerate(states) if kind is Absent]
        found = (self.find(fact, index) for fact, index in self._proof)
        self.proof = sorted(place for place in found if place is not None)

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        fact, index, state = self._at(place)
        return Item(named(fact, index), fact, state, index, self._proof.get((fact, index), ()))

    def _at(self, place: int) -> tuple[str, int | None, Fact]:
        part = bisect_right(self._starts, place) - 1
        return self._parts[part].at(place - self._starts[part])

    def texts(self, among: Sequence[int]) -> Iterator[tuple[int, str]]:
        """As for every listing, without making the rows."""
        every = len(among) == len(self)
        found = zip(among, self.all() if every else map(self._at, among), strict=True)
        return ((place, text_of(named(fact, index), state)) for place, (fact, index, state) in found)

    def reading(self, names: frozenset[str]) -> list[int]:
        """The places of the facts of these names, in whatever row."""
        return [place for place, (fact, _, _) in enumerate(self.all()) if fact in names]

    def all(self) -> Iterator[tuple[str, int | None, Fact]]:
        """Name, row and state of each, in order."""
        for part in self._parts:
            yield from part.all()

    def find(self, fact: str, index: int | None) -> int | None:
        """The place of a fact."""
        for start, part in zip(self._starts, self._parts, strict=False):
            if (place := part.find(fact, index)) is not None:
                return start + place
        return None

    def state(self, fact: str, index: int | None) -> Fact | None:
        """That fact's state; None where it is not here."""
        place = self.find(fact, index)
        return None if place is None else self._at(place)[2]

    def named(self, name: str) -> int | None:
        """The place of the fact that is shown by that name: ``gpu.5.name``."""
        group, _, column = name.rpartition(".")
        group, _, index = group.rpartition(".")
        if index.isdecimal():
            return self.find(f"{group}.{column}", int(index))
        return self.find(name, None)

    def siblings(self, item: Item) -> Iterator[tuple[int, Fact]]:
        """The same column in the other rows of its group, with their numbers."""
        group, _, column = item.fact.rpartition(".")
        for part in self._parts:
            if isinstance(part, _Group) and part.name == group and item.index is not None:
                return (row for row in part.columns(column) if row[0] != item.index)
        return iter(())


def _parts(snapshot: Snapshot) -> Iterator[_Machine | _Group]:
    topics: dict[str, list[str]] = {}
    for name in snapshot.facts:
        topics.setdefault(name.partition(".")[0], []).append(name)
    groups: dict[str, list[str]] = {}
    for name in snapshot.groups:
        groups.setdefault(name.partition(".")[0], []).append(name)
    for topic in sorted({*topics, *groups}, key=lambda name: (_RANKS.get(name, len(_RANKS)), name)):
        if topic in topics:
            yield _Machine(snapshot.facts, sorted(topics[topic]))
        for name in sorted(groups.get(topic, ())):
            yield _Group(name, snapshot.groups[name])


NONE = Facts(Snapshot(Target("snapshot", ""), {}))
"""Nothing was read yet."""
