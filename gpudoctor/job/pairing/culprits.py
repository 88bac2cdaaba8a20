"""Who is to blame, by what pairs of hosts measured.

Pairs in which somebody bad takes part are bad, so one bad pair says only that it is one of two. `limits` tells from the
hosts themselves what is usual and what is bad; `evidence` sorts the figures by the ends that they speak of, what a host
sends and what it receives; `weighing` tells the guilty from those who merely met them, hosts from paths and from whole
switches. Here this becomes suspects, each measure for itself: a host may lose packets and for that reason be slow.

It works with whatever was measured: rounds cut short, pairs that never reported. Nobody is named by a single pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudoctor.job.pairing.evidence import CONFIRMED, End, Ends, Path, Seen, opposite, seen
from gpudoctor.job.pairing.limits import Limits, limits
from gpudoctor.job.pairing.pairs import Measure, Pair, Way
from gpudoctor.job.pairing.suspect import Kind, Suspect, words

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


# ---- What one measure says ----
# Who is guilty, which path is bad, who is in doubt, what is to be measured again:
#
# - An end is *guilty* when it is not good with anybody, among them two whose ends are good with others; three of many.
# - A *path* is bad when its two hosts measured it as many times, never well, and both are good with others.
# - A *switch* is guilty when nearly all hosts below it are bad with hosts of other switches, which are good elsewhere.
# - Whoever else has a bad figure that none of these explains is in *doubt*: more rounds will tell.

SURE: frozenset[Measure] = frozenset({"reach", "mtu"})
"""Measures that do not shake: what two pairs say needs no third. The others are measured while there are rounds."""
MANY = 100
"""Of so many figures some of the same end or path are bad twice by mere chance: blamed is who is bad three times."""
MOST = 0.8
"""Of the hosts below a switch: if so many are bad beyond it, the switch is. The others had a lucky path."""
LEAST_HOSTS = 3
"""Two bad hosts below one switch may be chance."""


@dataclass(frozen=True)
class Weighed:
    """What one measure says; the lists are the bad figures that say so."""

    measure: Measure
    switches: Mapping[End, list[Seen]] = field(default_factory=dict)
    """The name in the end is the switch's."""
    guilty: Mapping[End, list[Seen]] = field(default_factory=dict)
    paths: Mapping[Path, list[Seen]] = field(default_factory=dict)
    nobody: Sequence[Seen] = ()
    """All figures, where not one of them is good."""
    silent: frozenset[str] = frozenset()
    """Of reach: the guilty of which nothing is known in the opposite direction since they were bad."""
    doubt: frozenset[str] = frozenset()
    """Hosts."""
    again: frozenset[tuple[str, str]] = frozenset()
    """Pairs of hosts that are good elsewhere."""


def weigh(measure: Measure, figures: Sequence[Seen], switches: Mapping[str, str]) -> Weighed:
    """What these figures say. `switches` are the leaf switches of those hosts of which it is known."""
    bad = [one for one in figures if not one.good]
    if not bad:
        return Weighed(measure)
    if len(bad) == len(figures):
        learned = measure in SURE and len({one.round for one in bad}) >= CONFIRMED
        return Weighed(measure, nobody=bad, doubt=frozenset() if learned else _hosts(bad))
    leaves = _switches(measure, figures, switches)
    accused = {end for one in bad for end in one.ends}
    matter = [one for one in figures if not accused.isdisjoint(one.ends) and not _explains(leaves, one, switches)]
    ends = Ends(measure, matter)
    times = CONFIRMED if measure in SURE or len(figures) < MANY else CONFIRMED + 1
    guilty = ends.guilty(times)
    unexplained = [one for one in matter if not one.good and guilty.keys().isdisjoint(one.ends)]
    paths = ends.paths(unexplained, times)
    unsettled = [one for one in unexplained if measure not in SURE or one.ends not in paths]
    in_doubt = {host for one in unsettled for host, way in one.ends if ends.bad((host, way))}
    only_by_switch = _hosts(bad) - _hosts(matter)
    unsure = frozenset() if measure in SURE else frozenset(host for host, _ in guilty)
    return Weighed(
        measure,
        switches=leaves,
        guilty=guilty,
        silent=_silent(figures, guilty) if measure == "reach" else frozenset(),
        paths=paths,
        doubt=unsure | in_doubt | only_by_switch,
        again=frozenset((min(one.hosts), max(one.hosts)) for one in unsettled if all(map(ends.ever_good, one.ends))),
    )


def _hosts(figures: Iterable[Seen]) -> frozenset[str]:
    return frozenset(host for one in figures for host in one.hosts)


def _silent(figures: Iterable[Seen], guilty: Mapping[End, list[Seen]]) -> frozenset[str]:
    since = {opposite(end): bad[0].round for end, bad in guilty.items()}
    measured = {end for one in figures for end in one.ends if one.round >= since.get(end, one.round + 1)}
    return frozenset(host for host, _ in since.keys() - measured)


def _beyond(one: Seen, switches: Mapping[str, str]) -> bool:
    """Whether it was measured between two switches."""
    a, b = map(switches.get, one.hosts)
    return a is not None and b is not None and a != b


def _explains(leaves: Mapping[End, list[Seen]], one: Seen, switches: Mapping[str, str]) -> bool:
    """Whether it is bad because of a switch."""
    return (
        bool(leaves)
        and not one.good
        and _beyond(one, switches)
        and any((switches[host], way) in leaves for host, way in one.ends)
    )


def _switches(measure: Measure, figures: Iterable[Seen], switches: Mapping[str, str]) -> dict[End, list[Seen]]:
    beyond = [one for one in figures if _beyond(one, switches)] if switches else []
    accused = {end for one in beyond if not one.good for end in one.ends}
    if len(accused) < LEAST_HOSTS:
        return {}
    hosts = Counter((switches[host], way) for host, way in {end for one in beyond for end in one.ends})
    ends = Ends(measure, (one for one in beyond if not accused.isdisjoint(one.ends)))
    by_leaf: dict[End, list[list[Seen]]] = {}
    for host, way in ends:
        if against := ends.accusing((host, way)):
            by_leaf.setdefault((switches[host], way), []).append(against)
    return {
        leaf: [one for against in by_host for one in against]
        for leaf, by_host in by_leaf.items()
        if len(by_host) >= max(LEAST_HOSTS, MOST * hosts[leaf])
    }
