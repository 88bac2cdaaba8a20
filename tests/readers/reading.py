"""What a text tells, as tests of the readers compare it."""

from __future__ import annotations

from gpudoctor.core.fact import Known, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.readers import read_text


def values(said: str | Snapshot) -> dict[str, object]:
    """The facts by name: their values, and the types `Absent` and `Unread` for the others."""
    snapshot = read_text(said) if isinstance(said, str) else said
    return {name: fact.value if isinstance(fact, Known) else type(fact) for name, fact in snapshot.facts.items()}


def told(said: str | Snapshot, *names: str) -> dict[str, object]:
    """These facts; None for one of which nothing is said."""
    found = values(said)
    return {name: found.get(name) for name in names}


def rows(said: str | Snapshot, group: str = "gpu") -> list[dict[str, object]]:
    """The rows of a group with their known values; none where it is not told."""
    snapshot = read_text(said) if isinstance(said, str) else said
    known = listed(snapshot.groups.get(group, ()))
    return [{name: fact.value for name, fact in row.items() if isinstance(fact, Known)} for row in known]


def column(said: str | Snapshot, group: str, name: str) -> list[object]:
    """A column of a group, None where a row's value is not known."""
    return [row.get(name) for row in rows(said, group)]
