"""What the meeting found, judged: one diagnosis of the whole job, with who is to be taken out of service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudoctor.fleet.drain import Scheduler, drains
from gpudoctor.fleet.fold import Folding, Whole
from gpudoctor.fleet.reading import Reply
from gpudoctor.job.facts import facts, groups
from gpudoctor.job.found import Found
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Known
from gpudoctor.model.fleet import OK, Check, Drain, Fleet, Result
from gpudoctor.model.pairwise import Pairwise

if TYPE_CHECKING:
    from gpudoctor.rulebook import Rulebook

NETWORK = Check("network", "network between the hosts", "net")
MOST_IN_A_MATRIX = 128
"""Hosts of which every two are shown: more are mostly gaps, for each measured with four others at most."""


def diagnosed(found: Found, book: Rulebook) -> Diagnosis:
    """The job's diagnosis, by the pages of scope ``cluster`` and each machine's own check."""
    folding = Folding(book)
    for host in found.hosts if found.asked else ():
        document = found.documents.get(host)
        text = json.dumps(document) if document else ""
        if document or not found.cut:  # whoever had no time to answer is not silent
            folding.hear(Reply(text, host, because="" if document else _no_document(found, host)))
    place = found.place
    name = f"{place.world} ranks by {place.launcher}" + (f", cut off: {found.cut}" if found.cut else "")
    whole = Whole(
        name=name,
        switches=found.switches,
        scheduler=scheduler(found),
        seconds=found.seconds,
        facts=facts(found),
        groups=groups(found),
    )
    diagnosis = folding.diagnosis(whole)
    if found.cut and diagnosis.verdict != "broken":  # nothing bad was found in what there is of it
        diagnosis = replace(diagnosis, verdict="unknown")
        diagnosis = replace(diagnosis, fleet=diagnosis.fleet and replace(diagnosis.fleet, verdict="unknown"))
    fleet = diagnosis.fleet and _completed(diagnosis.fleet, diagnosis.findings, found)
    return replace(diagnosis, fleet=fleet)


def scheduler(found: Found) -> Scheduler:
    """Whose words take a machine out: Slurm's where it names the machines."""
    return "slurm" if found.place.node else "none"


def _no_document(found: Found, host: str) -> str:
    reason = next((rank.because for rank in found.ranks if rank.host == host and rank.because), "")
    return reason or found.cut or "its own check did not come to an end in time"


def _completed(fleet: Fleet, findings: Sequence[Finding], found: Found) -> Fleet:
    """With the network as a check of each host, every two that were measured, and whom that takes out."""
    blamed = dict(_blamed(findings))
    results = {
        host: {**fleet.results.get(host, {}), NETWORK.id: blamed.get(host, OK if found.asked else Result("unjudged"))}
        for host in found.hosts
    }
    own = {host for drain in fleet.drain for host in drain.hosts}
    out = found.asked and not found.cut
    reasons = [
        (host, one.finding) for host, one in blamed.items() if out and one.outcome == "error" and host not in own
    ]
    drained: tuple[Drain, ...] = (*fleet.drain, *drains(reasons, scheduler(found)))
    checks = (*fleet.checks, NETWORK)
    return replace(fleet, checks=checks, results=results, pairwise=_pairwise(found), drain=drained)


_BETWEEN = ("nccl.", "gloo.", "host.clock")


def _blamed(findings: Sequence[Finding]) -> Iterator[tuple[str, Result]]:
    """Each host that a finding about the network names. It is taken out where it is named alone: not for a bad link,
    of which it is one end, and not for a name that the job gave it and that leads nowhere.
    """
    for finding in reversed(findings):
        hosts = (finding.subject or {}).get("hosts")
        if finding.id.startswith(_BETWEEN) and isinstance(hosts, list):
            given = any(isinstance(item.state, Known) and item.state.value == "unresolved" for item in finding.evidence)
            for host in hosts:
                severity = finding.severity if len(hosts) == 1 and not given else "warning"
                yield str(host), Result(severity, finding.title, finding.id)


def _pairwise(found: Found) -> Pairwise | None:
    """Bandwidth between every two, the last time that they were measured."""
    rates: dict[tuple[str, str], float | None] = {}
    for pair in found.pairs:
        for source, target, way in pair.ways:
            if way.gbps is not None:
                rates[source, target] = round(way.gbps, 3)
    hosts = found.hosts
    if not rates or len(hosts) > MOST_IN_A_MATRIX:
        return None
    usual = sorted(rate for rate in rates.values() if rate is not None)[len(rates) // 2]
    return Pairwise(
        title="Plain TCP between the hosts",
        unit="Gbit/s",
        expected=usual,
        names=tuple(hosts),
        measured=tuple(tuple(rates.get((source, target)) for target in hosts) for source in hosts),
        words=_because(found, rates),
    )


def _because(found: Found, rates: Mapping[tuple[str, str], float | None]) -> dict[tuple[str, str], str]:
    """Why a way was not measured, where somebody tried it and did not get through."""
    return {
        (link.source, link.target): link.words
        for link in found.links
        if not link.works and (link.source, link.target) not in rates and link.target in found.hosts
    }
