"""What hosts found by themselves, folded: one finding for each id, with whom it concerns and what these share.

Whom the findings blame, with the command that takes those hosts out of service; and who differs from the others.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from statistics import median
from typing import Literal

from gpudoctor.cluster.fleet.reading import Example, names_phrase, node_set, ordered
from gpudoctor.cluster.fleet.summary import NOT_THERE, Compared, HostFinding, Rate, Summary, comparison_of
from gpudoctor.core.diagnosis import Evidence, Finding
from gpudoctor.core.fact import Json, Known, known, value_to_json
from gpudoctor.core.fleet import Drain, Suspect
from gpudoctor.core.language import phrase, say
from gpudoctor.core.rule import CONFIDENCES, SEVERITIES
from gpudoctor.core.snapshot import Snapshot

# ---- What hosts with the same finding have in common that others have not ----
# A switch, an image, a driver, a kernel.

MOST_CHANCE = 0.001
"""The most probable that chance alone may put so many of them in one place."""
LEAST_SHARED = 0.9
"""Share of them that must be there."""
FEWEST_HOSTS = 3
"""Hosts of which something is said at all: that they share a place, that one value is the usual one of them."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A property that hosts with the same finding share, and others do not, such as ``switch leaf4``.
    `count` of the `of` affected hosts have it; `size` hosts of the whole fleet have it.
    """

    kind: str
    value: str
    count: int
    of: int
    size: int
    fact: str
    """The fact that tells the place: ``machine.switch``."""

    @property
    def words(self) -> str:
        """Phrase for a title: ``all 32 on switch leaf4``, ``31 of 32 on switch leaf4, as are 2 without it``."""
        place = "on switch {value}" if self.kind == "switch" else "with {kind} {value}"
        where = say(place, kind=say(self.kind), value=self.value)
        share = "all {of} {where}" if self.count == self.of else "{count} of {of} {where}"
        many = say(share, count=self.count, of=self.of, where=where)
        others = self.size - self.count
        return many + (say(", as are {count} without it", count=others) if others > 0 else "")


_PLACES: Mapping[str, tuple[str, Callable[[Summary], str]]] = {
    "switch": ("machine.switch", lambda host: host.switch),
    "image": ("machine.image", lambda host: host.values.get("host.os", "")),
    "driver": ("driver.version", lambda host: host.values.get("driver.version", "")),
    "kernel": ("host.kernel", lambda host: host.values.get("host.kernel", "")),
    "GPU": ("machine.gpu", lambda host: host.gpu),
}
"""What hosts may share: the fact that tells it, and its value on a host."""


class Places:
    """All hosts that answered, indexed by the properties they may share: switch, image, driver, kernel, GPU."""

    def __init__(self, hosts: Sequence[Summary]) -> None:
        """Index the hosts that answered by name."""
        self._hosts = {host.host: host for host in hosts if host.answered}

    @cached_property
    def _sizes(self) -> Mapping[str, Counter[str]]:
        """By property (switch, image, driver, kernel, GPU): how many of all hosts have each value."""
        return {kind: Counter(map(of, self._hosts.values())) for kind, (_, of) in _PLACES.items()}

    def shared(self, hosts: Collection[str]) -> Shared | None:
        """The property that at least 90 % of these hosts have, not all of the fleet, and that is least likely by
        chance.
        None for fewer than 3 hosts, or where chance explains it (probability above 0.001).
        """
        here = [self._hosts[name] for name in hosts if name in self._hosts]
        if len(here) < FEWEST_HOSTS:
            return None
        found: list[tuple[float, Shared]] = []
        for kind, (fact, of) in _PLACES.items():
            value, count = Counter(map(of, here)).most_common(1)[0]
            size = self._sizes[kind][value]
            if value and count >= LEAST_SHARED * len(here) and size < len(self._hosts):
                places = len(self._sizes[kind])  # it could have been any of them
                chance = places * _chance(count, len(here), size / len(self._hosts))
                found.append((chance, Shared(kind, value, count, len(here), size, fact)))
        best = min(found, key=lambda item: item[0], default=None)
        return best[1] if best and best[0] <= MOST_CHANCE else None


def _chance(count: int, total: int, share: float) -> float:
    """Probability (binomial tail) that `count` or more of `total` random hosts have a value that `share` of all
    have.
    """
    log = math.lgamma
    return sum(
        math.exp(
            log(total + 1) - log(k + 1) - log(total - k + 1) + k * math.log(share) + (total - k) * math.log1p(-share)
        )
        for k in range(count, total + 1)
    )


# ---- One finding for each id ----

FOLDED = ("fleet.", "node.", "silence.", "outlier.", "split.")
"""Beginnings of the facts that the fold itself makes."""
_MOST_SUBJECTS = 256
"""Parts of hosts that a folded finding names."""
_MOST_EVIDENCE = 4
"""Pieces of evidence that the cluster screen shows of a suspect."""


def fleet_findings(hosts: Sequence[Summary], examples: Mapping[str, Example], places: Places) -> Iterator[Finding]:
    """One finding for all hosts for each finding id that any of them reported; severity info is left out. `examples`
    are whole findings by id.
    """
    answered = sum(host.answered for host in hosts)
    by_id: dict[str, list[tuple[str, HostFinding]]] = {}
    for host in hosts:
        for finding in host.findings:
            if finding.severity != "info":
                by_id.setdefault(finding.id, []).append((host.host, finding))
    for rule, same in by_id.items():
        yield _fleet_finding(examples[rule], same, answered, places)


def _fleet_finding(example: Example, same: Sequence[tuple[str, HostFinding]], answered: int, places: Places) -> Finding:
    """The example finding restated for all hosts that have it: they are the subject and in the title, with what they
    share; severity and confidence are the highest among them.
    """
    hosts = ordered(host for host, _ in same)
    shared = places.shared(hosts)
    differ = len({finding.title for _, finding in same}) > 1
    sentence = "{title} (and alike) on {hosts}" if differ else "{title} on {hosts}"
    title = say(sentence, title=example.finding.title, hosts=_hosts_phrase(hosts, answered))
    subject: dict[str, Json] = {"hosts": list(hosts), "count": len(hosts)}
    evidence = [_with_host(example.host, item) for item in example.finding.evidence]
    if shared:
        title += f"{say('; ')}{shared.words}"
        subject |= {shared.kind.lower(): shared.value}
        evidence.insert(0, Evidence(shared.fact, Known(shared.words, "the hosts' documents, compared")))
    parts = ({"host": host, **part} for host, finding in same for part in finding.subjects)
    return replace(
        example.finding,
        severity=min((finding.severity for _, finding in same), key=SEVERITIES.index),
        confidence=min((finding.confidence for _, finding in same), key=CONFIDENCES.index),
        title=title,
        evidence=tuple(evidence),
        subjects=(subject, *islice(parts, _MOST_SUBJECTS)),
    )


def _hosts_phrase(hosts: Sequence[str], answered: int) -> str:
    """Hosts as a phrase: ``all 8 hosts``, ``node3``, ``3 of 8 hosts: n1, n7 and n9``."""
    if len(hosts) == answered > 1:
        return say("all {count} hosts", count=answered)
    if len(hosts) == 1:
        return hosts[0]
    return say("{some} of {count} hosts: {names}", some=len(hosts), count=answered, names=names_phrase(hosts))


def _with_host(host: str, item: Evidence) -> Evidence:
    """The evidence with the host's name put before its source; unchanged if its fact is not known."""
    fact = known(item.state)
    return (
        replace(item, state=replace(fact, source=say("{title}: {text}", title=host, text=phrase(fact.source))))
        if fact
        else item
    )


