"""The fold: replies in, one diagnosis of all hosts out, whatever came of some of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gpudoctor.cluster.fleet.findings import (
    FEWEST_HOSTS,
    FOLDED,
    Outlier,
    Places,
    Scheduler,
    Split,
    drains,
    find_outliers,
    fleet_findings,
    suspects,
    with_row_hosts,
)
from gpudoctor.cluster.fleet.reading import Judge, Reply, ReplyReader, names_phrase, order
from gpudoctor.cluster.fleet.summary import Summary
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Finding, Note, Verdict, verdict_of
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, known_facts
from gpudoctor.core.fleet import FACTS, OK, Check, Drain, Fleet, Host, Outcome, Result
from gpudoctor.core.fleet import Verdict as FleetVerdict
from gpudoctor.core.language import say
from gpudoctor.core.rule import LAYERS, SEVERITIES
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.diagnose import diagnosis_of
from gpudoctor.diagnosis.judge.folding import sort_key

if TYPE_CHECKING:
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.diagnosis.rulebook import Rulebook


_WORDS: Mapping[Verdict, FleetVerdict] = {"sound": "go", "impaired": "go", "broken": "no-go", "unknown": "unknown"}
_LEVELS = ("quick", "standard", "deep")


@dataclass(frozen=True, slots=True)
class FleetContext:
    """What is known about the fleet beside its hosts' documents."""

    name: str = ""
    """By default how many hosts it has."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """The leaf switch or rack of each host, as far as somebody told."""
    scheduler: Scheduler = "none"
    drain_silent: bool = False
    cut: str = ""
    """Why not every host that would have answered has been read; then the whole is called neither sound nor go."""
    unfinished: bool = False
    """Whether it was cut and `name` says why."""
    seconds: float = 0.0
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """More facts, of a job for example, for the pages to read."""
    groups: Mapping[str, Rows] = field(default_factory=dict)


class FleetFold:
    """Collects replies and keeps a summary of each host; `diagnosis` judges all collected so far.
    Each host is also compared with `profile`, if given. `judge` diagnoses saved snapshots, as in `ReplyReader`.
    """

    def __init__(self, book: Rulebook, profile: Profile | None = None, judge: Judge | None = None) -> None:
        """An empty fold; `profile` and `judge` as in `ReplyReader`."""
        self._book = book
        self._reader = ReplyReader(book, profile, judge)
        self._hosts: dict[str, Summary] = {}
        self._twice: Counter[str] = Counter()

    def add(self, reply: Reply) -> None:
        """Add a host's reply; of several of one host the latest counts, unless only an earlier one could be read."""
        for summary in self._reader.summaries(reply):
            before = self._hosts.get(summary.host)
            if before is not None:
                self._twice[summary.host] += 1
            if before is None or summary.answered or not before.answered:
                self._hosts[summary.host] = summary

    def diagnosis(self, whole: FleetContext) -> Diagnosis:
        """Diagnosis of all hosts added so far: the cluster rules' findings on them, and one for each of the hosts' own,
        ranked. `whole` is what is known beside their documents.
        """
        by_name = self._hosts.copy()  # at once: other threads add answers meanwhile
        hosts = [
            replace(by_name[name], switch=whole.switches.get(name, by_name[name].switch))
            for name in sorted(by_name, key=order)
        ]
        name = whole.name or _host_count(len(hosts))
        unlike, torn = find_outliers(hosts)
        facts, groups = job_facts_unread()
        snapshot = Snapshot(
            Target("fleet", name, None, _lowest_level(hosts)),
            {**facts, **facts_of(hosts), **whole.facts},
            {**groups, **groups_of(hosts, unlike, torn), **whole.groups},
        )
        answer = diagnosis_of(snapshot, self._book)
        found = fleet_findings(hosts, self._reader.examples, Places(hosts))
        findings = _ranked([*found, *(with_row_hosts(finding, snapshot) for finding in answer.findings)])
        verdict = verdict_of(findings, known=not (whole.cut or whole.unfinished) and answer.verdict != "unknown")
        fleet = Fleet(
            name=name,
            hosts=tuple(map(board_host, hosts)),
            checks=board_checks(hosts),
            results=board_results(hosts, unlike),
            verdict=_WORDS[verdict],
            suspects=tuple(suspects(findings)),
            drain=_drains(hosts, whole),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=round(whole.seconds, 1),
        )
        notes = (*answer.notes, *(Note((), text) for text in [whole.cut, *self._notes(hosts)] if text))
        return replace(answer, findings=tuple(findings), verdict=verdict, fleet=fleet, notes=notes)

    def _notes(self, hosts: Sequence[Summary]) -> list[str]:
        """Notes about the hosts' documents: several of one host, other gpudoctor versions, different check levels."""
        notes = []
        if self._twice:
            sentence = "More than one document of {names}: the later one counts."
            notes.append(say(sentence, names=names_phrase(list(self._twice))))
        tools = Counter(host.tool for host in hosts if host.tool)
        if others := [tool for tool in tools if tool != __version__]:
            who = {tool: [host.host for host in hosts if host.tool == tool] for tool in others}
            which = (say("{tool} on {hosts}", tool=tool, hosts=names_phrase(names)) for tool, names in who.items())
            sentence = "This is gpudoctor {version}; documents of other versions were read as well: {which}."
            notes.append(say(sentence, version=__version__, which=say("; ").join(which)))
        levels = Counter(host.level for host in hosts if host.level)
        if len(levels) > 1:
            each = (f"{level} {say('({marks})', marks=_host_count(count))}" for level, count in levels.most_common())
            notes.append(say("The hosts were not asked alike: {levels}.", levels=say(", ").join(each)))
        return notes


