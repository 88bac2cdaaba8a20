"""What the meeting found, judged: one diagnosis of the whole job, with who is to be taken out of service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from gpudoctor.cluster.fleet.findings import Scheduler, drains
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply, names_phrase, order
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.pairs import Direction, Pair, Suspect
from gpudoctor.cluster.preflight.results import Gain, LinkSeen, MeetingResults, Port, RailResults, RankSeen
from gpudoctor.core.diagnosis import Diagnosis, Finding, Note
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, Value, value_of
from gpudoctor.core.fleet import OK, Check, Drain, Fleet, Pairwise, Result
from gpudoctor.core.language import say
from gpudoctor.kernels.canary import summary

if TYPE_CHECKING:
    from gpudoctor.diagnosis.rulebook import Rulebook

NETWORK = Check("network", "network between the hosts", "net")
MOST_MATRIX_HOSTS = 128
"""Hosts of which every two are shown: more are mostly gaps, for each measured with four others at most."""


def diagnose_job(results: MeetingResults, book: Rulebook) -> Diagnosis:
    """Diagnosis of a distributed job: the cluster rules on what the meeting measured, and each machine's own findings.
    A machine without a document is reported as silent, unless the meeting was cut short.
    """
    folding = FleetFold(book)
    for host in results.hosts if results.asked else ():
        document = results.documents.get(host)
        text = json.dumps(document) if document else ""
        if document or not results.cut:  # whoever had no time to answer is not silent
            folding.add(Reply(text, host, because="" if document else _why_no_document(results, host)))
    place = results.place
    name = say("{count} ranks by {launcher}", count=place.world, launcher=say(place.launcher))
    name = say("{name}, cut off: {why}", name=name, why=results.cut) if results.cut else name
    whole = FleetContext(
        name=name,
        switches=results.switches,
        scheduler=scheduler(results.place),
        seconds=results.seconds,
        facts=facts(results),
        groups=groups(results),
        unfinished=bool(results.cut),
    )
    diagnosis = folding.diagnosis(whole)
    fleet = diagnosis.fleet and _with_network(diagnosis.fleet, diagnosis.findings, results)
    notes = diagnosis.notes
    if results.rails.usual:
        notes += (Note(("rail.sends_gbps", "rail.errors_gained"), _ports_in_words(results.rails)),)
    if isinstance(results.canary, tuple):
        notes += (Note(("canary.step_ms", "canary.ratio"), summary(results.canary)),)
    return replace(diagnosis, fleet=fleet, notes=notes)


_PORTS = "Each network port alone: {ports} of {hosts} machines measured, usually {rates} Gbit/s."
_GAINED = " Counted meanwhile: {gains}."
_GAIN = "{rail} on {host} {errors} errors ({rate} a second), {discards} discards"
_MOST_GAINS = 8


def _ports_in_words(rails: RailResults) -> str:
    """Text on the network ports that were measured alone: how many, their usual rates in Gbit/s, and up to eight ports
    whose error or discard counters rose meanwhile.
    """
    known = {(pair.rail, host) for pair in rails.pairs for host in (pair.a, pair.b)}
    rates = " / ".join(dict.fromkeys(f"{rate:.3g}" for rate in rails.usual.values()))
    text = say(_PORTS, ports=len(known), hosts=len({host for _, host in known}), rates=rates)
    gains = [
        say(_GAIN, rail=rail, host=host, errors=errors, rate=f"{errors / gain.seconds:.3g}", discards=discards)
        for (rail, host), gain in sorted(rails.gains.items())
        for errors, discards in [(gain.errors or 0, gain.discards or 0)]
        if (errors or discards) and gain.seconds
    ]
    return text + (say(_GAINED, gains="; ".join(gains[:_MOST_GAINS])) if gains else "")


def scheduler(place: Place) -> Scheduler:
    """Scheduler whose command takes a machine out of service: ``slurm`` if Slurm named the node, else ``none``."""
    return "slurm" if place.node else "none"


def _why_no_document(results: MeetingResults, host: str) -> str:
    """Why a host gave no diagnosis: its rank's failure, else why the meeting was cut short, else the time limit."""
    reason = next((rank.because for rank in results.ranks if rank.host == host and rank.because), "")
    return reason or results.cut or "its own check did not come to an end in time"


