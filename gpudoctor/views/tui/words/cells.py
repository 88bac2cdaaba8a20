"""The cells of a heat map: a glyph says it, the level colours it, words give the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

Level = Literal["good", "info", "low", "bad", "unread", "none"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell: what is drawn, how bad it is, and why in words."""

    glyph: str = "·"
    level: Level = "good"
    reason: str = ""

    @property
    def bad(self) -> bool:
        """Whether `n` goes there."""
        return self.level in {"low", "bad"}


ITSELF = Mark("\\", "none", "itself")


def share(ratio: float, reason: str = "", good: float = 0.9) -> Mark:
    """Measured over expected: a dot from `good` on, else tenths (4 is 40 to 49 %); below half is bad."""
    if isnan(ratio):
        return unread(reason)
    if ratio >= good:
        return Mark(reason=reason)
    tenths = max(0, int(ratio * 10 + 1e-9))
    return Mark(str(min(tenths, 9)), "low" if tenths >= 5 else "bad", reason)


def wrong(reason: str) -> Mark:
    """What arrived is not what was sent, or what was reckoned is not so."""
    return Mark("x", "bad", reason)


def unread(reason: str) -> Mark:
    """It was not measured, or did not answer."""
    return Mark("?", "unread", reason)


def no_link(reason: str = "no link") -> Mark:
    """There is nothing to measure."""
    return Mark("-", "none", reason)


def headings(names: Sequence[str]) -> list[str]:
    """The names without what they all begin with, to fit over narrow columns: ``node01`` is ``1`` of eight."""
    if len(names) < 2:
        return list(names)
    common = 0
    while all(len(name) > common for name in names) and len({name[common] for name in names}) == 1:
        common += 1
    while common and all(name[common - 1 : common + 1].isdigit() for name in names) and names[0][common - 1] != "0":
        common -= 1
    common -= any(len(name) == common for name in names)
    return [name[common:] for name in names]
