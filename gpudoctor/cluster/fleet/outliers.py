"""Who differs from the others: of each compared fact the usual value and the few that have another. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpudoctor.cluster.fleet.summary import NOT_THERE, Compared, Rate, Summary, comparison_of

FEWEST = 3
"""Hosts that must tell a fact before one value of it is called usual: of two, neither is."""
STRANGERS = 0.1
"""Share of all hosts up to which those with other GPUs are told; more are a part of the fleet."""
MAJORITY = 0.6
"""Share of these that a value needs to be the usual one."""
SLOW = 0.92
"""Share of the median from which a rate is never called slow: repeated runs on one sound GPU stay closer."""
SPREADS = 6.0
"""Spreads below the median from which it is: of 10,000 normal values not one is so far out."""
_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A value of a fact that few hosts have, while most have `usual`.
    `share` is only set for a rate: the slowest of these hosts over the median.
    """

    fact: str
    about: str
    value: str
    usual: str
    hosts: tuple[str, ...]
    of: int
    """Hosts of that kind that told theirs."""
    kind: str = ""
    """The GPUs of the hosts that were compared; empty where hosts with any were."""
    matters: bool = False
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A fact without a majority value: its values, most frequent first, each with its number of hosts."""

    fact: str
    about: str
    values: tuple[tuple[str, int], ...]
    kind: str = ""
    matters: bool = False

    @property
    def of(self) -> int:
        """Number of hosts that reported the fact."""
        return sum(count for _, count in self.values)


def find_outliers(summaries: Iterable[Summary]) -> tuple[list[Outlier], list[Split]]:
    """All outliers and splits, each among hosts with the same GPUs, and the few hosts with other ones."""
    answered = [summary for summary in summaries if summary.answered]
    kinds: dict[str, list[Summary]] = defaultdict(list)
    for summary in answered:
        kinds[summary.kind].append(summary)
    outliers, splits = list(_rare_gpu_kinds(kinds)), list[Split]()
    for kind, hosts in sorted(kinds.items()):
        within = kind if len(kinds) > 1 else ""
        more, torn = _outliers_and_splits(hosts, within)
        outliers += [*more, *_slow_hosts(hosts, within)]
        splits += torn
    return outliers, splits


def _rare_gpu_kinds(kinds: dict[str, list[Summary]]) -> Iterator[Outlier]:
    """Outliers for hosts whose kind of GPU at most `STRANGERS` of all hosts have."""
    of = sum(map(len, kinds.values()))
    usual = max(kinds, key=lambda kind: len(kinds[kind]), default="")
    for kind, hosts in sorted(kinds.items()):
        if kind != usual and len(hosts) <= STRANGERS * of:
            names = tuple(host.host for host in hosts)
            yield Outlier("node.gpu", "kind of GPU", kind or NOT_THERE, usual or NOT_THERE, names, of)


def _outliers_and_splits(hosts: Sequence[Summary], kind: str) -> tuple[list[Outlier], list[Split]]:
    """Outliers and splits of each compared fact among hosts of one kind; facts of fewer than `FEWEST` hosts are
    skipped.
    `kind` is named in the texts, ``""`` where there is only one kind.
    """
    outliers: list[Outlier] = []
    splits: list[Split] = []
    by_fact: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host in hosts:
        for fact, value in host.values.items():
            by_fact[fact][value].append(host.host)
    for fact, by_value in by_fact.items():
        if fact.startswith("env."):  # only what is set is told everywhere
            saying = {name for names in by_value.values() for name in names}
            by_value[NOT_THERE] += [host.host for host in hosts if host.host not in saying]
        how = comparison_of(fact)
        about = f"{how.about} of hosts with {kind}" if kind else how.about
        groups = {value: names for value, names in _merged_near_median(by_value, how).items() if names}
        if len(groups) < 2 or (of := sum(map(len, groups.values()))) < FEWEST:
            continue
        usual = max(groups, key=lambda value: (len(groups[value]), value))
        if len(groups[usual]) < MAJORITY * of:
            counts = sorted(((value, len(names)) for value, names in groups.items()), key=lambda item: -item[1])
            splits.append(Split(fact, about, tuple(counts), kind, how.matters))
            continue
        outliers += [
            Outlier(fact, about, value, usual, tuple(names), of, kind, how.matters)
            for value, names in sorted(groups.items(), key=lambda item: -len(item[1]))
            if value != usual
        ]
    return outliers, splits


def _merged_near_median(by_value: dict[str, list[str]], how: Compared) -> dict[str, list[str]]:
    """Hosts by value; numbers within `how.near` of the median are merged under the most frequent one."""
    if not how.near:
        return by_value
    numbers = {value: float(value) for value in by_value if _is_number(value)}
    middle = median(numbers[value] for value in numbers for _ in by_value[value]) if numbers else 0.0
    alike = [value for value, number in numbers.items() if abs(number - middle) <= how.near * middle]
    if len(alike) < 2:
        return by_value
    name = max(alike, key=lambda value: len(by_value[value]))
    apart = {value: names for value, names in by_value.items() if value not in alike}
    return {name: [host for value in alike for host in by_value[value]], **apart}


def _is_number(text: str) -> bool:
    """True for digits with at most one decimal point."""
    return text.replace(".", "", 1).isdigit()


def _slow_hosts(hosts: Sequence[Summary], kind: str) -> Iterator[Outlier]:
    """For each kernel, hosts whose rate is below `SLOW` and `SPREADS` robust deviations of the median.
    None if too many are slow to be outliers.
    """
    rates: dict[str, list[tuple[float, str, Rate]]] = defaultdict(list)
    for host in hosts:
        for kernel, rate in host.rates.items():
            rates[kernel].append((rate.value, host.host, rate))
    for kernel, measured in sorted(rates.items()):
        if len(measured) < FEWEST or (middle := median(value for value, *_ in measured)) <= 0:
            continue
        spread = _SIGMA * median(abs(value - middle) for value, *_ in measured) / middle
        limit = min(SLOW, 1 - SPREADS * spread)
        below = sorted(entry for entry in measured if entry[0] < limit * middle)
        if not below or len(below) > (1 - MAJORITY) * len(measured):
            continue
        value, _, rate = below[0]
        which = f" on GPU {rate.gpu}" if rate.gpu >= 0 else ""
        yield Outlier(
            fact=kernel,
            about=kernel,
            value=f"{value:.4g} {rate.unit}{which}",
            usual=f"{middle:.4g} {rate.unit}",
            hosts=tuple(name for _, name, _ in below),
            of=len(measured),
            kind=kind,
            matters=True,
            share=round(value / middle, 3),
        )
