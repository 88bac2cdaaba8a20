"""Variables that steer NCCL: which there are, which are spelt wrong, and what follows from a value."""

from __future__ import annotations

import re
from functools import lru_cache

from gpudoctor.knowledge._tables import lookup, table, text
from gpudoctor.model.values import NOTHING

_FARTHEST = 2
"""Letters by which a misspelt name may differ: NCCL_SOCKET_IFACE is NCCL_SOCKET_IFNAME."""

_SHORT, _SHORTEST = 8, 5
"""Letters after the family's name: shorter ones may differ by one letter only, the shortest by none."""


@lookup
def nccl_risk(name: object, value: object) -> object:
    """What follows where the variable has this value, for values with a risk: ``machines exchange data over TCP``."""
    wanted, written = text(name, "variable"), str(value).strip()
    for row in table("nccl")["risk"]:
        if row["name"] == wanted and re.fullmatch(row["match"], written, re.IGNORECASE):
            return row["says"]
    return NOTHING


@lookup
def nccl_renamed(name: object) -> object:
    """The present name of a variable that torch renamed: TORCH_NCCL_BLOCKING_WAIT of NCCL_BLOCKING_WAIT."""
    wanted = text(name, "variable")
    return next((row["now"] for row in table("nccl")["renamed"] if row["name"] == wanted), NOTHING)


@lookup
def nccl_like(name: object) -> object:
    """The variable that a name nobody reads is likely to stand for: NCCL_IB_DISABLE of NCCL_DISABLE_IB."""
    return _like(text(name, "variable")) or NOTHING


@lru_cache(maxsize=256)
def _like(name: str) -> str:
    there = _names()
    if name in there or not name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_")):
        return ""
    words = sorted(name.split("_"))
    turned = next((one for one in there if sorted(one.split("_")) == words), "")
    length = len(name.partition("_")[2])
    if turned or length < _SHORTEST:
        return turned
    farthest = _FARTHEST if length >= _SHORT else 1
    near = [(distance, one) for one in there if (distance := _distance(name, one)) <= farthest]
    return min(near)[1] if near else ""


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    tables = table("nccl")
    rows = (row["name"] for group in ("variable", "renamed") for row in tables[group])
    return tuple(dict.fromkeys([*tables["known"], *tables["others"], *rows]))


def _distance(one: str, other: str) -> int:
    """Letters to add, to drop or to change, counted up to one more than is of interest."""
    if abs(len(one) - len(other)) > _FARTHEST:
        return _FARTHEST + 1
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        left = [row]
        for at, wanted in enumerate(other, 1):
            left.append(min(above[at] + 1, left[-1] + 1, above[at - 1] + (letter != wanted)))
        if min(left) > _FARTHEST:
            return _FARTHEST + 1
        above = left
    return above[-1]
