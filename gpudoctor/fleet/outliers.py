"""Who differs from the others: of each compared fact the usual value and the few that have another. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpudoctor.fleet.compared import NOT_THERE, Compared, compared
from gpudoctor.fleet.summary import Rate, Summary

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
    """A value of few hosts, and the one of most; `share` of a rate: the slowest of them over the usual."""

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
    """A fact without a usual value: its values, the most frequent first, each with how many hosts have it."""

    fact: str
    about: str
    values: tuple[tuple[str, int], ...]
    kind: str = ""
    matters: bool = False

    @property
    def of(self) -> int:
        """Hosts that told theirs."""
        return sum(count for _, count in self.values)


def found(summaries: Iterable[Summary]) -> tuple[list[Outlier], list[Split]]:
    """All outliers and splits, each among hosts with the same GPUs, and the few hosts with other ones."""
    answered = [one for one in summaries if one.answered]
    kinds: dict[str, list[Summary]] = defaultdict(list)
    for one in answered:
        kinds[one.kind].append(one)
    outliers, splits = list(_strangers(kinds)), list[Split]()
    for kind, hosts in sorted(kinds.items()):
        within = kind if len(kinds) > 1 else ""
        more, torn = _among(hosts, within)
        outliers += [*more, *_slow(hosts, within)]
        splits += torn
    return outliers, splits


def _strangers(kinds: dict[str, list[Summary]]) -> Iterator[Outlier]:
    """Hosts with GPUs that next to no other host has; of a fleet of several kinds, none is a stranger."""
    of = sum(map(len, kinds.values()))
    usual = max(kinds, key=lambda kind: len(kinds[kind]), default="")
    for kind, hosts in sorted(kinds.items()):
        if kind != usual and len(hosts) <= STRANGERS * of:
            names = tuple(host.host for host in hosts)
            yield Outlier("node.gpu", "kind of GPU", kind or NOT_THERE, usual or NOT_THERE, names, of)


def _among(hosts: Sequence[Summary], kind: str) -> tuple[list[Outlier], list[Split]]:
    outliers: list[Outlier] = []
    splits: list[Split] = []
    told: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host in hosts:
        for fact, value in host.values.items():
            told[fact][value].append(host.host)
    for fact, by_value in told.items():
        if fact.startswith("env."):  # only what is set is told everywhere
            saying = {name for names in by_value.values() for name in names}
            by_value[NOT_THERE] += [host.host for host in hosts if host.host not in saying]
        how = compared(fact)
        about = f"{how.about} of hosts with {kind}" if kind else how.about
        groups = {value: names for value, names in _joined(by_value, how).items() if names}
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


def _joined(by_value: dict[str, list[str]], how: Compared) -> dict[str, list[str]]:
    """Numbers that are as good as the median, together under the most frequent of them; others as they are."""
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
    return text.replace(".", "", 1).isdigit()


def _slow(hosts: Sequence[Summary], kind: str) -> Iterator[Outlier]:
    """Of each kernel the hosts that are farther below the median than chance and load put them."""
    rates: dict[str, list[tuple[float, str, Rate]]] = defaultdict(list)
    for host in hosts:
        for kernel, rate in host.rates.items():
            rates[kernel].append((rate.value, host.host, rate))
    for kernel, told in sorted(rates.items()):
        if len(told) < FEWEST or (middle := median(value for value, *_ in told)) <= 0:
            continue
        spread = _SIGMA * median(abs(value - middle) for value, *_ in told) / middle
        limit = min(SLOW, 1 - SPREADS * spread)
        below = sorted(entry for entry in told if entry[0] < limit * middle)
        if not below or len(below) > (1 - MAJORITY) * len(told):
            continue
        value, _, rate = below[0]
        which = f" on GPU {rate.gpu}" if rate.gpu >= 0 else ""
        yield Outlier(
            fact=kernel,
            about=kernel,
            value=f"{value:.4g} {rate.unit}{which}",
            usual=f"{middle:.4g} {rate.unit}",
            hosts=tuple(name for _, name, _ in below),
            of=len(told),
            kind=kind,
            matters=True,
            share=round(value / middle, 3),
        )
