"""How an unmet line is said: what is, where, and what is expected by whom."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.compare.tables import KEYS
from gpudoctor.expect.profile import FactLine
from gpudoctor.expression.language import show
from gpudoctor.model.fact import Absent, Fact, Known, Row

Place = tuple[int | None, Fact]
"""A fact and the row that it stands in; none of the machine."""
_PLURAL = {
    "gpu": "GPUs",
    "nvlink": "NVLinks",
    "rdma": "ports",
    "mig": "MIG devices",
    "measured": "measurements",
    "interface": "interfaces",
}
_MOST_NAMED = 8
_WIDEST = 120


def shown(state: Fact, unit: str = "") -> str:
    """A fact as a sentence names it, cut where it is long."""
    if isinstance(state, Known):
        text = " ".join(filter(None, (show(state.value) or "empty", unit)))
        return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
    return f"none ({state.why})" if isinstance(state, Absent) else f"not known ({state.why})"


def actual_words(line: FactLine, unmet: Sequence[Place], rows: Sequence[Row], profile: str, held: int) -> str:
    """``gpu.ecc is no on GPU 3, expected yes (hgx-h100)``: every value once, with the rows that have it."""
    what = line.kernel or line.fact
    things = _things(line.group)
    said = _by_value(line, unmet, rows)
    if line.at_least:
        others = f"; {'; '.join(said)}" if said else ""
        wanted = f"expected on {line.at_least} at least ({profile})"
        return f"{what} is {line.wanted.says} on {held} {_things(line.group, held)}{_where(line)}, {wanted}{others}"
    expected = f"expected {line.wanted.says} ({profile})"
    if not unmet:
        return f"{what}: there are no {things}{_where(line)} here, {expected}"
    return f"{what} is {'; '.join(said)}{_where(line)}, {expected}"


def _where(line: FactLine) -> str:
    return f" where {line.where}" if line.where else ""


def _by_value(line: FactLine, unmet: Sequence[Place], rows: Sequence[Row]) -> list[str]:
    found: dict[str, list[int]] = {}
    for index, state in unmet:
        found.setdefault(shown(state, line.unit), []).extend([] if index is None else [index])
    said = [
        f"{value} on {listed(line.group, [(index, rows[index]) for index in where], len(rows))}" if where else value
        for value, where in found.items()
    ]
    return said if len(said) <= _MOST_NAMED else [*said[:_MOST_NAMED], f"and {len(said) - _MOST_NAMED} other values"]


def listed(group: str, rows: Sequence[tuple[int, Row]], of: int) -> str:
    """``GPU 3 and GPU 5``, ``mlx5_0 port 1``: rows by what they are called; ``all 8 GPUs`` where all are meant."""
    if len(rows) == of > 1:
        return f"all {of} {_things(group)}"
    names = list(dict.fromkeys(_called(group, index, row) for index, row in rows))
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more"]
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _things(group: str, count: int = 2) -> str:
    """What rows of the group are called, so many of them."""
    several = _PLURAL.get(group, f"rows of {group}")
    return several.removesuffix("s") if count == 1 and group in _PLURAL else several


def _called(group: str, index: int, row: Row) -> str:
    def told(column: str) -> str:
        state = row.get(column)
        return str(state.value)[:60] if isinstance(state, Known) else ""

    if group == "gpu":
        return f"GPU {told('index') or index}"
    if group == "nvlink" and told("gpu"):
        return f"link {told('link')} of GPU {told('gpu')}"
    if group == "measured":
        return f"GPU {told('gpu')}" if told("gpu") else "all GPUs together"
    if group == "rdma" and told("device"):
        return f"{told('device')} port {told('port')}"
    key = " ".join(filter(None, map(told, KEYS.get(group, ()))))
    return key or f"{group} {index}"
