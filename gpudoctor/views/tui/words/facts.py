"""Facts as rows: of a snapshot, or those in which two machines differ; what a row says, which are sought, and how."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gpudoctor.core.catalog import TOPICS
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.difference import Change, Difference
from gpudoctor.core.fact import Absent, Fact, Known, Unread, Value, listed, value_to_json
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.views._terminal import one_line, plural
from gpudoctor.views.tui.work import FactInfo

FactKey = tuple[str, "int | None"]
"""A fact by its name in the dictionary of facts, and its row: ``("gpu.name", 5)``, ``("driver.version", None)``."""
Proof = Mapping[FactKey, Sequence[Finding]]
COUNTED = "number of rows"
"""The source of how many rows a group has."""
_SEARCHED_AT_ONCE = 10_000
"""Facts that are searched before it is asked whether to go on."""


@dataclass(frozen=True, slots=True)
class Item:
    """One row: a fact, or a group as a whole; `other` is its state on the machine it is compared with.

    A state is None on a side that has no such row; `findings` are those that rest on it, the most severe first.
    """

    name: str
    """``gpu.5.name``; ``gpu[5].name`` where two machines are compared, and rows are matched by what they are."""
    fact: str
    state: Fact | None
    index: int | None = None
    findings: Sequence[Finding] = ()
    other: Fact | None = None
    compared: bool = False


def fact_label(fact: str, index: int | None) -> str:
    """Name of a fact as shown: ``gpu.5.name`` for ``gpu.name`` in row 5; the fact's own name if `index` is None."""
    if index is None:
        return fact
    group, _, column = fact.rpartition(".")
    return f"{group}.{index}.{column}"


def value_text(value: Value) -> str:
    """The whole value as text: list items, and names with values, separated by commas; deeper nesting as JSON."""
    if isinstance(value, str):
        return value
    raw = value_to_json(value)
    items = raw if isinstance(raw, list) else list(raw.values()) if isinstance(raw, dict) else [raw]
    if any(isinstance(item, (list, dict)) for item in items):
        return json.dumps(raw, ensure_ascii=False)
    shown = (f"{name} {item}" for name, item in raw.items()) if isinstance(raw, dict) else map(str, items)
    return ", ".join(shown)


def value_and_source(state: Fact | None) -> tuple[str, str]:
    """Value and source of a fact as text: ``empty`` for an empty text, ``none`` for an empty list; a number of rows as
    ``8 rows``, without source.

    For an absent or unread fact ``absent`` or ``not read``, and the reason; for None, a row that is not there, ``no
    such row`` and no source.
    """
    if isinstance(state, Known):
        if state.source == COUNTED:
            return plural(int(str(state.value)), "row"), ""
        if state.value == "" or state.value is None:
            return say("empty"), state.source
        return value_text(state.value) or say("none"), state.source
    if isinstance(state, Absent):
        return say("absent"), state.why
    return (say("not read"), state.why) if isinstance(state, Unread) else (say("no such row"), "")


def proof_of(findings: Iterable[Finding]) -> dict[FactKey, list[Finding]]:
    """Findings by the facts that are their evidence, the most severe first; those with one id are all listed."""
    proof: dict[FactKey, list[Finding]] = {}
    for finding in findings:
        for item in finding.evidence:
            resting = proof.setdefault((item.fact, item.index), [])
            if not resting or resting[-1] is not finding:
                resting.append(finding)
    order = {"error": 0, "warning": 1, "info": 2}
    for resting in proof.values():
        resting.sort(key=lambda finding: order[finding.severity])
    return proof


def searchable(name: str, *states: Fact | None) -> str:
    """Text in which a fact is searched, in lower case: name, and value and source (or reason) of each state."""
    first = states[0]
    if len(states) == 1 and isinstance(first, Known) and isinstance(first.value, str):  # most are; a log has many
        return f"{name}\n{first.value}\n{first.source}".lower()
    return "\n".join((name, *(part for state in states for part in value_and_source(state)))).lower()


