"""Whose clock is away from the others', by comparisons of two at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def furthest_clock(offsets: Mapping[tuple[str, str], float], hosts: Sequence[str]) -> tuple[float, str] | None:
    """The largest difference from the middle clock, in ms, and whose it is.

    `offsets` are the second machine's clock minus the first one's, where two have compared theirs.
    """
    clocks = _clocks(offsets, hosts)
    if len(clocks) < 2:
        return None
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    host = max(clocks, key=lambda name: abs(clocks[name] - middle))
    return abs(clocks[host] - middle), host


def _clocks(offsets: Mapping[tuple[str, str], float], hosts: Iterable[str]) -> dict[str, float]:
    """Each clock against the first machine's, as far as comparisons lead from one to the next."""
    known: dict[str, float] = {}
    near: dict[str, list[tuple[str, float]]] = {}
    for (a, b), offset in offsets.items():
        near.setdefault(a, []).append((b, offset))
        near.setdefault(b, []).append((a, -offset))
    for first in hosts:
        if near.get(first):
            known[first] = 0.0
            waiting = [first]
            while waiting:
                here = waiting.pop()
                for there, offset in near.get(here, ()):
                    if there not in known:
                        known[there] = known[here] + offset
                        waiting.append(there)
            break
    return known
