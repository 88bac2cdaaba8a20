"""The fold: replies in, one diagnosis of all hosts out, whatever came of some of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpudoctor.fleet import board, outliers
from gpudoctor.fleet.drain import Scheduler, drains
from gpudoctor.fleet.findings import gathered, placed, suspects
from gpudoctor.fleet.names import listed, order
from gpudoctor.fleet.reading import Reader, Reply
from gpudoctor.fleet.rows import facts_of, groups_of, unasked
from gpudoctor.fleet.shared import Places
from gpudoctor.fleet.summary import Summary
from gpudoctor.judge.ranking import place
from gpudoctor.model.diagnosis import Diagnosis, Finding, Note, Verdict
from gpudoctor.model.fact import Fact, Rows
from gpudoctor.model.fleet import Drain, Fleet
from gpudoctor.model.fleet import Verdict as FleetVerdict
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.version import __version__

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.rulebook import Rulebook

_WORDS: Mapping[Verdict, FleetVerdict] = {"sound": "go", "impaired": "go", "broken": "no-go", "unknown": "unknown"}
_LEVELS = ("quick", "standard", "deep")


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of the whole beside its hosts' documents."""

    name: str = ""
    """By default how many hosts it has."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """The leaf switch or rack of each host, as far as somebody told."""
    scheduler: Scheduler = "none"
    drain_silent: bool = False
    cut: str = ""
    """Why not every host was heard that would have been; then the whole is called neither sound nor go."""
    seconds: float = 0.0
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """More facts, of a job for example, for the pages to read."""
    groups: Mapping[str, Rows] = field(default_factory=dict)


class Folding:
    """Hears replies one by one and keeps a little of each; `diagnosis` judges what it has by then.

    Each host is held to the `profile`, where there is one, whether or not it was asked to hold itself to it.
    """

    def __init__(self, book: Rulebook, profile: Profile | None = None) -> None:
        self._book = book
        self._reader = Reader(book, profile)
        self._hosts: dict[str, Summary] = {}
        self._twice: Counter[str] = Counter()

    def hear(self, reply: Reply) -> None:
        """Of two documents of one host the later counts; one that can be read is not lost to one that cannot."""
        for summary in self._reader.summaries(reply):
            before = self._hosts.get(summary.host)
            if before is not None:
                self._twice[summary.host] += 1
            if before is None or summary.answered or not before.answered:
                self._hosts[summary.host] = summary

    @property
    def answered(self) -> int:
        """Hosts heard so far whose answer could be read."""
        return sum(one.answered for one in self._hosts.values())

    def diagnosis(self, whole: Whole) -> Diagnosis:
        """All that was heard, judged by the pages of scope ``cluster``, with what the hosts found by themselves."""
        from gpudoctor import doctor

        names = list(self._hosts)  # at once: others may be heard meanwhile
        hosts = [self._placed(name, whole) for name in sorted(names, key=order)]
        unlike, torn = outliers.found(hosts)
        facts, groups = unasked()
        snapshot = Snapshot(
            Target("fleet", whole.name or _many(len(hosts), "host"), None, _level(hosts)),
            {**facts, **facts_of(hosts), **whole.facts},
            {**groups, **groups_of(hosts, unlike, torn), **whole.groups},
        )
        judged = doctor.diagnose(snapshot, self._book)
        found = gathered(hosts, self._reader.examples, Places(hosts))
        findings = _ranked([*found, *(placed(one, snapshot) for one in judged.findings)])
        verdict = _verdict(judged.verdict, findings, whole.cut)
        fleet = self._fleet(whole, hosts, unlike, findings, verdict)
        notes = (*judged.notes, *(Note((), text) for text in [whole.cut, *self._notes(hosts)] if text))
        return replace(judged, findings=tuple(findings), verdict=verdict, fleet=fleet, notes=notes)

    def _placed(self, name: str, whole: Whole) -> Summary:
        summary = self._hosts[name]
        return replace(summary, switch=whole.switches.get(name, summary.switch))

    def _fleet(
        self,
        whole: Whole,
        hosts: Sequence[Summary],
        unlike: Sequence[outliers.Outlier],
        findings: Sequence[Finding],
        verdict: Verdict,
    ) -> Fleet:
        return Fleet(
            name=whole.name or _many(len(hosts), "host"),
            hosts=tuple(map(board.host, hosts)),
            checks=board.checks(hosts),
            results=board.results(hosts, unlike),
            verdict=_WORDS[verdict],
            suspects=tuple(suspects(findings)),
            drain=_drained(hosts, whole),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=round(whole.seconds, 1),
        )

    def _notes(self, hosts: Sequence[Summary]) -> list[str]:
        """What to bear in mind of the documents themselves."""
        notes = []
        if self._twice:
            notes.append(f"More than one document of {listed(list(self._twice))}: the later one counts.")
        tools = Counter(one.tool for one in hosts if one.tool)
        if others := [tool for tool in tools if tool != __version__]:
            who = {tool: [one.host for one in hosts if one.tool == tool] for tool in others}
            told = "; ".join(f"{tool} on {listed(names)}" for tool, names in who.items())
            notes.append(f"This is gpudoctor {__version__}; documents of other versions were read as well: {told}.")
        levels = Counter(one.level for one in hosts if one.level)
        if len(levels) > 1:
            told = ", ".join(f"{level} ({_many(count, 'host')})" for level, count in levels.most_common())
            notes.append(f"The hosts were not asked alike: {told}.")
        return notes


def _level(hosts: Sequence[Summary]) -> str:
    """The lowest at which any was asked."""
    told = {one.level for one in hosts}
    return next((level for level in _LEVELS if level in told), "quick")


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """As `judge` orders them, and of those as grave and as sure the one that more hosts have comes first.

    What explains what was settled on each host; nothing is a consequence of what another host has.
    """

    def key(finding: Finding) -> tuple[object, ...]:
        severity, symptom, guess, *rest = place(finding)
        count = (finding.subject or {}).get("count")
        return severity, symptom, guess, -(count if isinstance(count, int) else 0), *rest

    return sorted(findings, key=key)


def _verdict(judged: Verdict, findings: Sequence[Finding], cut: str) -> Verdict:
    """Broken by any error, of a host or of the whole; unknown where it was cut, or no page calls it sound."""
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "broken"
    if cut or judged == "unknown":
        return "unknown"
    return "impaired" if "warning" in severities else "sound"


def _drained(hosts: Sequence[Summary], whole: Whole) -> tuple[Drain, ...]:
    """Hosts with an error, for the first of them; the silent only where that is asked for."""
    errors = {one.host: told.id for one in hosts for told in reversed(one.findings) if told.severity == "error"}
    reasons = list(errors.items())
    if whole.drain_silent:
        reasons += [(one.host, "fleet.no-answer") for one in hosts if not one.answered]
    return drains(reasons, whole.scheduler)


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"