class Listing(ABC):
    """Facts as rows, in the order shown; `unread`, `absent` and `proof` list their positions by state and evidence."""

    unread: Sequence[int] = ()
    absent: Sequence[int] = ()
    proof: Sequence[int] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, position: int) -> Item: ...

    def texts(self, positions: Sequence[int]) -> Iterator[tuple[int, str]]:
        """The position and searchable text of each of these positions."""
        for position in positions:
            item = self[position]
            yield position, searchable(item.name, item.state, *((item.other,) if item.compared else ()))

    def search(self, words: str, positions: Sequence[int], over: Callable[[], bool] = lambda: False) -> Sequence[int]:
        """The given positions whose text contains all the words, as plain text in any case and order; all of them
        without words.

        Once `over` returns true, the matches found so far.
        """
        words_lower = words.lower().split()
        if not words_lower:
            return positions
        hits: list[int] = []
        texts = self.texts(positions)
        while (remaining := list(islice(texts, _SEARCHED_AT_ONCE))) and not over():
            for word in words_lower:
                remaining = [(position, text) for position, text in remaining if word in text]
            hits += [position for position, _ in remaining]
        return hits

    def siblings(self, item: Item) -> Iterator[tuple[int, Fact]]:  # noqa: ARG002 - a listing without rows has none
        """Row number and state of the same column in the other rows of the item's group; none in this class."""
        return iter(())

    def positions_about(self, names: Collection[str]) -> list[int]:
        """Positions of the facts on which findings with these ids rest."""
        return [position for position in self.proof if any(finding.id in names for finding in self[position].findings)]


# ---- The facts of a snapshot ----

_RANKS = {prefix: rank for rank, prefix in enumerate(prefix for names in TOPICS.values() for prefix in names)}


class Facts(Listing):
    """All facts of a snapshot as rows, by topic, driver and GPUs first; groups after the machine's facts."""

    def __init__(self, snapshot: Snapshot, findings: Iterable[Finding] = ()) -> None:
        self._proof: Proof = proof_of(findings)
        self._groups = snapshot.groups
        self._states = list(_states_in_order(snapshot))
        self._positions = {(fact, index): position for position, (fact, index, _) in enumerate(self._states)}
        kinds = [type(state) for _, _, state in self._states]
        self.unread = [position for position, kind in enumerate(kinds) if kind is Unread]
        self.absent = [position for position, kind in enumerate(kinds) if kind is Absent]
        self.proof = sorted(self._positions[key] for key in self._proof if key in self._positions)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, position: int) -> Item:
        fact, index, state = self._at(position)
        return Item(fact_label(fact, index), fact, state, index, self._proof.get((fact, index), ()))

    def _at(self, position: int) -> tuple[str, int | None, Fact]:
        """Name, row number (None outside of a row) and state of the fact at this position."""
        return self._states[position]

    def texts(self, positions: Sequence[int]) -> Iterator[tuple[int, str]]:
        """The position and searchable text of each of these positions, without building items."""
        states = self._states if len(positions) == len(self) else map(self._at, positions)
        pairs = zip(positions, states, strict=True)
        return ((position, searchable(fact_label(fact, index), state)) for position, (fact, index, state) in pairs)

    def positions_named(self, names: frozenset[str]) -> list[int]:
        """Positions of the facts of these names, in every row."""
        return [position for position, (fact, _, _) in enumerate(self._states) if fact in names]

    def position_of(self, fact: str, index: int | None) -> int | None:
        """Position of that fact in that row (None: outside of rows); None if it is not here."""
        return self._positions.get((fact, index))

    def state(self, fact: str, index: int | None) -> Fact | None:
        """State of that fact in that row (None: outside of rows); None if it is not here."""
        position = self.position_of(fact, index)
        return None if position is None else self._at(position)[2]

    def position_named(self, name: str) -> int | None:
        """Position of the fact with that label (``gpu.5.name``, ``driver.version``); None if it is not here."""
        group, _, column = name.rpartition(".")
        group, _, index = group.rpartition(".")
        if index.isdecimal():
            return self.position_of(f"{group}.{column}", int(index))
        return self.position_of(name, None)

    def siblings(self, item: Item) -> Iterator[tuple[int, Fact]]:
        """Row number and state of the same column in the other rows of the group; none for a fact outside of rows."""
        group, _, column = item.fact.rpartition(".")
        rows = listed(self._groups[group]) if item.index is not None and group in self._groups else ()
        return ((at, row[column]) for at, row in enumerate(rows) if column in row and at != item.index)


def _states_in_order(snapshot: Snapshot) -> Iterator[tuple[str, int | None, Fact]]:
    """Name, row number and state of each fact, topics in order of importance; in each first its facts, then its groups.

    The row number is None for a fact outside of rows, and for the group itself, which stands before its rows.
    """
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for place, known in enumerate((snapshot.facts, snapshot.groups)):
        for name in sorted(known):
            topics.setdefault(name.partition(".")[0], ([], []))[place].append(name)
    for topic in sorted(topics, key=lambda name: (_RANKS.get(name, len(_RANKS)), name)):
        names, groups = topics[topic]
        yield from ((name, None, snapshot.facts[name]) for name in names)
        for group in groups:
            rows = snapshot.groups[group]
            yield group, None, Known(len(rows), COUNTED) if isinstance(rows, tuple) else rows
            for index, row in enumerate(listed(rows)):
                yield from ((f"{group}.{column}", index, state) for column, state in row.items())


