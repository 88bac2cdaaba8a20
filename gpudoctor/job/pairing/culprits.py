"""Who is to blame, by what pairs of hosts measured.

Pairs in which somebody bad takes part are bad, so one bad pair says only that it is one of two. `limits` tells from the
hosts themselves what is usual and what is bad; `evidence` sorts the figures by the ends that they speak of, what a host
sends and what it receives; `weighing` tells the guilty from those who merely met them, hosts from paths and from whole
switches. Here this becomes suspects, each measure for itself: a host may lose packets and for that reason be slow.

It works with whatever was measured: rounds cut short, pairs that never reported. Nobody is named by a single pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudoctor.job.pairing.evidence import CONFIRMED, End, Seen, opposite, seen
from gpudoctor.job.pairing.limits import Limits, limits
from gpudoctor.job.pairing.pairs import Measure, Pair, Way
from gpudoctor.job.pairing.suspect import Kind, Suspect, words
from gpudoctor.job.pairing.weighing import Weighed, weigh

MEASURES: tuple[Measure, ...] = ("reach", "mtu", "loss", "latency", "bandwidth")
"""What explains more comes first: who loses packets is slow, too."""


@dataclass(frozen=True)
class Judged:
    """What all measures say."""

    limits: Limits
    weighed: tuple[Weighed, ...]

    @property
    def doubt(self) -> frozenset[str]:
        """Hosts that more rounds can tell more of."""
        return frozenset[str]().union(*(one.doubt for one in self.weighed))

    @property
    def guilty(self) -> frozenset[str]:
        """Hosts that are no measure of others."""
        return frozenset(host for one in self.weighed for host, _ in one.guilty)

    @property
    def again(self) -> frozenset[tuple[str, str]]:
        """Pairs to be measured again."""
        return frozenset[tuple[str, str]]().union(*(one.again for one in self.weighed))


def judge(measured: Sequence[Pair], switches: Mapping[str, str]) -> Judged:
    """What all measures say. `switches` are the leaf switches of those hosts of which it is known."""
    found = limits(measured)
    return Judged(found, tuple(weigh(measure, seen(measure, measured, found), switches) for measure in MEASURES))


def suspects(measured: Sequence[Pair], switches: Mapping[str, str] | None = None) -> tuple[Suspect, ...]:
    """Who is to blame; the more telling measure first, then switches before hosts before links, then by name."""
    judged = judge(measured, switches or {})
    return tuple(one for weighed in judged.weighed for one in _suspects(weighed, judged.limits))


def _suspects(weighed: Weighed, limits: Limits) -> list[Suspect]:
    out = [_one("switch", (name,), way, bad, weighed, limits) for (name, way), bad in _merged(weighed.switches)]
    out += [_one("host", (name,), way, bad, weighed, limits) for (name, way), bad in _merged(_dead(weighed))]
    out += [_one("link", *link, weighed, limits) for link in _links(weighed)]
    if _times(weighed.nobody) >= CONFIRMED:
        names = tuple(sorted({host for one in weighed.nobody for host in one.hosts}))
        out.append(_one("link", names, "both", weighed.nobody, weighed, limits))
    return out


def _merged(ends: Mapping[End, Sequence[Seen]]) -> list[tuple[End, list[Seen]]]:
    """Sorted by name; who is guilty in both directions is once."""
    by_name: dict[str, dict[Way, Sequence[Seen]]] = {}
    for name, way in sorted(ends):
        by_name.setdefault(name, {})[way] = ends[name, way]
    return [
        ((name, "both" if len(ways) > 1 else next(iter(ways))), [one for bad in ways.values() for one in bad])
        for name, ways in by_name.items()
    ]


def _dead(weighed: Weighed) -> Mapping[End, Sequence[Seen]]:
    """The guilty; a host that nobody reaches, and nobody heard of reaching anybody, is guilty in both directions."""
    silent = [end for end in weighed.guilty if end[0] in weighed.silent]
    return {**{opposite(end): () for end in silent}, **weighed.guilty}


def _links(weighed: Weighed) -> list[tuple[tuple[str, str], Way, list[Seen]]]:
    """Sorted by names; a path that is bad both ways is once."""
    by_hosts: dict[tuple[str, str], list[tuple[tuple[str, str], list[Seen]]]] = {}
    for bad in weighed.paths.values():
        hosts = bad[0].hosts
        by_hosts.setdefault((min(hosts), max(hosts)), []).append((hosts, bad))
    out: list[tuple[tuple[str, str], Way, list[Seen]]] = []
    for hosts, ways in sorted(by_hosts.items()):
        one_way = len(ways) == 1 and weighed.measure != "latency"
        names = ways[0][0] if one_way else hosts
        out.append((names, "from" if one_way else "both", [one for _, bad in ways for one in bad]))
    return out


def _times(bad: Iterable[Seen]) -> int:
    """How many pairs these figures are of; a pair measured in two rounds counts twice."""
    return len({(one.round, frozenset(one.hosts)) for one in bad})


def _one(
    kind: Kind, names: tuple[str, ...], way: Way, bad: Sequence[Seen], weighed: Weighed, limits: Limits
) -> Suspect:
    measure = weighed.measure
    values = [one.value for one in bad]
    value = {"reach": None, "bandwidth": max(values), "mtu": max(values)}.get(measure, min(values))
    usual = {"latency": limits.ms, "bandwidth": limits.gbps, "loss": limits.lost}.get(measure)
    share = value / usual if value is not None and usual else None
    suspect = Suspect(kind, names, way, measure, value, usual, share, _times(bad))
    return replace(suspect, words=words(suspect))
