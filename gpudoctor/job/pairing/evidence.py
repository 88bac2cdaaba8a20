"""Figures by the ends that they speak of.

An end is a host in one direction: what it sends, or what it receives. Sending from h to x speaks of two ends, h's
sending and x's receiving. A good figure clears both of them. A bad one accuses both, until one is cleared elsewhere.

Rates, delays and losses have a bad moment now and then, and never a better one than the wire allows: one good figure
outweighs all bad ones. A host that was reached and then no longer is has died: of reach, what came last counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpudoctor.job.pairing.limits import Limits
from gpudoctor.job.pairing.pairs import Measure, Pair, Way

End = tuple[str, Way]
Path = tuple[End, End]

CONFIRMED = 2
"""So many pairs, or times of the same pair, have to say so."""
PATH = 0.5
"""A path is slow at less than this share of what both of its ends do with others: there are thousands of paths, and
each is measured once or twice."""


class Seen(NamedTuple):
    """One figure: who sent, who received (`ends`, in this order), and whether it is good."""

    round: int
    ends: Path
    value: float
    good: bool

    def other(self, end: End) -> End:
        """The end that it was measured with."""
        return self.ends[1] if self.ends[0] == end else self.ends[0]

    @property
    def hosts(self) -> tuple[str, str]:
        """Both, in the order of sending."""
        return self.ends[0][0], self.ends[1][0]


def seen(measure: Measure, pairs: Iterable[Pair], limits: Limits) -> list[Seen]:
    """The figures of one measure that say anything; where not one of them is bad, there may be none."""
    if measure == "latency":
        return [
            Seen(pair.round, ((pair.a, "both"), (pair.b, "both")), pair.ms, pair.ms <= limits.most_ms)
            for pair in pairs
            if pair.ms is not None
        ]
    of = {"reach": limits.reach, "mtu": limits.mtu, "loss": limits.loss, "bandwidth": limits.bandwidth}[measure]
    ways = [(pair.round, source, target, of(way)) for pair in pairs for source, target, way in pair.ways]
    if all(figure is None or figure[1] for _, _, _, figure in ways):
        return []  # so it is for most measures, and of thousands of hosts this saves most of the time
    return [
        Seen(number, ((source, "from"), (target, "to")), *figure)
        for number, source, target, figure in ways
        if figure is not None
    ]


def opposite(end: End) -> End:
    """The same host in the other direction."""
    host, way = end
    return host, "to" if way == "from" else "from"


class Ends:
    """The ends that some figures speak of."""

    def __init__(self, measure: Measure, figures: Iterable[Seen]) -> None:
        self._last_counts = measure == "reach"
        self._rates = measure == "bandwidth"
        self._of: dict[End, list[Seen]] = {}
        for one in figures:
            for end in one.ends:
                self._of.setdefault(end, []).append(one)
        self._good = {end for end, ones in self._of.items() if any(one.good for one in ones)}

    def __iter__(self) -> Iterator[End]:
        return iter(self._of)

    def ever_good(self, end: End) -> bool:
        """Whether any figure of it is good."""
        return end in self._good

    def bad(self, end: End) -> list[Seen]:
        """The figures held against an end: none where it is cleared."""
        ones = self._of[end]
        if not self._last_counts:
            return [] if end in self._good else ones
        last_good = max((one.round for one in ones if one.good), default=0)
        return [one for one in ones if one.round > last_good]

    def accusing(self, end: End) -> list[Seen]:
        """Of `bad`, those with hosts that are good elsewhere."""
        return [one for one in self.bad(end) if one.other(end) in self._good]

    def guilty(self, others: int) -> dict[End, list[Seen]]:
        """Ends that are bad with so many others that are good elsewhere, and the figures that say so."""
        accusers = {end: self.accusing(end) for end in self}
        return {end: ones for end, ones in accusers.items() if len({one.other(end) for one in ones}) >= others}

    def paths(self, bad: Iterable[Seen], times: int) -> dict[Path, list[Seen]]:
        """Ways that were never good and bad so many times, though both ends are good elsewhere or have nobody else."""
        ways: dict[Path, list[Seen]] = {}
        for one in bad:
            ways.setdefault(one.ends, []).append(one)
        return {way: ones for way, ones in ways.items() if len(ones) >= times and self._is_path(way)}

    def _is_path(self, way: Path) -> bool:
        figures = [one for one in self._of[way[0]] if one.ends == way]
        alone = all(one.ends == way for end in way for one in self._of[end])
        worse = all(end in self._good and self._worse(figures, end) for end in way)
        return (worse or alone) and not any(one.good for one in figures)

    def _worse(self, figures: Iterable[Seen], end: End) -> bool:
        """Whether these rates are much below what the end is capable of; other measures are as their limits say."""
        best = max(one.value for one in self._of[end] if one.good)
        return not self._rates or max(one.value for one in figures) <= PATH * best
