"""The fold: replies in, one diagnosis of all hosts out, whatever came of some of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpudoctor.cluster.fleet import outliers
from gpudoctor.cluster.fleet.findings import Places, Scheduler, drains, fleet_findings, suspects, with_row_hosts
from gpudoctor.cluster.fleet.names import names_phrase, order
from gpudoctor.cluster.fleet.reading import Judge, Reply, ReplyReader
from gpudoctor.cluster.fleet.summary import Summary
from gpudoctor.cluster.fleet.tables import (
    board_checks,
    board_host,
    board_results,
    facts_of,
    groups_of,
    job_facts_unread,
)
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Finding, Note, Verdict, verdict_of
from gpudoctor.core.fact import Fact, Rows
from gpudoctor.core.fleet import Drain, Fleet
from gpudoctor.core.fleet import Verdict as FleetVerdict
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.judge import sort_key
from gpudoctor.diagnosis.judged import judged

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
    """Why not every host was heard that would have been; then the whole is called neither sound nor go."""
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
        """Add a reply. A later document of a host replaces an earlier one, unless only the earlier one could be
        read.
        """
        for summary in self._reader.summaries(reply):
            before = self._hosts.get(summary.host)
            if before is not None:
                self._twice[summary.host] += 1
            if before is None or summary.answered or not before.answered:
                self._hosts[summary.host] = summary

    @property
    def answered(self) -> int:
        """Number of hosts so far whose answer could be read."""
        return sum(host.answered for host in self._hosts.values())

    def diagnosis(self, whole: FleetContext) -> Diagnosis:
        """Diagnosis of the fleet: the cluster rules' findings on all summaries, and the hosts' own findings, ranked."""
        names = list(self._hosts)  # at once: others may be heard meanwhile
        hosts = [self._with_switch(name, whole) for name in sorted(names, key=order)]
        unlike, torn = outliers.find_outliers(hosts)
        facts, groups = job_facts_unread()
        snapshot = Snapshot(
            Target("fleet", whole.name or _plural(len(hosts), "host"), None, _lowest_level(hosts)),
            {**facts, **facts_of(hosts), **whole.facts},
            {**groups, **groups_of(hosts, unlike, torn), **whole.groups},
        )
        answer = judged(snapshot, self._book)
        found = fleet_findings(hosts, self._reader.examples, Places(hosts))
        findings = _ranked([*found, *(with_row_hosts(finding, snapshot) for finding in answer.findings)])
        verdict = verdict_of(findings, known=not (whole.cut or whole.unfinished) and answer.verdict != "unknown")
        fleet = self._fleet(whole, hosts, unlike, findings, verdict)
        notes = (*answer.notes, *(Note((), text) for text in [whole.cut, *self._notes(hosts)] if text))
        return replace(answer, findings=tuple(findings), verdict=verdict, fleet=fleet, notes=notes)

    def _with_switch(self, name: str, whole: FleetContext) -> Summary:
        """The host's summary, with its leaf switch from `whole` where that names one."""
        summary = self._hosts[name]
        return replace(summary, switch=whole.switches.get(name, summary.switch))

    def _fleet(
        self,
        whole: FleetContext,
        hosts: Sequence[Summary],
        unlike: Sequence[outliers.Outlier],
        findings: Sequence[Finding],
        verdict: Verdict,
    ) -> Fleet:
        """The table of hosts by checks, suspects and drains, for the cluster screen."""
        return Fleet(
            name=whole.name or _plural(len(hosts), "host"),
            hosts=tuple(map(board_host, hosts)),
            checks=board_checks(hosts),
            results=board_results(hosts, unlike),
            verdict=_WORDS[verdict],
            suspects=tuple(suspects(findings)),
            drain=_drains(hosts, whole),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=round(whole.seconds, 1),
        )

    def _notes(self, hosts: Sequence[Summary]) -> list[str]:
        """Notes about the documents: duplicates, other gpudoctor versions, different levels."""
        notes = []
        if self._twice:
            notes.append(f"More than one document of {names_phrase(list(self._twice))}: the later one counts.")
        tools = Counter(host.tool for host in hosts if host.tool)
        if others := [tool for tool in tools if tool != __version__]:
            who = {tool: [host.host for host in hosts if host.tool == tool] for tool in others}
            text = "; ".join(f"{tool} on {names_phrase(names)}" for tool, names in who.items())
            notes.append(f"This is gpudoctor {__version__}; documents of other versions were read as well: {text}.")
        levels = Counter(host.level for host in hosts if host.level)
        if len(levels) > 1:
            text = ", ".join(f"{level} ({_plural(count, 'host')})" for level, count in levels.most_common())
            notes.append(f"The hosts were not asked alike: {text}.")
        return notes


def _lowest_level(hosts: Sequence[Summary]) -> str:
    """The lowest check level among the hosts; ``quick`` if none is known."""
    levels = {host.level for host in hosts}
    return next((level for level in _LEVELS if level in levels), "quick")


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of `judge`; of equal severity and confidence, those on more hosts first.
    `explains` is not applied across hosts: each host's own diagnosis has done so.
    """

    def key(finding: Finding) -> tuple[object, ...]:
        """Sort key of a finding: severity, symptom, guess, more hosts first, then the rest of `sort_key`."""
        severity, symptom, guess, *rest = sort_key(finding)
        count = (finding.subject or {}).get("count")
        return severity, symptom, guess, -(count if isinstance(count, int) else 0), *rest

    return sorted(findings, key=key)


def _drains(hosts: Sequence[Summary], whole: FleetContext) -> tuple[Drain, ...]:
    """Drains for hosts with an error, by their first error; also for hosts without an answer if
    `whole.drain_silent`.
    """
    errors = {
        host.host: finding.id for host in hosts for finding in reversed(host.findings) if finding.severity == "error"
    }
    reasons = list(errors.items())
    if whole.drain_silent:
        reasons += [(host.host, "fleet.no-answer") for host in hosts if not host.answered]
    return drains(reasons, whole.scheduler)


def _plural(count: int, word: str) -> str:
    """``1 host``, ``3 hosts``: the count and the word, with an ``s`` unless the count is 1."""
    return f"{count} {word}{'s' if count != 1 else ''}"