def _lowest_level(hosts: Sequence[Summary]) -> str:
    """The lowest check level among the hosts; ``quick`` if none is known."""
    levels = {host.level for host in hosts}
    return next((level for level in _LEVELS if level in levels), "quick")


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings from most to least important, in the order of `sort_key`; of equal severity and confidence, those on
    more hosts first. `explains` is not applied across hosts: each host's own diagnosis has done so.
    """

    def key(finding: Finding) -> tuple[object, ...]:
        """Sort key of a finding: severity, symptom, guess, more hosts first, then the rest of `sort_key`."""
        severity, symptom, guess, *rest = sort_key(finding)
        count = (finding.subject or {}).get("count")
        return severity, symptom, guess, -(count if isinstance(count, int) else 0), *rest

    return sorted(findings, key=key)


def _drains(hosts: Sequence[Summary], whole: FleetContext) -> tuple[Drain, ...]:
    """Drains of hosts with an error, by their first one, and with `whole.drain_silent` of hosts without an answer."""
    errors = {
        host.host: finding.id for host in hosts for finding in reversed(host.findings) if finding.severity == "error"
    }
    reasons = list(errors.items())
    if whole.drain_silent:
        reasons += [(host.host, "fleet.no-answer") for host in hosts if not host.answered]
    return drains(reasons, whole.scheduler)


def _host_count(count: int) -> str:
    """``1 host``, ``3 hosts``."""
    return say("{count} hosts" if count != 1 else "{count} host", count=count)


# ---- Summaries as tables ----

_DOCUMENTS = "the hosts' documents"
_MOST_REASONS = 20
"""Reasons of silence that are told apart; what more there are stand together."""


def facts_of(hosts: Sequence[Summary]) -> dict[str, Fact]:
    """Facts about the fleet: number of hosts asked and answered, and the names of those without an answer."""
    silent = tuple(host.host for host in hosts if not host.answered)
    return {
        "fleet.hosts": Known(len(hosts), _DOCUMENTS),
        "fleet.answered": Known(len(hosts) - len(silent), _DOCUMENTS),
        "fleet.silent": Known(silent, _DOCUMENTS),
    }


def job_facts_unread() -> tuple[dict[str, Fact], dict[str, Rows]]:
    """(facts, groups) that only a preflight of a job provides, each Unread for that reason."""
    why = Unread("each host was asked alone; gpudoctor preflight asks the ranks of a job together")
    theirs = [spec for spec in FACTS if not spec.name.startswith(FOLDED)]
    return (
        {spec.name: why for spec in theirs if not spec.group},
        {spec.name.rpartition(".")[0]: why for spec in theirs if spec.group},
    )


def groups_of(hosts: Sequence[Summary], outliers: Sequence[Outlier], splits: Sequence[Split]) -> dict[str, Rows]:
    """Groups of the fleet's snapshot: ``machine``, ``silence``, ``outlier`` and ``split``, one row per item. Outliers
    and splits are Unread if fewer than 3 hosts answered.
    """
    few = sum(host.answered for host in hosts) < FEWEST_HOSTS
    nothing = Unread(f"fewer than {FEWEST_HOSTS} hosts answered")
    return {
        "machine": tuple(map(_machine_row, hosts)),
        "silence": tuple(_silence_rows(hosts)),
        "outlier": nothing if few else tuple(map(_outlier_row, outliers)),
        "split": nothing if few else tuple(map(_split_row, splits)),
    }


def _machine_row(host: Summary) -> Row:
    """Row of the group ``machine``: name, answered, because and switch; verdict, errors, warnings, gpus, gpu and image
    are Unread if the host did not answer.
    """
    silence = Unread(host.because)
    errors, warnings = (
        tuple(finding.id for finding in host.findings if finding.severity == severity)
        for severity in ("error", "warning")
    )
    columns: dict[str, Fact] = {
        "verdict": Known(host.verdict, "its diagnosis"),
        "errors": Known(errors, "its diagnosis"),
        "warnings": Known(warnings, "its diagnosis"),
        "gpus": Known(host.gpus, "its diagnosis"),
        "gpu": _known_or_absent(host.gpu, "no GPU"),
        "image": _known_or_absent(host.values.get("host.os", ""), "not told"),
    }
    return {
        "name": Known(host.host, _DOCUMENTS),
        "answered": Known(host.answered, _DOCUMENTS),
        "because": Absent("it answered") if host.answered else Known(host.because, _DOCUMENTS),
        "switch": _known_or_absent(host.switch, "nobody told"),
        **(columns if host.answered else dict.fromkeys(columns, silence)),
    }


def _silence_rows(hosts: Sequence[Summary]) -> list[Row]:
    """Rows of the group ``silence``: hosts without an answer by reason, most first; from the 21st reason on as one."""
    reasons: dict[str, list[str]] = {}
    for host in hosts:
        if not host.answered:
            reasons.setdefault(host.because, []).append(host.host)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    if rest := ordered[_MOST_REASONS:]:
        ordered = [*ordered[:_MOST_REASONS], (say("various reasons"), [name for _, names in rest for name in names])]
    return [
        known_facts(
            _DOCUMENTS,
            because=why,
            hosts=tuple(names),
            names=names_phrase(names),
            first=names[0],
            count=len(names),
        )
        for why, names in ordered
    ]


def _outlier_row(outlier: Outlier) -> Row:
    """Row of the group ``outlier``: fact, value, usual, hosts; kind is Absent if all hosts were compared, share without
    a rate.
    """
    return {
        **known_facts(
            _DOCUMENTS,
            fact=outlier.fact,
            about=outlier.about,
            value=say(outlier.value),
            usual=say(outlier.usual),
            hosts=outlier.hosts,
            names=names_phrase(outlier.hosts),
            count=len(outlier.hosts),
            of=outlier.of,
            matters=outlier.matters,
        ),
        "kind": _known_or_absent(outlier.kind, "compared among all"),
        "share": Absent("no rate") if outlier.share is None else Known(outlier.share, _DOCUMENTS),
    }


def _split_row(split: Split) -> Row:
    """Row of the group ``split``: a fact without a usual value, and each value with its number of hosts."""
    values = tuple(f"{say(value)} {say('({marks})', marks=_host_count(count))}" for value, count in split.values)
    return known_facts(
        _DOCUMENTS, fact=split.fact, about=split.about, values=values, of=split.of, matters=split.matters
    )


def _known_or_absent(value: str, otherwise: str) -> Fact:
    """`value` as Known, from the hosts' documents; an empty one is Absent for the reason `otherwise`."""
    return Known(value, _DOCUMENTS) if value else Absent(otherwise)