def with_row_hosts(finding: Finding, snapshot: Snapshot) -> Finding:
    """The finding with the ``hosts`` of the row that it is about as its subject; unchanged if that row has none."""
    for group, index in (finding.subject or {}).items():
        rows = snapshot.rows(group)
        if isinstance(rows, tuple) and isinstance(index, int) and (hosts := known(rows[index].get("hosts"))):
            names = value_to_json(hosts.value)
            count = len(names) if isinstance(names, list) else 0
            return replace(finding, subjects=({"hosts": names, "count": count},))
    return finding


def suspects(findings: Iterable[Finding]) -> Iterator[Suspect]:
    """A Suspect for each finding that is a cause, not info, and names hosts, in their order: the switch if the finding
    names one, else the hosts.
    """
    for finding in findings:
        subject = finding.subject or {}
        hosts = subject.get("hosts")
        if finding.role != "cause" or finding.severity == "info" or not isinstance(hosts, list) or not hosts:
            continue
        switch = subject.get("switch")
        yield Suspect(
            kind="switch" if switch else "host",
            names=(str(switch),) if switch else tuple(map(str, hosts)),
            severity=finding.severity,
            confidence=finding.confidence,
            title=finding.title,
            evidence=tuple(islice(_evidence_lines(finding), _MOST_EVIDENCE)),
            id=finding.id,
            do=finding.fixes[0].title if finding.fixes else "",
        )


