"""A fact: known with its source, known to be absent, or unread.

"There is no GPU here" is knowledge (`Absent`); "the probe died" is not (`Unread`). Rules treat the two differently:
a condition about an absent thing is false, a condition about an unread thing cannot be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.frozen import frozen

Value: TypeAlias = bool | int | float | str | tuple["Value", ...] | Mapping[str, "Value"] | None
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


@frozen
class Known:
    """A value and where it was read."""

    value: Value
    source: str


@frozen
class Absent:
    """Known not to be there; `why` says how that is known."""

    why: str


@frozen
class Unread:
    """Not known; `why` says what kept us from knowing. Not `asked` where nobody looked: then it may be inferred."""

    why: str
    asked: bool = True


Fact: TypeAlias = Known | Absent | Unread
Row: TypeAlias = Mapping[str, Fact]
"""One GPU, one PCI device, one line of text: the facts of one thing among several, by column."""

Rows: TypeAlias = tuple[Row, ...] | Absent | Unread


def value_to_json(value: Value) -> Json:
    """Tuples become arrays; everything else is JSON already."""
    if value is None or isinstance(value, (str, int, float)):  # nearly all; what a Mapping is takes longer to say
        return value
    if isinstance(value, tuple):
        return [value_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: value_to_json(item) for key, item in value.items()}
    return value


_DEEPEST = 20
"""Lists within lists that a value may hold; no fact of ours comes near."""


def value_from_json(raw: object, depth: int = 0) -> Value:
    """The inverse of `value_to_json`; raises `DocumentError` for what JSON cannot hold, or nests without end."""
    if raw is None or isinstance(raw, (bool, int, float, str)):
        return raw
    if depth == _DEEPEST:
        raise DocumentError(f"a fact nests more than {_DEEPEST} deep")
    if isinstance(raw, Mapping):
        return {str(key): value_from_json(item, depth + 1) for key, item in raw.items()}
    if isinstance(raw, Sequence):
        return tuple(value_from_json(item, depth + 1) for item in raw)
    raise DocumentError(f"a fact cannot hold a {type(raw).__name__}")


def fact_to_json(fact: Fact) -> dict[str, Json]:
    """The three shapes of the contract: ``value`` with ``source``, ``absent``, ``unread``."""
    if isinstance(fact, Known):
        return {"value": value_to_json(fact.value), "source": fact.source}
    if isinstance(fact, Absent):
        return {"absent": fact.why}
    return {"unread": fact.why} if fact.asked else {"unread": fact.why, "asked": False}


def fact_from_json(raw: object) -> Fact:
    """The inverse of `fact_to_json`; raises `DocumentError` on any other shape."""
    if isinstance(raw, Mapping):
        if "absent" in raw:
            return Absent(str(raw["absent"]))
        if "unread" in raw:
            return Unread(str(raw["unread"]), raw.get("asked") is not False)
        if "value" in raw:
            return Known(value_from_json(raw["value"]), str(raw.get("source", "")))
    raise DocumentError(f"not a fact: {str(raw)[:60]!r} (expected value, absent or unread)")


def listed(rows: Rows | None) -> tuple[Row, ...]:
    """The rows that there are: none where they are absent, were not read or are not asked for."""
    return rows if isinstance(rows, tuple) else ()


def rows_to_json(rows: Rows) -> Json:
    """A list of rows, or the one reason why there is none."""
    if isinstance(rows, tuple):
        return [{column: cast(Json, fact_to_json(fact)) for column, fact in row.items()} for row in rows]
    return cast(Json, fact_to_json(rows))