def _with_network(fleet: Fleet, findings: Sequence[Finding], found: MeetingResults) -> Fleet:
    """The fleet with the measured pairs and a column ``network``: who is blamed, else OK; unjudged if nothing was
    asked. Unless the meeting was cut short, hosts that an error blames alone are added to those to be drained.
    """
    blamed = dict(_blamed_hosts(findings))
    results = {
        host: {**fleet.results.get(host, {}), NETWORK.id: blamed.get(host, OK if found.asked else Result("unjudged"))}
        for host in found.hosts
    }
    own = {host for drain in fleet.drain for host in drain.hosts}
    out = found.asked and not found.cut
    reasons = [
        (host, blame.finding) for host, blame in blamed.items() if out and blame.outcome == "error" and host not in own
    ]
    drained: tuple[Drain, ...] = (*fleet.drain, *drains(reasons, scheduler(found.place)))
    checks = (*fleet.checks, NETWORK)
    return replace(fleet, checks=checks, results=results, pairwise=_pairwise(found), drain=drained)


_BETWEEN = ("nccl.", "gloo.", "host.clock")


def _blamed_hosts(findings: Sequence[Finding]) -> Iterator[tuple[str, Result]]:
    """(host, result) for each host named by a network finding, lowest ranked findings first, so that the last one
    counts. An error only for a finding that names one host and no unresolved name; else a warning, for the fault may be
    elsewhere.
    """
    for finding in reversed(findings):
        hosts = (finding.subject or {}).get("hosts")
        if finding.id.startswith(_BETWEEN) and isinstance(hosts, list):
            given = any(value_of(item.state) == "unresolved" for item in finding.evidence)
            for host in hosts:
                severity = finding.severity if len(hosts) == 1 and not given else "warning"
                yield str(host), Result(severity, finding.title, finding.id)


