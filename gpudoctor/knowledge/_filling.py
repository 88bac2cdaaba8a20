"""How an implied fact is put into a snapshot: only where nobody looked."""

from __future__ import annotations

from gpudoctor.model.fact import Fact, Known, Row, Rows, Unread, Value
from gpudoctor.model.snapshot import Snapshot

Facts = dict[str, Fact]
Groups = dict[str, Rows]

_MOST = 1e15
"""No figure of a GPU comes near."""


def known(snapshot: Snapshot, name: str) -> str | None:
    fact = snapshot.get(name)
    return str(fact.value) if isinstance(fact, Known) else None


def is_open(snapshot: Snapshot, name: str) -> bool:
    """Whether nobody looked for this fact."""
    fact = snapshot.get(name)
    return isinstance(fact, Unread) and not fact.asked


def fill(snapshot: Snapshot, facts: Facts, name: str, fact: Fact) -> None:
    if is_open(snapshot, name):
        facts[name] = fact


def given(row: Row, column: str) -> Value:
    """What the row has there; None where nothing is known."""
    state = row.get(column)
    return state.value if isinstance(state, Known) else None


def number(row: Row, column: str) -> float | None:
    """The number that the row has there, if it is a finite one."""
    found = given(row, column)
    plain = isinstance(found, (int, float)) and not isinstance(found, bool) and abs(found) < _MOST
    return float(found) if plain else None  # type: ignore[arg-type]


def text(row: Row, column: str) -> str:
    """The text that the row has there; empty where nothing is known."""
    found = given(row, column)
    return "" if found is None else str(found)


def true(row: Row, column: str) -> bool:
    """Whether it is known to be so."""
    return given(row, column) is True
