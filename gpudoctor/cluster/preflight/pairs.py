"""What was measured between two hosts, from where on a figure is bad, and of which hosts and paths it speaks.

What is usual is taken from the hosts themselves, never from a data sheet. Rates: the limit is a share of the usual
rate, within `LOWEST_LIMIT` and `HIGHEST_LIMIT`, and the lower the more sound hosts differ. The usual rate is the median
of the best that each host sent and of the best that it received: a host next to a bad one is judged by its other pairs,
and one bad host of three does not make its four of six directions the usual ones. How much these best rates differ is
1.4826 times their median absolute deviation, which a few bad hosts do not widen; it is the standard deviation where
they are spread normally. How much one host differs from time to time is taken off, too, and a little where there are
few hosts. The numbers are such that tests/cluster/test_rounds.py finds who it shall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median, median_high
from typing import Literal, NamedTuple

Measure = Literal["reach", "mtu", "loss", "latency", "bandwidth"]
Way = Literal["from", "to", "both"]

CONNECTED = "connected"


@dataclass(frozen=True, slots=True)
class Direction:
    """Result of sending from one host to the other; None means not measured."""

    outcome: str | None = None
    """``connected``, or why not: refused, filtered, unroutable, unresolved, loopback, failed. None: nobody said."""
    gbps: float | None = None
    """Gbit/s."""
    sent: int = 0
    """TCP segments."""
    resent: int = 0
    """Of these, how many were sent more than once."""
    stalled_above: int | None = None
    """Bytes: larger packets vanish."""
    busy: bool = False
    """Whether its ends were too busy to send or receive faster: a low rate then says nothing against the link."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Result of one round for hosts `a` and `b`; rounds count from 1."""

    round: int
    a: str
    b: str
    there: Direction
    """From `a` to `b`."""
    back: Direction
    """From `b` to `a`."""
    ms: float | None = None
    """Round trip, the shortest of some."""
    rail: str = ""
    """The network port of both hosts that was measured alone; empty where each took the one that NCCL or Gloo takes."""

    @property
    def directions(self) -> Iterator[tuple[str, str, Direction]]:
        """(sender, receiver, result) of both directions: from `a` to `b`, then back."""
        yield self.a, self.b, self.there
        yield self.b, self.a, self.back


# ---- A suspect, and the sentence that says so ----

