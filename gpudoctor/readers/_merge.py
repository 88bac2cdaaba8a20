"""What several readers say of one thing, made one: the exact answer wins, GPUs are matched by index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.model.snapshot import MOST_GPUS, MOST_OTHER_ROWS, MOST_ROWS

CUT = ("...", "…")
"""How nvidia-smi ends a name that it has cut."""
_MOST = {**MOST_ROWS, "gpu": MOST_GPUS, "pci": MOST_GPUS}


def take(facts: dict[str, Fact], groups: dict[str, Rows], key: str, entry: Fact | Rows) -> None:
    """Put what a reader says with what is there, a fact or the rows of a group; of rows as many as are kept."""
    if "." in key:
        facts[key] = better(facts.get(key), cast("Fact", entry))
    else:
        rows = joined(groups.get(key), cast("Rows", entry), key)
        groups[key] = rows[: _MOST.get(key, MOST_OTHER_ROWS)] if isinstance(rows, tuple) else rows


def better(one: Fact | None, other: Fact) -> Fact:
    """Of two answers, the first from the more exact reader: any but unread, and whole rather than cut."""
    if one is None or isinstance(one, Unread):
        return one if isinstance(one, Unread) and isinstance(other, Unread) else other
    if isinstance(one, Known) and isinstance(other, Known) and _fuller(one.value, other.value):
        return other
    return one


def _fuller(one: object, other: object) -> bool:
    """Whether `other` says the same as `one` and more: 2.5.1+cu124 after 2.5.1, a whole name after a cut one."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    if one.endswith(CUT):
        return not other.endswith(CUT) or len(other) > len(one)
    return len(other) > len(one) and other.startswith(one) and other[len(one)] in ".+" and one[-1:].isdecimal()


def joined(one: Rows | None, other: Rows, group: str) -> Rows:
    """The rows of both; rows of ``gpu`` that are about the same GPU become one row."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return one if isinstance(one, tuple) or (isinstance(one, Absent) and isinstance(other, Unread)) else other
    if group != "gpu":
        return _distinct([*one, *other])
    rows = [dict(row) for row in one]
    for row in other:
        places = _places(rows, row)
        for place in places:
            _add(rows[place], row)
        if not places:
            rows.append(dict(row))
    return tuple(sorted(rows, key=_order))


def _distinct(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows, of those that are alike in every value only the first."""
    kept: dict[object, Row] = {}
    for row in rows:
        kept.setdefault(tuple(sorted((name, repr(_value(fact))) for name, fact in row.items())), row)
    return tuple(kept.values())


def _add(row: dict[str, Fact], other: Row) -> None:
    for name, fact in other.items():
        row[name] = better(row.get(name), fact)


def _places(rows: list[dict[str, Fact]], row: Row) -> list[int]:
    """Which of `rows` the row is about: the GPU of its index, address or UUID; all of its name; else the first."""
    told = [column for column in ("index", "address", "uuid") if _value(row.get(column)) is not None]
    for column in told:
        wanted = _value(row[column])
        if found := [place for place, known in enumerate(rows) if _value(known.get(column)) == wanted]:
            return found[:1]
    free = [place for place, known in enumerate(rows) if all(_value(known.get(column)) is None for column in told)]
    name = _value(row.get("name"))
    if name is None:
        return free[:1]
    alike = [place for place in free if _alike(str(name), str(_value(rows[place].get("name")) or ""))]
    return alike[:1] if told else alike


def _alike(one: str, other: str) -> bool:
    """Whether two names may mean one product: cut, with or without the maker's name, shortened by a person."""
    short, long = sorted((_core(one), _core(other)), key=len)
    return not short or long.startswith(short) or short in long


def _core(name: str) -> str:
    return name.rstrip(".… ").lower().removeprefix("nvidia ").removeprefix("geforce ").strip()


def _value(fact: Fact | None) -> object:
    return fact.value if isinstance(fact, Known) else None


def _order(row: Mapping[str, Fact]) -> int:
    index = _value(row.get("index"))
    return index if isinstance(index, int) else 1 << 30