def _evidence_lines(finding: Finding) -> Iterator[str]:
    """A finding's evidence as lines ``fact = value  (source)``, one per known fact with a dot in its name (the others
    are counts of rows); the comparison's own facts are left out.
    """
    once = {item.fact: item for item in reversed(finding.evidence)}  # of rows alike the first
    for item in reversed(once.values()):
        if (fact := known(item.state)) and "." in item.fact and not item.fact.startswith(FOLDED):
            value = value_to_json(fact.value)
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            name = "" if item.fact == "text.line" else f"{item.fact} = "
            yield f"{name}{text}  ({fact.source})"


# ---- What takes hosts out of service, in the scheduler's own words ----
# Nothing here runs it.

Scheduler = Literal["slurm", "kubernetes", "none"]
_UNSAFE = re.compile(r"[^\w.,:@+-]+")
_LONGEST_REASON = 120
"""Characters of a reason: Slurm keeps more, sinfo -R shows the first 20."""


def drains(reasons: Iterable[tuple[str, str]], scheduler: Scheduler = "none") -> tuple[Drain, ...]:
    """Who is to be taken out of service, from (host, finding id): hosts with the same reason together, with the
    scheduler's command, which is not run.
    """
    by_reason: dict[str, list[str]] = {}
    for host, why in reasons:
        by_reason.setdefault(drain_reason(why), []).append(host)
    found = []
    for text, names in by_reason.items():
        hosts = tuple(ordered(names))
        found.append(Drain(hosts, text, _drain_command(scheduler, hosts, text)))
    return tuple(found)


def _drain_command(scheduler: Scheduler, hosts: Sequence[str], reason: str) -> tuple[str, ...]:
    """Command, to be shown, that takes the hosts out of service: scontrol or kubectl; empty for scheduler ``none``."""
    if scheduler == "slurm":
        return ("scontrol", "update", f"NodeName={node_set(hosts)}", "State=DRAIN", f"Reason={reason}")
    return ("kubectl", "cordon", *hosts) if scheduler == "kubernetes" else ()


def drain_reason(why: str) -> str:
    """Reason for the scheduler, ``gpudoctor:gpu.fell-off-bus``: at most 120 characters, unsafe ones as ``_``."""
    return f"gpudoctor:{_UNSAFE.sub('_', why)}"[:_LONGEST_REASON]


# ---- Who differs from the others ----