# ---- Hosts by checks ----
# A column for each layer of rules, and one for what differs from the other hosts.

ALIKE = Check("alike", "like the other hosts", "like")
_TITLES: Mapping[str, tuple[str, str]] = {
    "host": ("operating system and hardware", "host"),
    "driver": ("driver and its modules", "drv"),
    "gpu": ("GPUs", "gpu"),
    "env": ("environment variables", "env"),
    "container": ("container", "ctr"),
    "wsl": ("WSL", "wsl"),
    "torch": ("torch", "trch"),
    "cuda": ("CUDA toolkit", "cuda"),
    "cudnn": ("cuDNN", "dnn"),
    "nccl": ("NCCL and network", "nccl"),
    "ext": ("extensions of torch", "ext"),
    "frameworks": ("other frameworks", "frm"),
    "workload": ("the program", "prog"),
    "expect": ("as the profile expects", "exp"),
}


def board_host(host: Summary) -> Host:
    """A host as the cluster screen shows it: name, switch, number and name of GPUs, why there is no answer."""
    return Host(host.host, host.switch, host.gpus, host.gpu.removeprefix("NVIDIA "), host.because)


def board_checks(hosts: Sequence[Summary]) -> tuple[Check, ...]:
    """Columns of the cluster screen: each layer with results on any host (``wsl``: with findings), and `ALIKE`."""
    found = {item.layer for node in hosts for item in node.findings}
    layers = found | {layer for node in hosts for layer in node.passed if layer != "wsl"}
    named = (Check(layer, *_TITLES[layer]) for layer in LAYERS if layer in layers)
    return tuple(replace(check, title=say(check.title)) for check in (*named, ALIKE))


