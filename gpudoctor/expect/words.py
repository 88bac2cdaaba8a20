"""How an unmet line is said: what is, where, and what is expected by whom."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.compare.tables import KEYS
from gpudoctor.expect.profile import FactLine
from gpudoctor.expression.functions import show
from gpudoctor.language import say
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
    said = _by_value(line, unmet, rows)
    where = _where(line)
    if line.at_least:
        others = f"; {'; '.join(said)}" if said else ""
        few = "{what} is {wanted} on {held} {things}{where}, expected on {least} at least ({profile}){others}"
        things = _things(line.group, held)
        return say(
            few,
            what=what,
            wanted=line.wanted.says,
            held=held,
            things=things,
            where=where,
            least=line.at_least,
            profile=profile,
            others=others,
        )
    wanted = line.wanted.says
    if not unmet:
        none = "{what}: there are no {things}{where} here, expected {wanted} ({profile})"
        return say(none, what=what, things=_things(line.group), where=where, wanted=wanted, profile=profile)
    found = "; ".join(said)
    unlike = "{what} is {found}{where}, expected {wanted} ({profile})"
    return say(unlike, what=what, found=found, where=where, wanted=wanted, profile=profile) + _meant(wanted, unmet)


def _meant(wanted: str, unmet: Sequence[Place]) -> str:
    """How to write what was likely meant: the branch of a version, a part of a text."""
    values = [state.value if isinstance(state, Known) else "" for _, state in unmet]
    texts = [value.casefold() for value in values if isinstance(value, str)]
    if len(texts) < len(unmet):
        return ""
    if wanted.replace(".", "").isdigit():
        branch = all(text.startswith(f"{wanted}.") for text in texts)
        return say('; its whole branch is written "{branch}.*"', branch=wanted) if branch else ""
    if all(wanted.casefold() in text for text in texts):
        return say("; a part of it is {form}", form=f'{{ matches = "{wanted}" }}')
    return ""


def _where(line: FactLine) -> str:
    return say(" where {condition}", condition=line.where) if line.where else ""


def _by_value(line: FactLine, unmet: Sequence[Place], rows: Sequence[Row]) -> list[str]:
    found: dict[str, list[int]] = {}
    for index, state in unmet:
        found.setdefault(shown(state, line.unit), []).extend([] if index is None else [index])
    said = [
        say(
            "{value} on {rows}",
            value=value,
            rows=listed(line.group, [(index, rows[index]) for index in where], len(rows)),
        )
        if where
        else value
        for value, where in found.items()
    ]
    return (
        said
        if len(said) <= _MOST_NAMED
        else [*said[:_MOST_NAMED], say("and {count} other values", count=len(said) - _MOST_NAMED)]
    )


def listed(group: str, rows: Sequence[tuple[int, Row]], of: int) -> str:
    """``GPU 3 and GPU 5``, ``mlx5_0 port 1``: rows by what they are called; ``all 8 GPUs`` where all are meant."""
    if len(rows) == of > 1:
        return say("all {count} {things}", count=of, things=_things(group))
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