Kind = Literal["host", "link", "switch"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who is to blame. `names` are one host, one switch, or the two ends of a link.

    Where no two hosts are good with each other, nobody can be told from the others: a link whose ends are all of them.
    """

    kind: Kind
    names: tuple[str, ...]
    way: Way
    """What the first of `names` sends (from), what it receives (to), or both."""
    measure: Measure
    value: float | None
    """The best that was measured: Gbit/s, ms, share of lost segments, bytes of the largest packet; None of reach."""
    usual: float | None
    share: float | None
    """Value over usual."""
    pairs: int
    """How many measured pairs say so."""
    words: str = ""
    rail: str = ""
    """The port of the host, or of both ends of the link, that is to blame; empty where it is not one port."""
    network: str = ""
    """The rail whose ports of other hosts that port reaches instead of those of its own."""
    rdma: bool = False
    """Whether it was measured by RDMA, of which rates are told in GB/s as perftest and nccl-tests do."""


def sentence(suspect: Suspect) -> str:
    """The suspect as a sentence: ``n17 sends at 2.1 Gbit/s, 22 % of the usual 9.4 (4 pairs)``; of one port
    ``mlx5_3 on n17 sends 11 of the usual 48 GB/s (4 pairs)``.
    """
    rail = suspect.rail
    if suspect.kind == "host":
        title = f"{rail} on " * bool(rail) + f"{suspect.names[0]} {_host_phrase(suspect)}"
    else:
        title = f"by {rail} " * bool(rail) + f"{_path_ends(suspect)} {_path_phrase(suspect)}"
    return f"{title} ({suspect.pairs} pair{'s' * (suspect.pairs != 1)})"


def _host_phrase(suspect: Suspect) -> str:
    """Predicate about a suspected host: ``sends at 2.1 Gbit/s, 22 % of the usual 9.4``."""
    verb = {"from": "sends", "to": "receives", "both": "sends and receives"}[suspect.way]
    value = suspect.value or 0.0
    if suspect.network:
        return f"reaches the other hosts' {suspect.network}, and none of their {suspect.rail}"
    if suspect.measure == "reach":
        return {
            "from": "reaches none of the hosts that others reach",
            "to": "is reached by none of the hosts that reach others",
            "both": "neither reaches nor is reached by hosts that reach each other",
        }[suspect.way]
    if suspect.measure == "mtu":
        return f"{verb} no packets of more than {value:.0f} bytes"
    if suspect.measure == "loss":
        return f"{verb} with {_percent(value)} of the segments lost"
    if suspect.measure == "latency":
        return f"answers after {value:.3g} ms{_usual_phrase(suspect)}"
    if suspect.rdma:
        return f"{verb} {_gigabytes(suspect)}"
    return f"{verb} at {value:.3g} Gbit/s{_usual_phrase(suspect)}"


def _path_ends(suspect: Suspect) -> str:
    """Where a suspected path runs: ``from a to b``, ``between a and b``, ``between any two of 4 hosts``."""
    if len(suspect.names) > 2:
        return f"between any two of {len(suspect.names)} hosts"
    a, b = suspect.names if suspect.kind == "link" else (*suspect.names, "other switches")
    return {"from": f"from {a} to {b}", "to": f"from {b} to {a}", "both": f"between {a} and {b}"}[suspect.way]


def _path_phrase(suspect: Suspect) -> str:
    """What is wrong on a suspected path: ``packets of more than 1400 bytes vanish``."""
    value = suspect.value or 0.0
    if suspect.measure == "reach":
        a, b = suspect.names[0], suspect.names[-1]
        elsewhere = f", and {suspect.rail} of {a} reaches {suspect.network} of {b}" if suspect.network else ""
        return f"no connection comes about{elsewhere}"
    if suspect.measure == "mtu":
        return f"packets of more than {value:.0f} bytes vanish"
    if suspect.measure == "loss":
        return f"{_percent(value)} of the segments are lost"
    if suspect.measure == "latency":
        return f"a round trip takes {value:.3g} ms{_usual_phrase(suspect)}"
    if suspect.rdma:
        return f"{_gigabytes(suspect)} pass"
    return f"at most {value:.3g} Gbit/s pass{_usual_phrase(suspect)}"


def _gigabytes(suspect: Suspect) -> str:
    """The suspect's rate, held in Gbit/s, in GB/s, with the usual one if known: ``11 of the usual 48 GB/s``."""
    usual = f" of the usual {suspect.usual / 8:.3g}" if suspect.usual else ""
    return f"{(suspect.value or 0.0) / 8:.3g}{usual} GB/s"


def _usual_phrase(suspect: Suspect) -> str:
    """Comparison of a latency or rate with the usual one, beginning with a comma; ``""`` if that is not known."""
    if not suspect.usual:
        return ""
    if suspect.measure == "latency":
        return f", usual are {suspect.usual:.2g} ms"
    return f", {_percent(suspect.share or 0.0, 0)} of the usual {suspect.usual:.3g}"


def _percent(share: float, digits: int = 1) -> str:
    """Share as percent with `digits` decimals: 0.215 is ``21.5 %``."""
    return f"{100 * share:.{digits}f} %"


SLOW_DEVIATIONS = 5.2
"""So many standard deviations: that one of 1,024 sound hosts is so slow by nature is less likely than 1 in 1,000. Where
they differ by 7 %, the limit is 0.63 of the usual, and a host at 0.6 is below it."""
LEAST_SHARE_BUSY = 0.03
"""Of the usual: between ends that had no processor for most of the time rates differ more than 10-fold (8 namespaces, 2
cores, load 15 to 25, 2026-11); slower than that by a factor of three is the link."""
LOWEST_LIMIT = 1 / 3
"""TCP between busy hosts differs 2-fold when nothing is wrong (8 namespaces, 2 cores, 2026-11); 3-fold is no noise."""
HIGHEST_LIMIT = 0.75
"""nccl-tests calls 0.9 of a promised rate good, SuperBench 0.95; the rates of a short round shake more than theirs."""
FEW_ENDS_SPREAD = 0.3
"""Over the root of how many best rates there are: how much a few differ says little of how much they may."""
NOISE_FACTOR = 1.5
"""Times by how much most ends are below their own best at the median, where most are measured three times or more."""
TWO_HOSTS_LIMIT = 1 / 3
"""Of two hosts only the two directions can be compared."""

USUAL_MS = 0.5
"""Round trip in a data centre, for two hosts that have nobody to compare with."""
SLOW_MS_FACTOR = 2.0
SLOW_MS_MORE = 5.0
"""Round trips of sound but busy hosts were up to 4 ms: both this much more and so many times the usual are bad."""

LOST_SHARE = 0.01
"""Share of segments sent again: TCP at 1 % loss falls to a fraction of its rate; bursts in sound nets stay below."""
FEWEST_LOST = 20
"""A share of fewer lost segments says nothing: the last burst of a short flow is lost now and then."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Usual values and limits, learned from the hosts: Gbit/s, ms, share of lost segments; None where not measured."""

    gbps: float | None = None
    least: float = 0.0
    """Slower is bad, in Gbit/s."""
    ms: float | None = None
    most_ms: float = inf
    lost: float = 0.0
    """The usual share of segments sent again; `LOST_SHARE` is too much wherever it is."""

    def reach(self, direction: Direction) -> tuple[float, bool] | None:
        """(1.0 if connected else 0.0, whether it connected) of one direction; None if it was not tried."""
        if direction.outcome is None:
            return None
        connected = direction.outcome == CONNECTED
        return float(connected), connected

    def mtu(self, direction: Direction) -> tuple[float, bool] | None:
        """(largest packet that passes in bytes, inf if all do; whether all do) of one direction; None if not
        connected.
        """
        if direction.outcome != CONNECTED:
            return None
        return (inf, True) if direction.stalled_above is None else (float(direction.stalled_above), False)

    def loss(self, direction: Direction) -> tuple[float, bool] | None:
        """(share of TCP segments sent again, whether below 1 %) of one direction; None if not measured, if large
        packets vanish, or if it is not below and fewer than 20 segments were sent again.
        """
        if not direction.sent or direction.stalled_above is not None:
            return None
        share = direction.resent / direction.sent
        good = share < LOST_SHARE
        return (share, good) if good or direction.resent >= FEWEST_LOST else None

    def bandwidth(self, direction: Direction) -> tuple[float, bool] | None:
        """(Gbit/s, whether not below the limit); None if not measured, stalled by size, or below the limit while an end
        was busy, unless below 3 % of the usual as well.
        """
        rate = _rate_unless_stalled(direction)
        if rate is None or (direction.busy and LEAST_SHARE_BUSY * (self.gbps or 0.0) <= rate < self.least):
            return None
        return rate, rate >= self.least


def limits_of(pairs: Iterable[Pair]) -> Limits:
    """Usual values among these hosts, or ports of hosts, and the limits beyond which a figure is bad; None where not
    measured.
    """
    sends: dict[tuple[str, str], list[float]] = {}
    receives: dict[tuple[str, str], list[float]] = {}
    quickest: dict[tuple[str, str], float] = {}
    lost: dict[tuple[str, str], float] = {}
    for pair in pairs:
        for source, target, way in pair.directions:
            sender, receiver = (pair.rail, source), (pair.rail, target)
            if (rate := _rate_unless_stalled(way)) is not None:
                sends.setdefault(sender, []).append(rate)
                receives.setdefault(receiver, []).append(rate)
            if way.sent:
                lost[sender] = min(way.resent / way.sent, lost.get(sender, inf))
        if pair.ms is not None:
            for end in ((pair.rail, pair.a), (pair.rail, pair.b)):
                quickest[end] = min(pair.ms, quickest.get(end, inf))
    gbps, least = _usual_and_least_rate([*sends.values(), *receives.values()], len(sends.keys() | receives.keys()))
    ms = None if not quickest else median(quickest.values()) if len(quickest) > 2 else USUAL_MS
    return Limits(
        gbps=gbps,
        least=least,
        ms=ms,
        most_ms=inf if ms is None else max(SLOW_MS_FACTOR * ms, ms + SLOW_MS_MORE),
        lost=median(lost.values()) if len(lost) > 2 else 0.0,
    )


def _rate_unless_stalled(direction: Direction) -> float | None:
    """Rate in Gbit/s; None if not measured or if large packets vanish."""
    return direction.gbps if direction.stalled_above is None else None


def _usual_and_least_rate(ends: list[list[float]], hosts: int) -> tuple[float | None, float]:
    """(usual, lowest good) rate in Gbit/s; `ends`: the rates of each host in each direction. (None, 0.0) without."""
    best = [max(rates) for rates in ends]
    usual = median_high(best) if best else 0.0
    if not usual:
        return None, 0.0
    if hosts <= 2:
        return max(best), max(best) * TWO_HOSTS_LIMIT
    spread = 1.4826 * median(abs(rate - usual) for rate in best) / usual
    shakes = median(1 - median(rates) / max(rates) if len(rates) > 2 and max(rates) else 0.0 for rates in ends)
    share = 1 - SLOW_DEVIATIONS * spread - NOISE_FACTOR * shakes - FEW_ENDS_SPREAD / sqrt(len(best))
    return usual, usual * min(max(share, LOWEST_LIMIT), HIGHEST_LIMIT)


# ---- Figures by the ends that they speak of ----
# An end is a host in one direction: what it sends, or what it receives. Sending from h to x speaks of two ends, h's
# sending and x's receiving. A good figure clears both of them. A bad one accuses both, until one is cleared elsewhere.
#
# Rates, delays and losses have a bad moment now and then, and never a better one than the wire allows: one good figure
# outweighs all bad ones. A host that was reached and then no longer is has died: of reach, what came last counts.

End = tuple[str, Way]
Path = tuple[End, End]

FEWEST_BAD = 2
"""So many pairs, or times of the same pair, have to say so."""
SLOW_PATH_SHARE = 0.5
"""A path is slow at less than this share of what both of its ends do with others: there are thousands of paths, and
each is measured once or twice."""


class Figure(NamedTuple):
    """One figure of one direction of a pair: round, sender's and receiver's end, value, and whether it is good."""

    round: int
    ends: Path
    value: float
    good: bool

    def other(self, end: End) -> End:
        """The end opposite to `end` in this figure."""
        return self.ends[1] if self.ends[0] == end else self.ends[0]

    @property
    def hosts(self) -> tuple[str, str]:
        """(sender, receiver) of the figure."""
        return self.ends[0][0], self.ends[1][0]


def figures_of(measure: Measure, pairs: Iterable[Pair], limits: Limits) -> list[Figure]:
    """Figures of one measure, each with whether it is good; pairs that say nothing of it are left out. Empty if none is
    bad, except for latency.
    """
    if measure == "latency":
        return [
            Figure(pair.round, ((pair.a, "both"), (pair.b, "both")), pair.ms, pair.ms <= limits.most_ms)
            for pair in pairs
            if pair.ms is not None
        ]
    of = {"reach": limits.reach, "mtu": limits.mtu, "loss": limits.loss, "bandwidth": limits.bandwidth}[measure]
    ways = [(pair.round, source, target, of(way)) for pair in pairs for source, target, way in pair.directions]
    if all(figure is None or figure[1] for _, _, _, figure in ways):
        return []  # so it is for most measures, and of thousands of hosts this saves most of the time
    return [
        Figure(number, ((source, "from"), (target, "to")), *figure)
        for number, source, target, figure in ways
        if figure is not None
    ]


def opposite(end: End) -> End:
    """The same host in the other direction: ``from`` becomes ``to``, anything else ``from``."""
    host, way = end
    return host, "to" if way == "from" else "from"


class Ends:
    """Figures by end (a host in one direction), to find ends and paths that are bad."""

    def __init__(self, measure: Measure, figures: Iterable[Figure]) -> None:
        """Index the figures of one measure by end (a host in one direction)."""
        self._last_counts = measure == "reach"
        self._rates = measure == "bandwidth"
        self._of: dict[End, list[Figure]] = {}
        for figure in figures:
            for end in figure.ends:
                self._of.setdefault(end, []).append(figure)
        self._good = {end for end, ones in self._of.items() if any(figure.good for figure in ones)}

    def __iter__(self) -> Iterator[End]:
        return iter(self._of)

    def ever_good(self, end: End) -> bool:
        """True if any figure of the end (a host in one direction) is good."""
        return end in self._good

    def bad(self, end: End) -> list[Figure]:
        """Bad figures of an end (a host in one direction): none if any is good; of reach those after the last good."""
        ones = self._of[end]
        if not self._last_counts:
            return [] if end in self._good else ones
        last_good = max((figure.round for figure in ones if figure.good), default=0)
        return [figure for figure in ones if figure.round > last_good]

    def accusing(self, end: End) -> list[Figure]:
        """Bad figures that count against an end: those whose opposite end has a good figure elsewhere."""
        return [figure for figure in self.bad(end) if figure.other(end) in self._good]

    def guilty(self, others: int) -> dict[End, list[Figure]]:
        """Ends (a host in one direction) that are bad with at least `others` different ends that are good elsewhere,
        each with its bad figures.
        """
        accusers = {end: self.accusing(end) for end in self}
        return {end: ones for end, ones in accusers.items() if len({figure.other(end) for figure in ones}) >= others}

    def paths(self, bad: Iterable[Figure], times: int) -> dict[Path, list[Figure]]:
        """Paths (sender, receiver) with at least `times` of these bad figures and no good one, whose ends are both much
        better elsewhere or meet nobody else; each with its figures.
        """
        ways: dict[Path, list[Figure]] = {}
        for figure in bad:
            ways.setdefault(figure.ends, []).append(figure)
        return {way: ones for way, ones in ways.items() if len(ones) >= times and self._is_path(way)}

    def _is_path(self, path: Path) -> bool:
        """True if the path has no good figure, and its ends either do much better with others or have no others."""
        figures = [figure for figure in self._of[path[0]] if figure.ends == path]
        alone = all(figure.ends == path for end in path for figure in self._of[end])
        worse = all(end in self._good and self._is_worse(figures, end) for end in path)
        return (worse or alone) and not any(figure.good for figure in figures)

    def _is_worse(self, figures: Iterable[Figure], end: End) -> bool:
        """True if every rate in `figures` is at most half of the end's best good one; always for other measures."""
        best = max(figure.value for figure in self._of[end] if figure.good)
        return not self._rates or max(figure.value for figure in figures) <= SLOW_PATH_SHARE * best
