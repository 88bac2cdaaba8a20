"""What the meeting found, judged: one diagnosis of the whole job, with who is to be taken out of service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from gpudoctor.fleet.drain import Scheduler, drains
from gpudoctor.fleet.fold import Folding, Whole
from gpudoctor.fleet.names import order
from gpudoctor.fleet.reading import Reply
from gpudoctor.job.found import Found, LinkSeen, RankSeen
from gpudoctor.job.pairing.pairs import Direction, Pair
from gpudoctor.job.pairing.suspect import Suspect
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, Value
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


# ---- What the meeting found, as facts ----
# `gpudoctor.cluster` says what each means.

SOURCE = "the ranks' meeting"
_PAIRS = "measured in pairs"


def facts(found: Found) -> dict[str, Fact]:
    """The facts of the job as a whole."""
    place = found.place
    worlds = sorted({rank.world for rank in found.ranks if rank.world is not None})
    versions = sorted({rank.nccl for rank in found.ranks if rank.nccl})
    hosts = found.hosts
    return {
        "job.launcher": Known(place.launcher, "environment"),
        "job.world": Known(place.world, "environment"),
        "job.came": Known(sum(rank.came for rank in found.ranks), SOURCE),
        "job.hosts": Known(tuple(hosts), SOURCE),
        "job.master": Known(place.master, "environment"),
        "job.port": Known(place.port, "environment") if place.port else Absent("the environment names none"),
        "job.port_taken": Known(found.taken, "bind") if found.taken else Absent("nobody else listens on it"),
        "job.nccl_versions": Known(tuple(versions), SOURCE) if versions else Unread("no rank told its NCCL"),
        "job.worlds": Known(tuple(map(str, worlds)), SOURCE) if worlds else Unread("no rank came"),
        "job.clock_skew_ms": _skew(found),
        "job.clock_host": Known(found.skew_host, _PAIRS) if found.skew_host else Unread("no clocks were compared"),
        "job.checked": Known(found.checked, "asked for"),
        "job.backend": Known(found.backend, SOURCE) if found.backend else Unread("no machine told its GPUs"),
        "job.cut": Known(found.cut, SOURCE) if found.cut else Absent("it came to its end"),
        "job.seconds": Known(round(found.seconds, 2), SOURCE),
    }


def groups(found: Found) -> dict[str, Rows]:
    """The facts of each rank, of each connection and of each measurement."""
    met = bool(found.ranks)
    return {
        "rank": tuple(map(_rank, found.ranks)) if met else Unread("the ranks did not meet"),
        "link": tuple(map(_link, found.links)),
        "barrier": tuple(map(_barrier, barriers(found.links))),
        "flow": tuple(row for pair in found.pairs for row in _flows(pair, found)),
        "suspect": tuple(map(_suspect, found.suspects)),
        "collective": found.collective,
    }


def _skew(found: Found) -> Fact:
    if found.skew_ms is None:
        return Unread("no clocks were compared")
    return Known(round(found.skew_ms, 1), _PAIRS)


def _rank(rank: RankSeen) -> Row:
    return {
        "rank": Known(rank.rank, SOURCE),
        "host": Known(rank.host, SOURCE) if rank.host else Absent("the launcher does not tell"),
        "hosts": Known((rank.host,), SOURCE) if rank.host and rank.blames else Absent("it is not one machine's fault"),
        "local_rank": _known(rank.local_rank, "it never came"),
        "state": Known(rank.state, SOURCE),
        "step": Known(rank.step, SOURCE) if rank.step else Absent("it said none"),
        "because": Known(rank.because, SOURCE) if rank.because else Absent("nothing is wrong with it"),
        "world": _known(rank.world, "it never came"),
        "nccl": Known(rank.nccl, SOURCE) if rank.nccl else Unread("it did not tell"),
        "seconds": _known(None if rank.seconds is None else round(rank.seconds, 1), "it never came"),
    }


def _link(link: LinkSeen) -> Row:
    return {
        **_texts(link.source, source="source"),
        **_texts(link.target, source="target"),
        **_where(link.kind, link.used_by, link.address, link.port, link.interface, link.outcome, link.words),
        "ms": _known(link.ms, "no connection"),
    }


def _texts(value: str, source: str) -> dict[str, Fact]:
    return {source: Known(value, SOURCE)}


def _barrier(one: Barrier) -> Row:
    link = one.links[0]
    return {
        "sources": Known(one.sources, SOURCE),
        "targets": Known(one.targets, SOURCE),
        "hosts": Known(one.blamed, SOURCE) if one.blamed else Absent("it is not one machine"),
        "count": Known(len(one.links), SOURCE),
        "announced": Known(f"{link.address} of {link.interface}" if link.address else "no address", SOURCE),
        **_where(link.kind, link.used_by, link.address, link.port, link.interface, link.outcome, link.words),
    }


def _where(kind: str, used_by: str, address: str, port: int, interface: str, outcome: str, words: str) -> Row:
    return {
        "kind": Known(kind, SOURCE),
        "used_by": Known(used_by, SOURCE),
        "address": Known(address, SOURCE) if address else Absent("it announces none"),
        "port": Known(port, SOURCE) if port else Absent("none was tried"),
        "interface": Known(interface, SOURCE) if interface else Absent("not told"),
        "outcome": Known(outcome, "connect"),
        "words": Known(words, "connect"),
    }


def _flows(pair: Pair, found: Found) -> Iterator[Row]:
    for source, target, way in pair.ways:
        if way.gbps is not None or way.stalled_above is not None:
            flow = found.flows.get((source, target)) or found.flows.get((target, source)) or {}
            yield _flow(source, target, pair, way, flow)


def _flow(source: str, target: str, pair: Pair, way: Direction, flow: Mapping[str, object]) -> Row:
    mtu = flow.get("mtu")
    return {
        "source": Known(source, _PAIRS),
        "target": Known(target, _PAIRS),
        "round": Known(pair.round, _PAIRS),
        "gbps": _known(None if way.gbps is None else round(way.gbps, 3), "nothing arrived"),
        "ms": _known(None if pair.ms is None else round(pair.ms, 3), "not measured"),
        "resent": Known(round(way.resent / way.sent, 4), "TCP_INFO")
        if way.sent
        else Unread("the kernel does not tell"),
        "stalled_above": _absent_or(way.stalled_above, "all sizes pass"),
        "mtu": _known(mtu if isinstance(mtu, int) else None, "the kernel does not tell"),
    }


def _suspect(one: Suspect) -> Row:
    return {
        "kind": Known(one.kind, _PAIRS),
        "names": Known(one.names, _PAIRS),
        "hosts": Absent("it is a switch") if one.kind == "switch" else Known(one.names, _PAIRS),
        "way": Known(one.way, _PAIRS),
        "measure": Known(one.measure, _PAIRS),
        "value": _known(_rounded(one.value), "nothing arrived"),
        "usual": _known(_rounded(one.usual), "nothing to compare with"),
        "share": _known(_rounded(one.share), "nothing to compare with"),
        "pairs": Known(one.pairs, _PAIRS),
        "words": Known(one.words, _PAIRS),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _known(value: Value | None, why: str) -> Fact:
    return Unread(why) if value is None else Known(value, SOURCE)


def _absent_or(value: int | None, why: str) -> Fact:
    return Absent(why) if value is None else Known(value, _PAIRS)


# ---- Failed connections, those that are alike together ----
# Ten machines that one firewall keeps out are one thing to say.


@dataclass(frozen=True, slots=True)
class Barrier:
    """Connections that failed alike: from several machines to one, from one to several, or between most of them."""

    links: tuple[LinkSeen, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Who cannot connect."""
        return tuple(sorted({link.source for link in self.links}, key=order))

    @property
    def targets(self) -> tuple[str, ...]:
        """To whom."""
        return tuple(sorted({link.target for link in self.links}, key=order))

    @property
    def blamed(self) -> tuple[str, ...]:
        """The one end that all have in common; of a single connection who does not let in, unless no name was found."""
        if self.links[0].outcome == "unresolved" and len(self.sources) == 1:
            return self.sources
        ends = [names for names in (self.targets, self.sources) if len(names) == 1]
        return ends[0] if ends else ()


