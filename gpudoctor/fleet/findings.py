"""What hosts found by themselves, folded: one finding for each id, with whom it concerns and what they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gpudoctor.fleet.names import listed, ordered
from gpudoctor.fleet.reading import Example
from gpudoctor.fleet.shared import Places, Shared
from gpudoctor.fleet.summary import Summary, Told
from gpudoctor.model.diagnosis import Evidence, Finding
from gpudoctor.model.fact import Json, Known, value_to_json
from gpudoctor.model.fleet import Suspect
from gpudoctor.model.rule import CONFIDENCES, SEVERITIES
from gpudoctor.model.snapshot import Snapshot

FOLDED = ("fleet.", "node.", "silence.", "outlier.", "split.")
"""Beginnings of the facts that the fold itself makes."""
_MOST_SUBJECTS = 256
"""Parts of hosts that a folded finding names."""
_MOST_EVIDENCE = 4
"""Pieces of evidence that the cluster screen shows of a suspect."""


@dataclass(slots=True)
class _Same:
    """Findings of one id, on several hosts."""

    told: list[Told] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


def gathered(hosts: Sequence[Summary], examples: Mapping[str, Example], places: Places) -> Iterator[Finding]:
    """One for each id that any host found; what only says that a host is sound stays with that host."""
    answered = sum(one.answered for one in hosts)
    by_id: dict[str, _Same] = {}
    for one in hosts:
        for told in one.findings:
            if told.severity != "info":
                same = by_id.setdefault(told.id, _Same())
                same.told.append(told)
                same.hosts.append(one.host)
    for rule, same in by_id.items():
        yield _finding(examples[rule], same, answered, places)


def _finding(example: Example, same: _Same, answered: int, places: Places) -> Finding:
    """The example's, about all of them: as grave and as sure as it is anywhere."""
    hosts = ordered(same.hosts)
    shared = places.shared(hosts)
    alike = " (and alike)" if len({told.title for told in same.told}) > 1 else ""
    title = f"{example.finding.title}{alike} on {_of(hosts, answered)}"
    subject: dict[str, Json] = {"hosts": list(hosts), "count": len(hosts)}
    if shared:
        title += f"; {shared.words}"
        subject |= {shared.kind.lower(): shared.value}
    return replace(
        example.finding,
        severity=min((told.severity for told in same.told), key=SEVERITIES.index),
        confidence=min((told.confidence for told in same.told), key=CONFIDENCES.index),
        title=title,
        evidence=(*(_evidence(shared)), *(_at(example.host, item) for item in example.finding.evidence)),
        subjects=(subject, *islice(_parts(same), _MOST_SUBJECTS)),
    )


def _parts(same: _Same) -> Iterator[Mapping[str, Json]]:
    """The GPUs, ports and so on of each host."""
    for told, host in zip(same.told, same.hosts, strict=True):
        yield from ({"host": host, **part} for part in told.subjects)


def _of(hosts: Sequence[str], answered: int) -> str:
    if len(hosts) == answered > 1:
        return f"all {answered} hosts"
    return f"{hosts[0]}" if len(hosts) == 1 else f"{len(hosts)} of {answered} hosts: {listed(hosts)}"


def _evidence(shared: Shared | None) -> Iterator[Evidence]:
    if shared:
        yield Evidence(shared.fact, Known(shared.words, "the hosts' documents, compared"))


def _at(host: str, item: Evidence) -> Evidence:
    """The evidence with the host that it was read on."""
    state = item.state
    return replace(item, state=replace(state, source=f"{host}: {state.source}")) if isinstance(state, Known) else item


def placed(finding: Finding, snapshot: Snapshot) -> Finding:
    """A finding about a row of the folded facts, with the hosts of that row."""
    for group, index in (finding.subject or {}).items():
        rows = snapshot.rows(group)
        if isinstance(rows, tuple) and isinstance(index, int) and isinstance(hosts := rows[index].get("hosts"), Known):
            names = value_to_json(hosts.value)
            count = len(names) if isinstance(names, list) else 0
            return replace(finding, subjects=({"hosts": names, "count": count},))
    return finding


def suspects(findings: Iterable[Finding]) -> Iterator[Suspect]:
    """Whom the findings blame, in their order: the switch where all of its hosts share one, else the hosts."""
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
            evidence=tuple(islice(_in_words(finding), _MOST_EVIDENCE)),
            id=finding.id,
            do=finding.fixes[0].title if finding.fixes else "",
        )


def _in_words(finding: Finding) -> Iterator[str]:
    """The values that it rests on, without how many rows there are, and what its sentence says already."""
    once = {item.fact: item for item in reversed(finding.evidence)}  # of rows alike the first
    for item in reversed(once.values()):
        if isinstance(item.state, Known) and "." in item.fact and not item.fact.startswith(FOLDED):
            value = value_to_json(item.state.value)
            said = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            name = "" if item.fact == "text.line" else f"{item.fact} = "
            yield f"{name}{said}  ({item.state.source})"
