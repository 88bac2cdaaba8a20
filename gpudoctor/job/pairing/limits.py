"""From where on a figure is bad. What is usual is taken from the hosts themselves, never from a data sheet.

Rates: the limit is a share of the usual rate, within `LOWEST` and `HIGHEST`, and the lower the more sound hosts differ.
The usual rate is the median of the best that each host sent and of the best that it received: a host next to a bad one
is judged by its other pairs, and one bad host of three does not make its four of six directions the usual ones. How
much these best rates differ is 1.4826 times their median absolute deviation, which a few bad hosts do not widen; it is
the standard deviation where they are spread normally. How much one host differs from time to time is taken off, too,
and a little where there are few hosts. The numbers are such that `python -m tests.fabric` names who it shall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median, median_high

from gpudoctor.job.pairing.pairs import CONNECTED, Direction, Pair

SPREADS = 5.2
"""So many standard deviations: that one of 1,024 sound hosts is so slow by nature is less likely than 1 in 1,000. Where
they differ by 7 %, the limit is 0.63 of the usual, and a host at 0.6 is below it."""
BUSY = 0.03
"""Of the usual: between ends that had no processor for most of the time rates differ more than 10-fold (8 namespaces, 2
cores, load 15 to 25, 2026-11); slower than that by a factor of three is the link."""
LOWEST = 1 / 3
"""TCP between busy hosts differs 2-fold when nothing is wrong (8 namespaces, 2 cores, 2026-11); 3-fold is no noise."""
HIGHEST = 0.75
"""nccl-tests calls 0.9 of a promised rate good, SuperBench 0.95; the rates of a short round shake more than theirs."""
UNSURE = 0.3
"""Over the root of how many best rates there are: how much a few differ says little of how much they may."""
SHAKES = 1.5
"""Times by how much most ends are below their own best at the median, where most are measured three times or more."""
TWO_HOSTS = 1 / 3
"""Of two hosts only the two directions can be compared."""

USUAL_MS = 0.5
"""Round trip in a data centre, for two hosts that have nobody to compare with."""
TIMES_MS = 2.0
MORE_MS = 5.0
"""Round trips of sound but busy hosts were up to 4 ms: both this much more and so many times the usual are bad."""

LOST = 0.01
"""Share of segments sent again: TCP at 1 % loss falls to a fraction of its rate; bursts in sound nets stay below."""
LOST_COUNT = 20
"""A share of fewer lost segments says nothing: the last burst of a short flow is lost now and then."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is usual and what is bad; None is what nobody measured."""

    gbps: float | None = None
    least: float = 0.0
    """Slower is bad, in Gbit/s."""
    ms: float | None = None
    most_ms: float = inf
    lost: float = 0.0
    """The usual share of segments sent again; `LOST` is too much wherever it is."""

    def reach(self, way: Direction) -> tuple[float, bool] | None:
        """1 or 0, and whether that is good. None, here and below, where it says nothing."""
        if way.outcome is None:
            return None
        connected = way.outcome == CONNECTED
        return float(connected), connected

    def mtu(self, way: Direction) -> tuple[float, bool] | None:
        """The largest packet that passes, in bytes, or infinite."""
        if way.outcome != CONNECTED:
            return None
        return (inf, True) if way.stalled_above is None else (float(way.stalled_above), False)

    def loss(self, way: Direction) -> tuple[float, bool] | None:
        """The share of segments sent again."""
        if not way.sent or way.stalled_above is not None:
            return None
        share = way.resent / way.sent
        good = share < LOST
        return (share, good) if good or way.resent >= LOST_COUNT else None

    def bandwidth(self, way: Direction) -> tuple[float, bool] | None:
        """Gbit/s; what stalls because of its size is not slow, nor is what its busy ends may have held up."""
        rate = _rate(way)
        if rate is None or (way.busy and BUSY * (self.gbps or 0.0) <= rate < self.least):
            return None
        return rate, rate >= self.least


def limits(pairs: Iterable[Pair]) -> Limits:
    """What is usual among these hosts, and from where on a figure is bad."""
    sends: dict[str, list[float]] = {}
    receives: dict[str, list[float]] = {}
    quickest: dict[str, float] = {}
    lost: dict[str, float] = {}
    for pair in pairs:
        for source, target, way in pair.ways:
            if (rate := _rate(way)) is not None:
                sends.setdefault(source, []).append(rate)
                receives.setdefault(target, []).append(rate)
            if way.sent:
                lost[source] = min(way.resent / way.sent, lost.get(source, inf))
        if pair.ms is not None:
            for host in (pair.a, pair.b):
                quickest[host] = min(pair.ms, quickest.get(host, inf))
    gbps, least = _rates([*sends.values(), *receives.values()], len(sends.keys() | receives.keys()))
    ms = _usual_ms(list(quickest.values()))
    return Limits(
        gbps=gbps,
        least=least,
        ms=ms,
        most_ms=inf if ms is None else max(TIMES_MS * ms, ms + MORE_MS),
        lost=median(lost.values()) if len(lost) > 2 else 0.0,
    )


def _rate(way: Direction) -> float | None:
    return way.gbps if way.stalled_above is None else None


def _rates(ends: list[list[float]], hosts: int) -> tuple[float | None, float]:
    """The usual rate and the least that is good, by what was measured of each end."""
    best = [max(rates) for rates in ends]
    usual = median_high(best) if best else 0.0
    if not usual:
        return None, 0.0
    if hosts <= 2:
        return max(best), max(best) * TWO_HOSTS
    spread = 1.4826 * median(abs(rate - usual) for rate in best) / usual
    shakes = median(1 - median(rates) / max(rates) if len(rates) > 2 and max(rates) else 0.0 for rates in ends)
    share = 1 - SPREADS * spread - SHAKES * shakes - UNSURE / sqrt(len(best))
    return usual, usual * min(max(share, LOWEST), HIGHEST)


def _usual_ms(quickest: list[float]) -> float | None:
    if not quickest:
        return None
    return median(quickest) if len(quickest) > 2 else USUAL_MS
