"""Rows of one group on two machines: which are the same thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpudoctor.compare.tables import KEYS, SHARED_ONLY
from gpudoctor.model.fact import Fact, Known, Row, Rows

Labels = tuple[list[str], list[str]]
"""What each row of A, and each of B, is called."""


def summary(group: str, row: Row | None) -> Known | None:
    """A row that only one side has, as one fact: its known columns but the key's."""
    if row is None:
        return None
    known = {column: state for column, state in row.items() if isinstance(state, Known)}
    values = {column: state.value for column, state in known.items() if column not in KEYS.get(group, ())}
    return Known(values, next((state.source for state in known.values()), ""))


def state_of(rows: Rows) -> Fact:
    """A group as one fact: how many rows it has, or why there are none."""
    return Known(len(rows), "number of rows") if isinstance(rows, tuple) else rows


def matched(group: str, left: Sequence[Row], right: Sequence[Row]) -> Labels:
    """What the rows of both sides are called; rows that are the same thing have the same name.

    GPUs go by their index, on one machine by their UUID: a GPU that is lost changes the indices of the others. Bus
    addresses name the same thing only on one machine, or on two of one kind.
    """
    key = KEYS.get(group, ())
    one, other = _labels(left, key), _labels(right, key)
    if group == "gpu":
        owners = {uuid: name for row, name in zip(left, one, strict=True) if (uuid := _uuid(row))}
        uuids = [_uuid(row) for row in right]
        if owners.keys() & set(uuids):
            new = [f"{name} of B" if name in one else name for name in other]
            other = [owners.get(uuid, name) for uuid, name in zip(uuids, new, strict=True)]
    elif group in SHARED_ONLY and 2 * len({*one} & {*other}) < min(len(one), len(other)):
        return _labels(left, ()), _labels(right, ())
    return one, other


def _uuid(row: Row) -> str:
    state = row.get("uuid")
    return str(state.value) if isinstance(state, Known) else ""


def _labels(rows: Sequence[Row], key: Sequence[str]) -> list[str]:
    """Each row's values of the key, with a number where several rows share them; its place where it has none."""
    seen: Counter[str] = Counter()
    labels = []
    for place, row in enumerate(rows):
        values = [str(state.value) for column in key if isinstance(state := row.get(column), Known)]
        label = " ".join(values) or str(place)
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels
