"""Several pastes of one machine as one: what the second tells is added to the first, and wins where they clash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from gpudoctor.model.fact import Fact, Known, Rows, Unread
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.readers._merge import better, joined

_ADDED = ("report.lines", "report.placed")
_MOST_CLASHES = 5


def together(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of one machine out of several, the earliest first; every source names the file it came from.

    Of two answers to one question the later one is taken, and ``report.clashes`` says so.
    """
    told = [_named(snapshot) for snapshot in snapshots]
    facts: dict[str, Fact] = {}
    for snapshot in reversed(told):  # the first answer is kept: that of the latest file
        for name, fact in snapshot.facts.items():
            facts[name] = better(facts.get(name), fact)
    facts.update(_sums(told))
    if clashes := tuple(_clashes(told, facts)):
        facts["report.clashes"] = Known(clashes, "the files")
    return Snapshot(_target(snapshots), facts, _groups(told))


def _groups(told: Sequence[Snapshot]) -> dict[str, Rows]:
    """Lines of text one file after the other, as they were printed; a GPU's newest answers before the older ones."""
    groups: dict[str, Rows] = {}
    for group in dict.fromkeys(group for snapshot in told for group in snapshot.groups):
        for snapshot in reversed(told) if group == "gpu" else told:
            rows, others = groups.get(group), snapshot.rows(group)
            if group == "text" and isinstance(rows, tuple) and isinstance(others, tuple):
                groups[group] = (*rows, *others)
            else:
                groups[group] = joined(rows, others, group)
    return groups


def _target(snapshots: Sequence[Snapshot]) -> Target:
    """A report where all are; with a saved snapshot among them that one's interpreter and level."""
    name = " + ".join(snapshot.target.name for snapshot in snapshots)
    main = next((snapshot.target for snapshot in snapshots if snapshot.target.kind != "report"), snapshots[0].target)
    return replace(main, name=name)


def _named(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the file's name before each source: ``a.txt, line 12``."""
    name = snapshot.target.name
    facts = {key: _sourced(fact, name) for key, fact in snapshot.facts.items()}
    groups: dict[str, Rows] = {}
    for group, rows in snapshot.groups.items():
        if isinstance(rows, tuple):
            groups[group] = tuple({key: _sourced(fact, name) for key, fact in row.items()} for row in rows)
        else:
            groups[group] = rows
    return replace(snapshot, facts=facts, groups=groups)


def _sourced(fact: Fact, name: str) -> Fact:
    if not isinstance(fact, Known) or fact.source.startswith((name, PurePath(name).name)):
        return fact
    return replace(fact, source=f"{name}, {fact.source}")


def _sums(snapshots: Sequence[Snapshot]) -> Mapping[str, Fact]:
    """Lines read and lines understood, of all files."""
    sums: dict[str, Fact] = {}
    for name in _ADDED:
        counts = [fact.value for snapshot in snapshots if isinstance(fact := snapshot.get(name), Known)]
        if counts:
            sums[name] = Known(sum(count for count in counts if isinstance(count, int)), "the files")
    return sums


def _clashes(snapshots: Sequence[Snapshot], taken: Mapping[str, Fact]) -> Iterator[str]:
    """Facts to which two files give answers that cannot both hold, in words; no more than a reader can take in."""
    told_of = (name for snapshot in snapshots for name in snapshot.facts)
    names = dict.fromkeys(name for name in told_of if not name.startswith(("report.", "manifest.")))
    told = 0
    for name in names:
        answers = [fact for snapshot in snapshots if not isinstance(fact := snapshot.get(name), Unread)]
        if len({_said(fact) for fact in answers if not _agrees(fact, taken[name])} | {_said(taken[name])}) > 1:
            told += 1
            if told <= _MOST_CLASHES:
                *_, last = answers
                yield f"{name}: {' and then '.join(_said(fact) for fact in answers)}; {_said(last)} is taken"
    if told > _MOST_CLASHES:
        yield f"and {told - _MOST_CLASHES} more"


def _agrees(fact: Fact, taken: Fact) -> bool:
    return better(taken, fact) is fact or better(fact, taken) is taken or _said(fact) == _said(taken)


def _said(fact: Fact) -> str:
    return str(fact.value) if isinstance(fact, Known) else "none"
