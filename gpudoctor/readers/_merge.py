"""What several readers say of one thing, made one: the exact answer wins, GPUs are matched by index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, value_of
from gpudoctor.core.snapshot import MOST_GPUS, MOST_OTHER_ROWS, MOST_ROWS

CUT = ("...", "…")
"""How nvidia-smi ends a name that it has cut."""
_KEYS = ("index", "address", "uuid")
_MOST = {**MOST_ROWS, "gpu": MOST_GPUS, "pci": MOST_GPUS}


def merge_entry(facts: dict[str, Fact], groups: dict[str, Rows], key: str, entry: Fact | Rows) -> None:
    """Add a reader's fact or rows to `facts` or `groups`, merged with what is there; rows are cut to the group's limit.

    A `key` with a dot names a fact, one without a group of rows.
    """
    if "." in key:
        facts[key] = better_fact(facts.get(key), cast("Fact", entry))
    else:
        rows = merged_rows(groups.get(key), cast("Rows", entry), key)
        groups[key] = rows[: _MOST.get(key, MOST_OTHER_ROWS)] if isinstance(rows, tuple) else rows


def better_fact(first: Fact | None, second: Fact) -> Fact:
    """The first fact, unless it is None, unread (and the second not), or the second says the same more completely."""
    if first is None or isinstance(first, Unread):
        return first if isinstance(first, Unread) and isinstance(second, Unread) else second
    if isinstance(first, Known) and isinstance(second, Known) and _is_more_complete(first.value, second.value):
        return second
    return first


def _is_more_complete(text: object, candidate: object) -> bool:
    """Whether `candidate` is `text` and more: 2.5.1+cu124 for 2.5.1, a whole name for a cut one."""
    if not isinstance(text, str) or not isinstance(candidate, str):
        return False
    if text.endswith(CUT):
        return not candidate.endswith(CUT) or len(candidate) > len(text)
    return (
        len(candidate) > len(text)
        and candidate.startswith(text)
        and candidate[len(text)] in ".+"
        and text[-1:].isdecimal()
    )


def merged_rows(first: Rows | None, second: Rows, group: str) -> Rows:
    """The rows of both; duplicates once; rows of ``gpu`` that are about the same GPU become one, sorted by index.

    An operand that is not rows gives way to the other; of two that are not, the second is returned, unless the first is
    `Absent` and the second `Unread`.
    """
    if not isinstance(first, tuple) or not isinstance(second, tuple):
        return (
            first if isinstance(first, tuple) or (isinstance(first, Absent) and isinstance(second, Unread)) else second
        )
    if group != "gpu":
        return _without_duplicates([*first, *second])
    rows = [dict(row) for row in first]
    for row in second:
        matches = _matching_rows(rows, row)
        for position in matches:
            for name, fact in row.items():
                rows[position][name] = better_fact(rows[position].get(name), fact)
        if not matches:
            rows.append(dict(row))
    return tuple(sorted(rows, key=_index_or_last))


def _without_duplicates(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows; of those equal in every value only the first."""
    first_by_values: dict[object, Row] = {}
    for row in rows:
        first_by_values.setdefault(tuple(sorted((name, repr(value_of(fact))) for name, fact in row.items())), row)
    return tuple(first_by_values.values())


def _matching_rows(rows: list[dict[str, Fact]], row: Row) -> list[int]:
    """Indexes of the rows about the same GPU: by index, address or UUID; else, of the free ones (with none of the row's
    keys), those of like name, or for a row without a name the first.

    Several only for a name without any of these keys; empty for a new GPU. Where either row has an ``error``, a row
    with other keys does not count as free.
    """
    known_columns = [column for column in _KEYS if value_of(row.get(column)) is not None]
    for column in known_columns:
        key = value_of(row[column])
        if same_key := [position for position, known in enumerate(rows) if value_of(known.get(column)) == key]:
            return same_key[:1]
    free = [
        position
        for position, known in enumerate(rows)
        if all(value_of(known.get(column)) is None for column in known_columns)
        and not (
            known_columns
            and (_fails(known) or _fails(row))
            and any(value_of(known.get(column)) is not None for column in _KEYS)
        )
    ]
    name = value_of(row.get("name"))
    if name is None:
        return free[:1]
    alike = [
        position
        for position in free
        if _may_be_same_product(str(name), str(value_of(rows[position].get("name")) or ""))
    ]
    return alike[:1] if known_columns else alike


def _fails(row: Mapping[str, Fact]) -> bool:
    """Whether the row is about a GPU of which the driver gives an error in place of its values."""
    return value_of(row.get("error")) is not None


def _may_be_same_product(first: str, second: str) -> bool:
    """Whether two names may mean one product: ignoring case and the maker's name, one is empty or part of the other."""
    short, long = sorted((_bare_product(first), _bare_product(second)), key=len)
    return not short or long.startswith(short) or short in long


def _bare_product(name: str) -> str:
    """The product name in lower case without "nvidia", "geforce" and a cut's dots."""
    return name.rstrip(".… ").lower().removeprefix("nvidia ").removeprefix("geforce ").strip()


def _index_or_last(row: Mapping[str, Fact]) -> int:
    """The GPU's index as sort key; larger than any index where it is not known."""
    index = value_of(row.get("index"))
    return index if isinstance(index, int) else 1 << 30
