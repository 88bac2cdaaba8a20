"""Who is to blame, by what pairs of hosts measured.

Pairs in which somebody bad takes part are bad, so one bad pair says only that it is one of two. `pairs` tells from the
hosts themselves what is usual and what is bad, and sorts the figures by the ends that they speak of, what a host sends
and what it receives. Here the guilty are told from those who merely met them, hosts from paths and from whole switches,
and become suspects, each measure for itself: a host may lose packets and for that reason be slow.

It works with whatever was measured: rounds cut short, pairs that never reported. Nobody is named by a single pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudoctor.cluster.preflight.pairs import (
    FEWEST_BAD,
    End,
    Ends,
    Figure,
    Kind,
    Limits,
    Measure,
    Pair,
    Path,
    Suspect,
    Way,
    figures_of,
    limits_of,
    opposite,
    sentence,
)

MEASURES: tuple[Measure, ...] = ("reach", "mtu", "loss", "latency", "bandwidth")
"""What explains more comes first: who loses packets is slow, too."""


@dataclass(frozen=True)
class Judged:
    """Results of all measures."""

    limits: Limits
    weighed: tuple[Weighed, ...]

    @property
    def doubt(self) -> frozenset[str]:
        """Hosts about which more rounds of measurement can tell more, by any measure."""
        return frozenset[str]().union(*(measure.doubt for measure in self.weighed))

    @property
    def guilty(self) -> frozenset[str]:
        """Hosts found bad by any measure, against which others must not be measured."""
        return frozenset(host for measure in self.weighed for host, _ in measure.guilty)

    @property
    def again(self) -> frozenset[tuple[str, str]]:
        """Pairs of hosts to be measured again, since the path between them may be bad."""
        return frozenset[tuple[str, str]]().union(*(measure.again for measure in self.weighed))


def judge(measured: Sequence[Pair], switches: Mapping[str, str], limits: Limits | None = None) -> Judged:
    """Judgement of every measure (reach, mtu, loss, latency, bandwidth) from the pairs measured; `switches` gives
    hosts' leaf switches where known, `limits` what is usual (default: learned from these pairs).
    """
    found = limits or limits_of(measured)
    return Judged(found, tuple(weigh(measure, figures_of(measure, measured, found), switches) for measure in MEASURES))


def suspects(
    measured: Sequence[Pair], switches: Mapping[str, str] | None = None, limits: Limits | None = None
) -> tuple[Suspect, ...]:
    """Suspects by measure, what explains most first; within one measure switches, then hosts, then links, by name."""
    judged = judge(measured, switches or {}, limits)
    return tuple(suspect for weighed in judged.weighed for suspect in _suspects(weighed, judged.limits))


def _suspects(weighed: Weighed, limits: Limits) -> list[Suspect]:
    """Suspects of one measure: guilty switches, hosts, links, and one link of all hosts where no two are good."""
    silent = [end for end in weighed.guilty if end[0] in weighed.silent]  # both ends of it, the other without figures
    guilty: dict[Kind, Mapping[End, Sequence[Figure]]] = {
        "switch": weighed.switches,
        "host": {**{opposite(end): () for end in silent}, **weighed.guilty},
    }
    out = [
        _suspect(kind, (name,), way, bad, weighed, limits)
        for kind, ends in guilty.items()
        for (name, way), bad in _merged_directions(ends)
    ]
    out += [_suspect("link", *link, weighed, limits) for link in _merged_paths(weighed)]
    if _distinct_measurements(weighed.nobody) >= FEWEST_BAD:
        names = tuple(sorted({host for pair in weighed.nobody for host in pair.hosts}))
        out.append(_suspect("link", names, "both", weighed.nobody, weighed, limits))
    return out


def _merged_directions(ends: Mapping[End, Sequence[Figure]]) -> list[tuple[End, list[Figure]]]:
    """((name, direction), bad figures) sorted by name; a name guilty in both directions is one entry ``both``."""
    by_name: dict[str, dict[Way, Sequence[Figure]]] = {}
    for name, way in sorted(ends):
        by_name.setdefault(name, {})[way] = ends[name, way]
    return [
        ((name, "both" if len(ways) > 1 else next(iter(ways))), [figure for bad in ways.values() for figure in bad])
        for name, ways in by_name.items()
    ]


def _merged_paths(weighed: Weighed) -> list[tuple[tuple[str, str], Way, list[Figure]]]:
    """(hosts, direction, bad figures) of each bad path, sorted by hosts; if bad both ways, and always of latency, one
    entry ``both``.
    """
    by_hosts: dict[tuple[str, str], list[tuple[tuple[str, str], list[Figure]]]] = {}
    for bad in weighed.paths.values():
        hosts = bad[0].hosts
        by_hosts.setdefault((min(hosts), max(hosts)), []).append((hosts, bad))
    out: list[tuple[tuple[str, str], Way, list[Figure]]] = []
    for hosts, ways in sorted(by_hosts.items()):
        one_way = len(ways) == 1 and weighed.measure != "latency"
        names = ways[0][0] if one_way else hosts
        out.append((names, "from" if one_way else "both", [figure for _, bad in ways for figure in bad]))
    return out


def _distinct_measurements(bad: Iterable[Figure]) -> int:
    """Number of pairs that the figures belong to; a pair measured in two rounds counts twice."""
    return len({(figure.round, frozenset(figure.hosts)) for figure in bad})


def _suspect(
    kind: Kind, names: tuple[str, ...], direction: Way, bad: Sequence[Figure], weighed: Weighed, limits: Limits
) -> Suspect:
    """A Suspect with the best of its bad values (None of reach), the usual value, their ratio and its sentence."""
    measure = weighed.measure
    values = [figure.value for figure in bad]
    value = {"reach": None, "bandwidth": max(values), "mtu": max(values)}.get(measure, min(values))
    usual = {"latency": limits.ms, "bandwidth": limits.gbps, "loss": limits.lost}.get(measure)
    share = value / usual if value is not None and usual else None
    suspect = Suspect(kind, names, direction, measure, value, usual, share, _distinct_measurements(bad))
    return replace(suspect, words=sentence(suspect))


# ---- What one measure says ----
# Who is guilty, which path is bad, who is in doubt, what is to be measured again:
#
# - An end is *guilty* when it is not good with anybody, among them two whose ends are good with others; three of many.
# - A *path* is bad when its two hosts measured it as many times, never well, and both are good with others.
# - A *switch* is guilty when nearly all hosts below it are bad with hosts of other switches, which are good elsewhere.
# - Whoever else has a bad figure that none of these explains is in *doubt*: more rounds will tell.

SURE: frozenset[Measure] = frozenset({"reach", "mtu"})
"""Measures that do not shake: what two pairs say needs no third. The others are measured while there are rounds."""
MANY_FIGURES = 100
"""Of so many figures some of the same end or path are bad twice by mere chance: blamed is who is bad three times."""
SWITCH_SHARE = 0.8
"""Of the hosts below a switch: if so many are bad beyond it, the switch is. The others had a lucky path."""
FEWEST_SWITCH_HOSTS = 3
"""Two bad hosts below one switch may be chance."""


@dataclass(frozen=True)
class Weighed:
    """Result of one measure: guilty switches, ends and paths, each with the bad figures against it."""

    measure: Measure
    switches: Mapping[End, list[Figure]] = field(default_factory=dict)
    """The name in the end is the switch's."""
    guilty: Mapping[End, list[Figure]] = field(default_factory=dict)
    paths: Mapping[Path, list[Figure]] = field(default_factory=dict)
    nobody: Sequence[Figure] = ()
    """All figures, where not one of them is good."""
    silent: frozenset[str] = frozenset()
    """Of reach: the guilty of which nothing is known in the opposite direction since they were bad."""
    doubt: frozenset[str] = frozenset()
    """Hosts."""
    again: frozenset[tuple[str, str]] = frozenset()
    """Pairs of hosts that are good elsewhere."""


