"""The rows of the group ``package_change``, and what many of them come to: a driver is some twenty packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpudoctor.history.families import Family
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.model.since import Since
from gpudoctor.model.snapshot import Snapshot

_TOGETHER = 3600
"""Seconds between the first and the last package of what was one action."""
_EARLIEST = -3600
"""Age in seconds: what is dated further after now than that was written by another clock."""
_REVISION = pattern(r"^\d+:|-[^-]*$")
"""What packagers add to a version: an epoch before it, their own revision after it."""


@frozen
class Logged:
    """One row; `age` in seconds, texts empty where there is nothing."""

    name: str
    before: str
    after: str
    time: str
    age: int
    by: str
    user: str
    source: str

    @property
    def inside(self) -> bool:
        """Whether it is of a Python environment: pip's RECORD or conda's history told it."""
        return self.source.endswith("/RECORD") or "/conda-meta/" in self.source


def logged(snapshot: Snapshot) -> list[Logged]:
    """Every row that is whole, the newest first; those dated after the snapshot are left out."""
    rows = snapshot.rows("package_change")
    found = []
    for row in listed(rows):
        said = {column: state.value for column, state in row.items() if isinstance(state, Known)}
        name, age = row.get("name"), said.get("age_s")
        if isinstance(name, Known) and isinstance(age, int) and age >= _EARLIEST:
            before, after, at, by, user = (str(said.get(key, "")) for key in ("before", "after", "time", "by", "user"))
            found.append(Logged(str(name.value), before, after, at, age, by, user, name.source))
    return sorted(found, key=lambda entry: entry.age)


def grouped(entries: Sequence[Logged], family: Family) -> Iterator[Since]:
    """What was one action told once where the family has a version of its own, else package by package."""
    for action in _actions(entries):
        main = [entry for entry in action if family.leads(entry.name)]
        before, after = (
            _version([entry.before for entry in main], family),
            _version([entry.after for entry in main], family),
        )
        if before != after:
            yield _since(family.what, before, after, main[0])
        elif not main:
            yield from (_since(entry.name, entry.before, entry.after, entry) for entry in action)


def _actions(entries: Sequence[Logged]) -> Iterator[list[Logged]]:
    """Those together that the same command made within an hour."""
    action: list[Logged] = []
    for entry in entries:
        same = action and (entry.by, entry.user) == (action[0].by, action[0].user)
        if action and not (same and entry.age - action[0].age <= _TOGETHER):
            yield action
            action = []
        action.append(entry)
    if action:
        yield action


def _version(versions: Sequence[str], family: Family) -> str:
    """That of most packages, as its makers write it."""
    plain = versions if family.revision else [_REVISION.sub("", version) for version in versions]
    counted = Counter(filter(None, plain))
    return counted.most_common(1)[0][0] if counted else ""


def _since(what: str, before: str, after: str, entry: Logged) -> Since:
    by = f"{entry.by} ({entry.user})" if entry.by and entry.user else entry.by or entry.user
    return Since(what, before or None, after or None, entry.time or None, by or None, entry.source)