def board_results(hosts: Iterable[Summary], outliers: Iterable[Outlier]) -> dict[str, dict[str, Result]]:
    """Results by host and check id, for the hosts that answered."""
    differs: dict[str, list[Outlier]] = {}
    for outlier in outliers:
        for name in outlier.hosts:
            differs.setdefault(name, []).append(outlier)
    return {node.host: _board_row(node, differs.get(node.host, ())) for node in hosts if node.answered}


def _board_row(node: Summary, differs: Sequence[Outlier]) -> dict[str, Result]:
    """Results of one host by check id: a layer's most severe finding (info is ok), else ok or unjudged; and
    ``alike``.
    """
    row = {layer: _result("ok", node.unjudged.get(layer, 0)) for layer in node.passed}
    row.update({layer: _result("unjudged", count) for layer, count in node.unjudged.items() if layer not in row})
    for found in sorted(node.findings, key=lambda item: -SEVERITIES.index(item.severity)):
        if found.severity != "info":
            row[found.layer] = Result(found.severity, found.title, found.id)
        elif found.layer not in node.passed:
            row[found.layer] = Result("ok", found.title, found.id)
    row[ALIKE.id] = _alike_result(differs)
    return row


@lru_cache(maxsize=512)
def _result(outcome: Outcome, unjudged: int) -> Result:
    """A result with `outcome` that states how many rules were not judged; `OK`, whatever the outcome, where `unjudged`
    is 0.
    """
    return Result(outcome, say("{count} not judged", count=unjudged)) if unjudged else OK


def _alike_result(differs: Sequence[Outlier]) -> Result:
    """Result of the check ``alike``: OK for no outliers, else a warning if one matters, or info; names the first
    four.
    """
    if not differs:
        return OK
    rates = [node.share for node in differs if node.share is not None]
    outcome: Outcome = "warning" if any(node.matters for node in differs) else "info"
    sentence = "{about} {value}, mostly {usual}"
    each = (say(sentence, about=node.about, value=say(node.value), usual=say(node.usual)) for node in differs[:4])
    return Result(
        outcome, say("; ").join(each), "fleet.slow-host" if rates else "fleet.differs", min(rates, default=None)
    )