def weigh(measure: Measure, figures: Sequence[Figure], switches: Mapping[str, str]) -> Weighed:
    """Judgement of one measure from its figures: guilty ends and switches, bad paths, who is in doubt; `switches` gives
    the leaf switch of hosts where it is known.
    """
    bad = [figure for figure in figures if not figure.good]
    if not bad:
        return Weighed(measure)
    if len(bad) == len(figures):
        learned = measure in SURE and len({figure.round for figure in bad}) >= FEWEST_BAD
        return Weighed(measure, nobody=bad, doubt=frozenset() if learned else _hosts(bad))
    leaves = _guilty_switches(measure, figures, switches)
    accused = {end for figure in bad for end in figure.ends}
    matter = [
        figure
        for figure in figures
        if not accused.isdisjoint(figure.ends) and not _explained_by_switch(leaves, figure, switches)
    ]
    ends = Ends(measure, matter)
    times = FEWEST_BAD if measure in SURE or len(figures) < MANY_FIGURES else FEWEST_BAD + 1
    guilty = ends.guilty(times)
    unexplained = [figure for figure in matter if not figure.good and guilty.keys().isdisjoint(figure.ends)]
    paths = ends.paths(unexplained, times)
    unsettled = [figure for figure in unexplained if measure not in SURE or figure.ends not in paths]
    in_doubt = {host for figure in unsettled for host, way in figure.ends if ends.bad((host, way))}
    only_by_switch = _hosts(bad) - _hosts(matter)
    unsure = frozenset() if measure in SURE else frozenset(host for host, _ in guilty)
    return Weighed(
        measure,
        switches=leaves,
        guilty=guilty,
        silent=_hosts_silent_since(figures, guilty) if measure == "reach" else frozenset(),
        paths=paths,
        doubt=unsure | in_doubt | only_by_switch,
        again=frozenset(
            (min(figure.hosts), max(figure.hosts)) for figure in unsettled if all(map(ends.ever_good, figure.ends))
        ),
    )