MOST_OTHER_GPUS = 0.1
"""Share of all hosts up to which those with other GPUs are told; more are a part of the fleet."""
LEAST_MAJORITY = 0.6
"""Share of these that a value needs to be the usual one."""
SLOW_SHARE = 0.92
"""Share of the median from which a rate is never called slow: repeated runs on one sound GPU stay closer."""
SLOW_DEVIATIONS = 6.0
"""Spreads below the median from which it is: of 10,000 normal values not one is so far out."""
_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A value that few hosts have, while most have `usual`; `share`, of a rate: the slowest of them over the median."""

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
    """(outliers, splits): facts and rates in which few hosts differ from most with the same GPUs, hosts with a rare
    GPU, and facts of which no value is usual. Only hosts that answered count.
    """
    answered = [summary for summary in summaries if summary.answered]
    kinds: dict[str, list[Summary]] = defaultdict(list)
    for summary in answered:
        kinds[summary.gpu].append(summary)
    outliers, splits = list(_rare_gpu_kinds(kinds)), list[Split]()
    for kind, hosts in sorted(kinds.items()):
        within = kind if len(kinds) > 1 else ""
        more, torn = _outliers_and_splits(hosts, within)
        outliers += [*more, *_slow_hosts(hosts, within)]
        splits += torn
    return outliers, splits


def _rare_gpu_kinds(kinds: dict[str, list[Summary]]) -> Iterator[Outlier]:
    """An outlier for each GPU model, other than the most frequent, that at most 10 % of all hosts have."""
    of = sum(map(len, kinds.values()))
    usual = max(kinds, key=lambda kind: len(kinds[kind]), default="")
    for kind, hosts in sorted(kinds.items()):
        if kind != usual and len(hosts) <= MOST_OTHER_GPUS * of:
            names = tuple(host.host for host in hosts)
            yield Outlier("node.gpu", say("kind of GPU"), kind or NOT_THERE, usual or NOT_THERE, names, of)


def _outliers_and_splits(hosts: Sequence[Summary], kind: str) -> tuple[list[Outlier], list[Split]]:
    """Outliers and splits (no value in 60 %) of each fact that at least 3 of these hosts reported; an unset variable
    counts as a value. Texts name `kind`, the hosts' GPU, unless ``""``.
    """
    outliers: list[Outlier] = []
    splits: list[Split] = []
    by_fact: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host in hosts:
        for fact, value in host.values.items():
            by_fact[fact][value].append(host.host)
    for fact, by_value in by_fact.items():
        if fact.startswith("env."):  # only what is set is told everywhere
            with_value = {name for names in by_value.values() for name in names}
            by_value[NOT_THERE] += [host.host for host in hosts if host.host not in with_value]
        how = comparison_of(fact)
        about = say(how.about)
        about = say("{what} of hosts with {gpus}", what=about, gpus=kind) if kind else about
        groups = {value: names for value, names in _merged_near_median(by_value, how).items() if names}
        if len(groups) < 2 or (of := sum(map(len, groups.values()))) < FEWEST_HOSTS:
            continue
        usual = max(groups, key=lambda value: (len(groups[value]), value))
        if len(groups[usual]) < LEAST_MAJORITY * of:
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
    """Hosts by value; if `how.near` is set, numbers within that share of the median are merged under the most
    frequent.
    """
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
    """For each kernel an outlier with the hosts whose rate is below 92 % of the median and 6 robust deviations under
    it. Left out for fewer than 3 rates, or if over 40 % are slow.
    """
    rates: dict[str, list[tuple[float, str, Rate]]] = defaultdict(list)
    for host in hosts:
        for kernel, rate in host.rates.items():
            rates[kernel].append((rate.value, host.host, rate))
    for kernel, measured in sorted(rates.items()):
        if len(measured) < FEWEST_HOSTS or (middle := median(value for value, *_ in measured)) <= 0:
            continue
        spread = _SIGMA * median(abs(value - middle) for value, *_ in measured) / middle
        limit = min(SLOW_SHARE, 1 - SLOW_DEVIATIONS * spread)
        below = sorted(entry for entry in measured if entry[0] < limit * middle)
        if not below or len(below) > (1 - LEAST_MAJORITY) * len(measured):
            continue
        value, _, rate = below[0]
        which = say(" on GPU {index}", index=rate.gpu) if rate.gpu >= 0 else ""
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