NO_FACTS = Facts(Snapshot(Target("snapshot", ""), {}))
"""Nothing was read yet."""


# ---- The facts in which two machines differ ----


class Compared(Listing):
    """Facts that differ between two machines, those of findings first; `moving` adds what always differs."""

    def __init__(self, difference: Difference, moving: bool = False) -> None:
        self.difference = difference
        findings_by_place: dict[tuple[str, str], list[Finding]] = {}
        changes: dict[tuple[str, str], Change] = {}
        for change, finding in _changes_with_findings(difference, moving):
            position = change.fact, change.row
            changes.setdefault(position, change)
            if finding and finding not in (resting := findings_by_place.setdefault(position, [])):
                resting.append(finding)
        self._items = [
            Item(change.name, change.fact, change.a, None, findings_by_place.get(position, ()), change.b, compared=True)
            for position, change in changes.items()
        ]
        states = [{type(item.state), type(item.other)} for item in self._items]
        self.unread = [position for position, kinds in enumerate(states) if Unread in kinds]
        self.absent = [position for position, kinds in enumerate(states) if Absent in kinds]
        self.proof = [position for position, item in enumerate(self._items) if item.findings]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> Item:
        return self._items[position]


def _changes_with_findings(difference: Difference, moving: bool) -> Iterator[tuple[Change, Finding | None]]:
    """Each change and its finding (else None): those of findings, of layers, unread facts, and `moving` if wanted."""
    for item in difference.findings:
        for change in item.changes:
            yield change, item.finding
    for changes in (*difference.layers.values(), difference.unread, difference.moving if moving else ()):
        for change in changes:
            yield change, None


# ---- Which facts are shown, and how that is said ----

KINDS = {"unread": "not read", "absent": "absent", "proof": "what findings rest on"}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which facts are shown: those with these words, of one kind (`only`), about these rules; empty: no condition."""

    words: str = ""
    only: str = ""
    about: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.only or self.about)

    @property
    def text(self) -> str:
        """The words of the filter on one line, control characters as escapes."""
        return one_line(self.words)

    @property
    def rules(self) -> str:
        """Id of the rule that the filter is about; ``3 rules`` if several, ``0 rules`` if none."""
        return self.about[0] if len(self.about) == 1 else say("{count} rules", count=len(self.about))

    def narrows(self, earlier: Filter) -> bool:
        """True if every match of this filter matches the earlier one: only its words differ, and begin as those do."""
        return replace(earlier, words="") == replace(self, words="") and self.words.startswith(earlier.words)

    def candidates(self, listing: Listing, infos: Mapping[str, FactInfo]) -> Sequence[int]:
        """Positions in which the words are to be searched: facts of the rules `about`, else of the kind `only`, else
        all.

        For rules: the facts that their findings rest on; without such findings, the facts of a snapshot that `infos`
        says they read (none where two machines are compared).
        """
        if self.about:
            if positions := listing.positions_about(self.about):
                return positions
            names = frozenset(name for name, what in infos.items() if {*self.about} & {*what.rules})
            return listing.positions_named(names) if isinstance(listing, Facts) else ()
        kinds = {"unread": listing.unread, "absent": listing.absent, "proof": listing.proof}
        return kinds.get(self.only, range(len(listing)))

    def conditions(self) -> list[str]:
        """The filter's conditions as phrases, such as ``only absent``; empty if everything is shown."""
        words = [say('with "{text}"', text=self.text)] if self.text else []
        if self.only:
            words.append(say("only {kind}", kind=say(KINDS[self.only])))
        if self.about:
            words.append(say("of {rules}", rules=self.rules))
        return words

    def empty_message(self, listing: Listing) -> str:
        """Message that says why the filter shows no fact of the listing."""
        compared = isinstance(listing, Compared)
        what = say("differing fact" if compared else "fact")
        if self.text:
            where = ", of those {kind}," if self.only == "proof" else ", of those that are {kind},"
            where = say(where, kind=say(KINDS[self.only])) if self.only else ""
            return say(
                'no {what}{where} has "{text}"; names, values and sources were searched',
                what=what,
                where=where,
                text=self.text,
            )
        if self.about:
            where = say("what differs" if compared else "the facts")
            nothing = "nothing that {rules} read is among {where}"
            if len(self.about) == 1:
                nothing = "nothing that {rules} reads is among {where}"
            return say(nothing, rules=self.rules, where=where)
        if self.only:
            nothing = "no finding rests on a {what}" if self.only == "proof" else "no {what} is {kind}"
            return say(nothing, what=what, kind=say(KINDS[self.only]))
        if isinstance(listing, Compared):
            moving = len(listing.difference.moving)
            return say("nothing differs") + (
                say(" but what always does: D shows these {moving} facts", moving=moving) if moving else ""
            )
        return say("nothing was read")
