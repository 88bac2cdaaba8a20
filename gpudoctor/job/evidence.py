"""Figures by the ends that they speak of.

An end is a host in one direction: what it sends, or what it receives. Sending from h to x speaks of two ends, h's
sending and x's receiving. A good figure clears both of them. A bad one accuses both, until one is cleared elsewhere.

Rates, delays and losses have a bad moment now and then, and never a better one than the wire allows: one good figure
outweighs all bad ones. A host that was reached and then no longer is has died: of reach, what came last counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpudoctor.job.limits import Limits
from gpudoctor.job.pairs import Measure, Pair, Way

End = tuple[str, Way]
Path = tuple[End, End]

CONFIRMED = 2
"""So many pairs, or times of the same pair, have to say so."""


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
    """The figures of one measure that say anything."""
    if measure == "latency":
        return [
            Seen(pair.round, ((pair.a, "both"), (pair.b, "both")), pair.ms, pair.ms <= limits.most_ms)
            for pair in pairs
            if pair.ms is not None
        ]
    of = {"reach": limits.reach, "mtu": limits.mtu, "loss": limits.loss, "bandwidth": limits.bandwidth}[measure]
    return [
        Seen(pair.round, ((source, "from"), (target, "to")), *figure)
        for pair in pairs
        for source, target, way in pair.ways
        if (figure := of(way)) is not None
    ]


class Ends:
    """The ends that some figures speak of."""

    def __init__(self, figures: Iterable[Seen], last_counts: bool = False) -> None:
        self._last_counts = last_counts
        self._of: dict[End, list[Seen]] = {}
        for one in figures:
            for end in one.ends:
                self._of.setdefault(end, []).append(one)
        self._good = {end for end, ones in self._of.items() if any(one.good for one in ones)}

    def __iter__(self) -> Iterator[End]:
        return iter(self._of)

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

    def guilty(self) -> dict[End, list[Seen]]:
        """Ends that are bad with at least two others that are good elsewhere, and the figures that say so."""
        said = {end: self.accusing(end) for end in self}
        return {end: ones for end, ones in said.items() if len({one.other(end) for one in ones}) >= CONFIRMED}

    def paths(self, bad: Iterable[Seen]) -> dict[Path, list[Seen]]:
        """Ways that were bad at least twice and never good, though both ends are good elsewhere or have nobody else."""
        ways: dict[Path, list[Seen]] = {}
        for one in bad:
            ways.setdefault(one.ends, []).append(one)
        return {way: ones for way, ones in ways.items() if len(ones) >= CONFIRMED and self._is_path(way)}

    def _is_path(self, way: Path) -> bool:
        sound = all(end in self._good for end in way)
        alone = all(one.ends == way for end in way for one in self._of[end])
        return (sound or alone) and not any(one.good for one in self._of[way[0]] if one.ends == way)