def barriers(links: Iterable[LinkSeen]) -> list[Barrier]:
    """Each failed connection once: with those to the same address, or with those from the same machine, if more."""
    failed = sorted((link for link in links if not link.works), key=_like)
    found: list[Barrier] = []
    for _, alike in groupby(failed, key=_like):
        same = list(alike)
        grouped = list(_grouped(same))
        found += [Barrier(tuple(same))] if _everywhere(grouped) else grouped
    return found


EVERYWHERE = 4
"""So many machines of which each is to blame for the same: it is no longer the machines, it is a setting of all."""


def _everywhere(grouped: Iterable[Barrier]) -> bool:
    """Whether there are so many, or every machine of which anything is told is to blame."""
    blamed = {host for one in grouped for host in one.blamed}
    mentioned = {host for one in grouped for host in (*one.sources, *one.targets)}
    return len(blamed) >= EVERYWHERE or (len(blamed) > 1 and blamed == mentioned)


def _like(link: LinkSeen) -> tuple[str, str, str]:
    return link.kind, link.outcome, link.used_by


def _grouped(left: list[LinkSeen]) -> Iterator[Barrier]:
    while left:
        ends = Counter(end for link in left for end in _ends(link))
        (most, _), *_ = ends.most_common(1)
        group = [link for link in left if most in _ends(link)]
        left = [link for link in left if most not in _ends(link)]
        yield Barrier(tuple(group))


def _ends(link: LinkSeen) -> tuple[tuple[str, ...], ...]:
    """Where it leads, then where it is from: of equally many the first counts."""
    return ("to", link.target, link.address), ("from", link.source)
