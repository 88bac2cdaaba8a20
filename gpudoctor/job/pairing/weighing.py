"""What one measure says: who is guilty, which path is bad, who is in doubt, what is to be measured again.

- An end is *guilty* when it is not good with anybody, among them two whose ends are good with others; three of many.
- A *path* is bad when its two hosts measured it as many times, never well, and both are good with others.
- A *switch* is guilty when nearly all hosts below it are bad with hosts of other switches, which are good elsewhere.
- Whoever else has a bad figure that none of these explains is in *doubt*: more rounds will tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpudoctor.job.pairing.evidence import CONFIRMED, End, Ends, Path, Seen, opposite
from gpudoctor.job.pairing.pairs import Measure

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