def _hosts(figures: Iterable[Figure]) -> frozenset[str]:
    """Hosts of these figures."""
    return frozenset(host for figure in figures for host in figure.hosts)


def _hosts_silent_since(figures: Iterable[Figure], guilty: Mapping[End, list[Figure]]) -> frozenset[str]:
    """Guilty hosts of which nothing was measured in the opposite direction since their first bad figure."""
    since = {opposite(end): bad[0].round for end, bad in guilty.items()}
    measured = {end for figure in figures for end in figure.ends if figure.round >= since.get(end, figure.round + 1)}
    return frozenset(host for host, _ in since.keys() - measured)


def _crosses_switches(figure: Figure, switches: Mapping[str, str]) -> bool:
    """True if both hosts' switches are known and differ."""
    a, b = map(switches.get, figure.hosts)
    return a is not None and b is not None and a != b


def _explained_by_switch(leaves: Mapping[End, list[Figure]], figure: Figure, switches: Mapping[str, str]) -> bool:
    """True if the figure is bad and crosses one of the guilty switches `leaves`, in that switch's bad direction."""
    return (
        bool(leaves)
        and not figure.good
        and _crosses_switches(figure, switches)
        and any((switches[host], way) in leaves for host, way in figure.ends)
    )


def _guilty_switches(
    measure: Measure, figures: Iterable[Figure], switches: Mapping[str, str]
) -> dict[End, list[Figure]]:
    """Guilty (switch, direction) with the bad figures: at least 80 % of its hosts, and no fewer than 3, are bad with
    hosts below other switches that are good elsewhere.
    """
    beyond = [figure for figure in figures if _crosses_switches(figure, switches)] if switches else []
    accused = {end for figure in beyond if not figure.good for end in figure.ends}
    if len(accused) < FEWEST_SWITCH_HOSTS:
        return {}
    hosts = Counter((switches[host], way) for host, way in {end for figure in beyond for end in figure.ends})
    ends = Ends(measure, (figure for figure in beyond if not accused.isdisjoint(figure.ends)))
    by_leaf: dict[End, list[list[Figure]]] = {}
    for host, way in ends:
        if against := ends.accusing((host, way)):
            by_leaf.setdefault((switches[host], way), []).append(against)
    return {
        leaf: [figure for against in by_host for figure in against]
        for leaf, by_host in by_leaf.items()
        if len(by_host) >= max(FEWEST_SWITCH_HOSTS, SWITCH_SHARE * hosts[leaf])
    }