def _pairwise(results: MeetingResults) -> Pairwise | None:
    """Matrix of TCP bandwidths between hosts in Gbit/s, each the last measured, with why connections failed. None
    without any measurement or with more than `MOST_MATRIX_HOSTS` hosts.
    """
    rates: dict[tuple[str, str], float | None] = {}
    for pair in results.pairs:
        for source, target, way in pair.directions:
            if way.gbps is not None:
                rates[source, target] = round(way.gbps, 3)
    hosts = results.hosts
    if not rates or len(hosts) > MOST_MATRIX_HOSTS:
        return None
    usual = sorted(rate for rate in rates.values() if rate is not None)[len(rates) // 2]
    return Pairwise(
        title="Plain TCP between the hosts",
        unit="Gbit/s",
        expected=usual,
        names=tuple(hosts),
        measured=tuple(tuple(rates.get((source, target)) for target in hosts) for source in hosts),
        words={
            (link.source, link.target): link.words
            for link in results.links
            if not link.works and (link.source, link.target) not in rates and link.target in hosts
        },
    )


# ---- What the meeting found, as facts ----
# `gpudoctor.core.fleet` says what each means.

SOURCE = "the ranks' meeting"
_PAIRS = "measured in pairs"


def facts(results: MeetingResults) -> dict[str, Fact]:
    """Facts ``job.*`` about the job as a whole: launcher, ranks, port, NCCL versions, clock difference,
    interruption.
    """
    place = results.place
    worlds = sorted({rank.world for rank in results.ranks if rank.world is not None})
    versions = sorted({rank.nccl for rank in results.ranks if rank.nccl})
    hosts = results.hosts
    return {
        "job.launcher": Known(place.launcher, "environment"),
        "job.world": Known(place.world, "environment"),
        "job.came": Known(sum(rank.joined for rank in results.ranks), SOURCE),
        "job.hosts": Known(tuple(hosts), SOURCE),
        "job.master": Known(place.master, "environment"),
        "job.port": Known(place.port, "environment") if place.port else Absent("the environment names none"),
        "job.port_taken": Known(results.taken, "bind") if results.taken else Absent("nobody else listens on it"),
        "job.nccl_versions": Known(tuple(versions), SOURCE) if versions else Unread("no rank told its NCCL"),
        "job.worlds": Known(tuple(map(str, worlds)), SOURCE) if worlds else Unread("no rank came"),
        "job.clock_skew_ms": Unread("no clocks were compared")
        if results.skew_ms is None
        else Known(round(results.skew_ms, 1), _PAIRS),
        "job.clock_host": Known(results.skew_host, _PAIRS) if results.skew_host else Unread("no clocks were compared"),
        "job.checked": Known(results.checked, "asked for"),
        "job.backend": Known(results.backend, SOURCE) if results.backend else Unread("no machine told its GPUs"),
        "job.nccl_remarks": Absent("NCCL's own diagnostics (2.31 and newer) did not run")
        if results.nccl_remarks is None
        else Known(results.nccl_remarks, "NCCL_RUN_RAS_DIAGNOSTICS"),
        "job.rails_unmeasured": Known(tuple(_unmeasured_lines(results.rails.unmeasured)), SOURCE)
        if results.rails.unmeasured
        else Absent("all ports that are to be measured one by one were, or there are none"),
        "job.cut": Known(results.cut, SOURCE) if results.cut else Absent("it came to its end"),
        "job.seconds": Known(round(results.seconds, 2), SOURCE),
    }


def groups(results: MeetingResults) -> dict[str, Rows]:
    """Rows by group: ``rank``, ``link``, ``barrier``, ``flow``, ``suspect``, ``rail``, ``collective``, and ``canary``
    if it ran. ``rank`` is Unread if the ranks did not meet.
    """
    met = bool(results.ranks)
    return {
        "rank": tuple(map(_rank_row, results.ranks)) if met else Unread("the ranks did not meet"),
        "link": tuple(map(_link_row, results.links)),
        "barrier": tuple(map(_barrier_row, barriers(results.links))),
        "flow": tuple(row for pair in results.pairs for row in _flow_rows(pair, results)),
        "suspect": tuple(map(_suspect_row, results.suspects)),
        "rail": tuple(_rail_rows(results.rails)),
        "collective": results.collective,
        **({} if results.canary is None else {"canary": results.canary}),
    }


def _unmeasured_lines(unmeasured: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Each reason why ports were not measured, once for all hosts of which it holds for the same rails:
    ``rdmap[79-110]s0 on n0 and n1: no interface of it is up with an IP address``.
    """
    rails: dict[tuple[str, str], list[str]] = {}
    for (rail, host), why in unmeasured.items():
        rails.setdefault((why, host), []).append(rail)
    hosts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (why, host), of in rails.items():
        hosts.setdefault((why, tuple(of)), []).append(host)
    for (why, names), on in hosts.items():
        yield why.replace("{rail}", names_phrase(names)).replace("{host}", names_phrase(on))


def _rank_row(rank: RankSeen) -> Row:
    """Row of the group ``rank`` of a preflight; what only a connected rank tells is Unread if it never came."""
    return {
        "rank": Known(rank.rank, SOURCE),
        "host": Known(rank.host, SOURCE) if rank.host else Absent("the launcher does not tell"),
        "hosts": Known((rank.host,), SOURCE) if rank.host and rank.blames else Absent("it is not one machine's fault"),
        "local_rank": _known_or_unread(rank.local_rank, "it never came"),
        "state": Known(rank.state, SOURCE),
        "step": Known(rank.step, SOURCE) if rank.step else Absent("it said none"),
        "because": Known(rank.because, SOURCE) if rank.because else Absent("nothing is wrong with it"),
        "world": _known_or_unread(rank.world, "it never came"),
        "nccl": Known(rank.nccl, SOURCE) if rank.nccl else Unread("it did not tell"),
        "seconds": _known_or_unread(None if rank.seconds is None else round(rank.seconds, 1), "it never came"),
    }


def _link_row(link: LinkSeen) -> Row:
    """Row of the group ``link``: one machine's connection to another; ``ms`` is Unread if it failed."""
    return {
        "source": Known(link.source, SOURCE),
        "target": Known(link.target, SOURCE),
        **_endpoint_columns(link),
        "ms": _known_or_unread(link.ms, "no connection"),
    }


def _barrier_row(barrier: Barrier) -> Row:
    """Row of the group ``barrier``: connections that failed alike, with the host to blame (Absent if not one)."""
    link = barrier.links[0]
    return {
        "sources": Known(barrier.sources, SOURCE),
        "targets": Known(barrier.targets, SOURCE),
        "hosts": Known(barrier.blamed, SOURCE) if barrier.blamed else Absent("it is not one machine"),
        "count": Known(len(barrier.links), SOURCE),
        "announced": Known(f"{link.address} of {link.interface}" if link.address else "no address", SOURCE),
        **_endpoint_columns(link),
    }


def _endpoint_columns(link: LinkSeen) -> Row:
    """Columns common to links and barriers: kind, used_by, address, port, interface, outcome and words; address, port
    and interface are Absent where there is none.
    """
    return {
        "kind": Known(link.kind, SOURCE),
        "used_by": Known(link.used_by, SOURCE),
        "address": Known(link.address, SOURCE) if link.address else Absent("it announces none"),
        "port": Known(link.port, SOURCE) if link.port else Absent("none was tried"),
        "interface": Known(link.interface, SOURCE) if link.interface else Absent("not told"),
        "outcome": Known(link.outcome, "connect"),
        "words": Known(link.words, "connect"),
    }


def _flow_rows(pair: Pair, results: MeetingResults) -> Iterator[Row]:
    """Rows of the group ``flow`` for a pair of hosts: one for each direction with a measured rate or a stall."""
    for source, target, way in pair.directions:
        if way.gbps is not None or way.stalled_above is not None:
            flow = results.flows.get((source, target)) or results.flows.get((target, source)) or {}
            yield _flow_row(source, target, pair, way, flow)


def _flow_row(source: str, target: str, pair: Pair, direction: Direction, flow: Mapping[str, object]) -> Row:
    """Row of the group ``flow`` for a direction: Gbit/s, round trip in ms, share sent again, MTU (else unread), and the
    size above which it stalls (absent: all sizes pass).
    """
    mtu = flow.get("mtu")
    return {
        "source": Known(source, _PAIRS),
        "target": Known(target, _PAIRS),
        "round": Known(pair.round, _PAIRS),
        "gbps": _known_or_unread(None if direction.gbps is None else round(direction.gbps, 3), "nothing arrived"),
        "ms": _known_or_unread(None if pair.ms is None else round(pair.ms, 3), "not measured"),
        "resent": Known(round(direction.resent / direction.sent, 4), "TCP_INFO")
        if direction.sent
        else Unread("the kernel does not tell"),
        "stalled_above": Absent("all sizes pass")
        if direction.stalled_above is None
        else Known(direction.stalled_above, _PAIRS),
        "mtu": _known_or_unread(mtu if isinstance(mtu, int) else None, "the kernel does not tell"),
    }


def _suspect_row(suspect: Suspect) -> Row:
    """Row of the group ``suspect``: who is suspected by which measure, with value, usual value and share (Unread
    without). ``hosts`` is Absent for a switch, ``rail`` where it is not one network port, ``network`` where no other
    rail is reached.
    """
    return {
        "kind": Known(suspect.kind, _PAIRS),
        "names": Known(suspect.names, _PAIRS),
        "hosts": Absent("it is a switch") if suspect.kind == "switch" else Known(suspect.names, _PAIRS),
        "way": Known(suspect.way, _PAIRS),
        "measure": Known(suspect.measure, _PAIRS),
        "value": _known_or_unread(_rounded(suspect.value), "nothing arrived"),
        "usual": _known_or_unread(_rounded(suspect.usual), "nothing to compare with"),
        "share": _known_or_unread(_rounded(suspect.share), "nothing to compare with"),
        "pairs": Known(suspect.pairs, _PAIRS),
        "words": Known(suspect.words, _PAIRS),
        "rail": Known(suspect.rail, _PAIRS) if suspect.rail else Absent("it is not one network port"),
        "network": Known(suspect.network, _PAIRS) if suspect.network else Absent("it reaches no other rail"),
    }


def _rail_rows(rails: RailResults) -> Iterator[Row]:
    """Rows of the group ``rail``: each network port, measured alone or not, with its best rates in Gbit/s; those not
    measured are Unread for their reason.
    """
    sends: dict[tuple[str, str], float] = {}
    receives: dict[tuple[str, str], float] = {}
    rounds = {(pair.rail, host): pair.round for pair in rails.pairs for host in (pair.a, pair.b)}
    for pair in rails.pairs:
        for source, target, way in pair.directions:
            if way.gbps is not None:
                sends[pair.rail, source] = max(way.gbps, sends.get((pair.rail, source), 0.0))
                receives[pair.rail, target] = max(way.gbps, receives.get((pair.rail, target), 0.0))
    gpu_sends, gpu_receives = (_best_from_gpus(rails, end) for end in (1, 2))
    measured = {(rail, host): port for rail, of in rails.ports.items() for host, port in of.items()}
    for rail, host in sorted({*measured, *rails.unmeasured}):
        port, why = measured.get((rail, host), Port(rail)), rails.unmeasured.get((rail, host), "nothing arrived")
        why = why.replace("{rail}", rail).replace("{host}", host)
        gain, uncounted = rails.gains.get((rail, host), Gain(0.0)), "its counters cannot be read"
        yield {
            "rail": Known(rail, SOURCE),
            "host": Known(host, SOURCE),
            "hosts": Known((host,), SOURCE),
            "interface": Known(port.interface, SOURCE) if port.interface else Absent("none with an address"),
            "address": Known(port.address, SOURCE) if port.address else Absent("its interface has none"),
            "rate_gbps": _known_or_unread(port.gbps, "its driver tells none"),
            "pcie_gbps": Known(round(port.pcie_gbps, 1), SOURCE) if port.pcie_gbps else Absent("not told"),
            "rdma": Known(rail in rails.rdma, SOURCE),
            "round": _known_or_unread(rounds.get((rail, host)), why),
            "sends_gbps": _known_or_unread(_rounded(sends.get((rail, host))), why),
            "receives_gbps": _known_or_unread(_rounded(receives.get((rail, host))), why),
            "gpu_sends_gbps": _from_gpus(gpu_sends.get((rail, host)), port),
            "gpu_receives_gbps": _from_gpus(gpu_receives.get((rail, host)), port),
            "errors_gained": _known_or_unread(gain.errors, uncounted),
            "discards_gained": _known_or_unread(gain.discards, uncounted),
            "watched_s": _known_or_unread(round(gain.seconds, 1) or None, uncounted),
            "usual_gbps": _known_or_unread(_rounded(rails.usual.get(rail)), "nothing to compare with"),
        }


def _best_from_gpus(rails: RailResults, end: int) -> dict[tuple[str, str], float]:
    """By (rail, host), the best rate in Gbit/s between GPU memories with it as the sender (`end` 1) or receiver (2)."""
    best: dict[tuple[str, str], float] = {}
    for ends, gbps in rails.gpu_memory.items():
        best[ends[0], ends[end]] = max(gbps, best.get((ends[0], ends[end]), 0.0))
    return best


def _from_gpus(gbps: float | None, port: Port) -> Fact:
    """The rate from or to GPU memory as a fact; if it is None: Absent where the port has no usable GPU, else Unread."""
    if gbps is None and not port.gpu:
        return Absent("no GPU beside its card whose memory ib_write_bw can use")
    return _known_or_unread(_rounded(gbps), "not measured")


def _rounded(value: float | None) -> float | None:
    """Value rounded to four decimals; None stays None."""
    return None if value is None else round(value, 4)


def _known_or_unread(value: Value | None, why: str) -> Fact:
    """`value` as Known, from the ranks' meeting; None is Unread for the reason `why`."""
    return Unread(why) if value is None else Known(value, SOURCE)


# ---- Failed connections, those that are alike together ----
# Ten machines that one firewall keeps out are one thing to say.


@dataclass(frozen=True, slots=True)
class Barrier:
    """Connections that failed alike: from several machines to one, from one to several, or among most of them."""

    links: tuple[LinkSeen, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Machines whose connections failed, sorted."""
        return tuple(sorted({link.source for link in self.links}, key=order))

    @property
    def targets(self) -> tuple[str, ...]:
        """Machines to which the connections failed, sorted."""
        return tuple(sorted({link.target for link in self.links}, key=order))

    @property
    def blamed(self) -> tuple[str, ...]:
        """The one machine at fault: the only target, else the only source; empty if there is neither.
        Where a name does not resolve, the only source comes first.
        """
        if self.links[0].outcome == "unresolved" and len(self.sources) == 1:
            return self.sources
        ends = [names for names in (self.targets, self.sources) if len(names) == 1]
        return ends[0] if ends else ()


def barriers(links: Iterable[LinkSeen]) -> list[Barrier]:
    """Failed connections of the same kind and outcome, grouped by the machine most of them have in common.
    If too many machines would be blamed, they stay one group, which blames none.
    """
    failed = sorted((link for link in links if not link.works), key=_failure_key)
    found: list[Barrier] = []
    for _, alike in groupby(failed, key=_failure_key):
        same = list(alike)
        grouped = list(_grouped_by_end(same))
        found += [Barrier(tuple(same))] if _is_widespread(grouped) else grouped
    return found


WIDESPREAD_MACHINES = 4
"""So many machines of which each is to blame for the same: it is no longer the machines, it is a setting of all."""


def _is_widespread(grouped: Iterable[Barrier]) -> bool:
    """True if the groups blame at least `WIDESPREAD_MACHINES` machines, or every machine they mention (two or more)."""
    blamed = {host for barrier in grouped for host in barrier.blamed}
    mentioned = {host for barrier in grouped for host in (*barrier.sources, *barrier.targets)}
    return len(blamed) >= WIDESPREAD_MACHINES or (len(blamed) > 1 and blamed == mentioned)


def _failure_key(link: LinkSeen) -> tuple[str, str, str]:
    """Sort and group key of a failed connection: its kind, outcome and user (NCCL, Gloo or a port)."""
    return link.kind, link.outcome, link.used_by


def _grouped_by_end(left: list[LinkSeen]) -> Iterator[Barrier]:
    """Failed connections grouped by the target or source that most of the remaining ones share, largest first."""
    while left:
        ends = Counter(end for link in left for end in _ends(link))
        (most, _), *_ = ends.most_common(1)
        group = [link for link in left if most in _ends(link)]
        left = [link for link in left if most not in _ends(link)]
        yield Barrier(tuple(group))


def _ends(link: LinkSeen) -> tuple[tuple[str, ...], ...]:
    """The two ends of a connection as comparable keys: ``("to", target, address)`` and ``("from", source)``."""
    return ("to", link.target, link.address), ("from", link.source)
