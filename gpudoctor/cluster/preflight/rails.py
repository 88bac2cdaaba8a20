"""Links between hosts by rail: each network port of a machine alone, paired with the same port of another machine.

An end is a port of a host, and all else is as for hosts: rounds of disjoint pairs, what is usual, who is to blame.
Ports of one name on all hosts are a rail, which has rounds of its own. In each round one rail measures after the other,
so that no port shares its machine's processors and PCIe lanes with another one; ports of equal rate are compared over
all rails, so that of two hosts the one port that differs is seen, and a rail that is slow as a whole.

A port that reaches none of its rail tries the other rails' ports. Where it reaches those of one of them, its cable is
in that rail's switch. Its sockets are bound to its interface: Linux takes what has no route there to be on the link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from zlib import crc32

from gpudoctor.cluster.preflight import MOST_ROUNDS, Limits, rounds
from gpudoctor.cluster.preflight.culprits import suspects
from gpudoctor.cluster.preflight.measuring import Measuring, SourceTarget, by_each_port, connect_all, link_by_port
from gpudoctor.cluster.preflight.meeting import JoinedRank, Meeting
from gpudoctor.cluster.preflight.pairs import CONNECTED, FEWEST_BAD, Pair, Suspect, limits_of, sentence
from gpudoctor.cluster.preflight.pairs import Limits as Usual
from gpudoctor.cluster.preflight.ports import PERFTEST
from gpudoctor.cluster.preflight.results import Gain, LinkSeen, MeetingResults, Port
from gpudoctor.cluster.preflight.wire import Message

RailPort = tuple[str, str]
"""A rail and a host: one port."""
_COUNTERS_SECONDS = 5.0
"""Seconds for files of sysfs."""

# ---- Which ports measure each other, and which are to blame ----


@dataclass
class RailPlan:
    """Plans the rounds of all rails and judges their results. `hosts` maps a rail to the hosts that have its port."""

    hosts: Mapping[str, Sequence[str]]
    switches: Mapping[str, str]
    kinds: Mapping[str, object]
    """By rail, its ports' own rate and whether it is measured by RDMA: rails alike in both are compared."""
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """By rail, all that was measured."""
    cards: frozenset[str] = frozenset()
    """Rails of RDMA ports: by TCP they are only looked at."""

    def round(self, number: int) -> dict[str, rounds.Pairs]:
        """Pairs of hosts to measure in that round (from 1), by rail (a network port); rails with nothing in doubt are
        left out.
        """
        usual = self.usual()
        due = {
            rail: rounds.pairs_of_round(
                number, hosts, self.pairs.get(rail, ()), self.switches, crc32(rail.encode()), usual.get(rail), few=0
            )
            for rail, hosts in self.hosts.items()
        }
        return {rail: pairs for rail, pairs in due.items() if pairs}

    def still_measured(self, rail: str, pairs: rounds.Pairs) -> rounds.Pairs:
        """Those of the pairs of which both hosts are still to be measured by that rail."""
        left = set(self.hosts.get(rail, ()))
        return tuple(pair for pair in pairs if left.issuperset(pair))

    def usual(self) -> dict[str, Usual]:
        """By rail with measurements, usual values and limits, learned from all rails of that rate and transport."""
        by_kind: dict[object, list[Pair]] = {}
        for rail, measured in self.pairs.items():
            by_kind.setdefault(self.kinds.get(rail), []).extend(measured)
        limits = {kind: limits_of(measured) for kind, measured in by_kind.items()}
        return {rail: limits[self.kinds.get(rail)] for rail in self.pairs}

    def suspects(self) -> list[Suspect]:
        """Ports, paths and switches to blame by all measurements so far, with the rail in each."""
        usual = self.usual()
        return [
            replace(suspect, rail=rail)
            for rail, measured in self.pairs.items()
            for suspect in suspects(measured, self.switches, usual[rail])
        ]

    def crossings(self, blamed: Iterable[Suspect]) -> list[tuple[RailPort, RailPort]]:
        """(port, port of another host) to be tried once more: each port that reaches nobody, as `blamed` has it, with
        two of its own rail and two of each other rail, those that work first.
        """
        dead = {(one.rail, host) for one in blamed if self.is_unreachable(one) for host in one.names}
        tried: list[tuple[RailPort, RailPort]] = []
        for port in sorted(dead):
            for rail, hosts in self.hosts.items():
                others = sorted((host for host in hosts if host != port[1]), key=lambda host: (rail, host) in dead)
                tried += [(port, (rail, host)) for host in others[:FEWEST_BAD]]
        return tried

    def paths(self, blamed: Iterable[Suspect]) -> list[tuple[RailPort, RailPort]]:
        """(port, port) both ways, to be tried once more, of each path between two of many hosts that is to blame."""
        ends = [[(one.rail, host) for host in one.names] for one in blamed if self.is_path(one)]
        return [way for a, b in ends for way in ((a, b), (b, a))]

    def is_path(self, suspect: Suspect) -> bool:
        """True if the suspect is one path of many on its rail, by which no connection came about."""
        return suspect.measure == "reach" and len(suspect.names) == 2 and not self.is_unreachable(suspect)

    def is_unreachable(self, suspect: Suspect) -> bool:
        """True if the suspect is a port that reaches none of its rail, or the path between the only two of a rail.

        Not a port that reaches others and is not reached, nor one path of many: what it reaches besides clears neither.
        """
        if suspect.measure != "reach" or suspect.kind == "switch":
            return False
        return len(self.hosts[suspect.rail]) == 2 or (len(suspect.names) == 1 and suspect.way != "to")


Crossings = Mapping[RailPort, Sequence[tuple[str, str]]]
"""By port that was tried once more: each rail that it tried to reach, and what became of it: ``connected``, ``refused``
(the other host answers, but not to us), ``failed`` (its own machine could not even try) or another outcome.
"""


def conclude(blamed: Iterable[Suspect], crossings: Crossings, plan: RailPlan) -> list[Suspect]:
    """The suspects after unreachable ports were tried once more: one that reaches another rail has that rail as its
    `network`. Ports that reach their own rail now, or that are `unjudged`, are left out; a host whose ports are all bad
    is one suspect.
    """
    unknown = unjudged(blamed, crossings, plan)
    out: list[Suspect] = []
    for suspect in blamed:
        ends = [(suspect.rail, host) for host in suspect.names] if suspect.measure == "reach" else []
        tried = [crossings.get(end, ()) for end in ends if plan.is_unreachable(suspect)]
        if any(end in unknown for end in ends) or any(suspect.rail in _reached(outcomes) for outcomes in tried):
            continue
        host, network = _other_network(ends, crossings)
        names = tuple(sorted(suspect.names, key=lambda name: name != host)) if network else suspect.names
        out.append(replace(suspect, names=names, network=network))
    return [replace(one, words=sentence(one)) for one in _merged(out, plan.hosts)]


def unjudged(blamed: Iterable[Suspect], crossings: Crossings, plan: RailPlan) -> dict[RailPort, str]:
    """Reason by port that reaches nobody and cannot be judged: it, or its machine, went away; or, of RDMA ports, a
    firewall rejects TCP (RDMA would pass), or no two of the rail reach each other (a network that isolates machines).
    """
    why: dict[RailPort, str] = {}
    for suspect in blamed:
        rail = suspect.rail
        ends = [(rail, host) for host in suspect.names] if suspect.measure == "reach" else []
        if rail in plan.cards and len(suspect.names) > 2:
            why |= dict.fromkeys(ends, f"no two of {len(ends)} machines reach each other by {{rail}}")
        for end in ends if plan.is_unreachable(suspect) else ():
            tried = crossings.get(end, ())
            if tried and all(outcome == "failed" for _, outcome in tried):
                why[end] = "{rail} of {host} went away while it was measured"
            elif rail in plan.cards and (rail, "refused") in tried and not _other_network([end], crossings)[1]:
                why[end] = "{rail} on {host}: packets pass, but a firewall turns TCP away, and not RDMA"
    return why


def _other_network(ends: Sequence[RailPort], crossings: Crossings) -> tuple[str, str]:
    """(host, rail) of the first of these ports that reached exactly one rail of those that it tried; ``("", "")`` if
    none did. `crossings` has what each port tried; its own rail is not left out.
    """
    elsewhere = [(host, *_reached(crossings.get((rail, host), ()))) for rail, host in ends]
    host, network = next((one for one in elsewhere if len(one) == 2), ("", ""))
    return host, network


def _all_connected(path: Suspect, again: Crossings) -> bool:
    """True if both ends of the path were tried once more, and each connection came about."""
    tried = [again.get((path.rail, host), ()) for host in path.names]
    return all(tried) and all(outcome == CONNECTED for outcomes in tried for _, outcome in outcomes)


def _reached(tried: Sequence[tuple[str, str]]) -> set[str]:
    """The rails in these (rail, outcome) whose outcome is ``connected``."""
    return {rail for rail, outcome in tried if outcome == CONNECTED}


def _merged(blamed: Iterable[Suspect], hosts: Mapping[str, Sequence[str]]) -> list[Suspect]:
    """The suspects; a host of which all ports are to blame alike is one: ``each of 8 ports``."""
    alike: dict[tuple[object, ...], list[Suspect]] = {}
    for one in blamed:
        alone = one.rail if one.kind != "host" or one.network else ""
        alike.setdefault((one.kind, one.names, one.way, one.measure, alone), []).append(one)
    return [one for same in alike.values() for one in _of_one_host(same, hosts)]


def _of_one_host(same: list[Suspect], hosts: Mapping[str, Sequence[str]]) -> list[Suspect]:
    """One suspect ``each of N ports``, with the best value, if these are all ports of one host; else as they are."""
    ports = sum(same[0].names[0] in of for of in hosts.values())
    if len(same) == 1 or len(same) < ports:
        return same
    best = max(same, key=lambda one: one.value or 0.0)
    return [replace(best, rail=f"each of {ports} ports", pairs=sum(one.pairs for one in same))]


# ---- The coordinator's stage ----


def measure_rails(
    meeting: Meeting,
    leaders: Sequence[JoinedRank],
    found: MeetingResults,
    limits: Limits,
    until: float,
    tell: Callable[[str], None],
    rdma: bool,
) -> None:
    """Measure each network port of machines with several alone, until `until` (monotonic) at the latest or a stop, and
    write the results to `found.rails` and `found.suspects`. With `rdma` by RDMA where all of a rail have ib_write_bw.
    `tell` is called with what is done now.
    """
    result = found.rails
    result.ports = ports = _announced(leaders)
    if not ports:
        return
    result.unmeasured = dict(_missing_ports(ports, [joined.host for joined in leaders]))
    stage = _Stage(meeting, leaders, found, limits, rdma)
    if stage.plan.hosts:
        tell(f"{len(stage.plan.hosts)} network ports of each machine connect")
        stage.connect()
    for number in range(1, MOST_ROUNDS + 1):
        for rail, due in stage.plan.round(number).items():
            pairs = stage.plan.still_measured(rail, due)
            if not pairs:
                continue
            if meeting.stop.is_set() or time.monotonic() + limits.flow + 1 > until:
                break
            tell(f"{rail}, round {number}: {len(pairs)} pairs measure")
            stage.measure(rail, number, pairs)
    for rail in sorted(stage.by_rdma):  # once all is known by the memory of the hosts
        for pairs in stage.pairs_for_gpu_memory(rail):
            if meeting.stop.is_set() or time.monotonic() + 2 * (limits.flow + 1) > until:
                break
            tell(f"{rail}, from the memory of GPUs: {len(pairs)} pairs measure")
            stage.measure_gpu_memory(rail, pairs)
    stage.conclude()


def _announced(leaders: Iterable[JoinedRank]) -> dict[str, dict[str, Port]]:
    """Ports by rail, then by host, as the leading ranks announced them when they joined."""
    ports: dict[str, dict[str, Port]] = {}
    for joined in leaders:
        for message in joined.hello.get("ports", ()):
            port = Port(**{name: message[name] for name in asdict(Port("")) if name in message})
            ports.setdefault(port.rail, {})[joined.host] = port
    return ports


def _missing_ports(ports: Mapping[str, Mapping[str, Port]], hosts: Sequence[str]) -> Iterator[tuple[RailPort, str]]:
    """(port, why it is not measured) for ports that some of the machines lack, and for the only port of its rail."""
    for rail, of in ports.items():
        for host in hosts:
            if host not in of:
                yield (rail, host), f"{{rail}} on {{host}}: none that is up ({len(of)} of {len(hosts)} machines have)"
        if len(of) == 1:
            yield (rail, next(iter(of))), "{rail} on {host}: no other machine has one that is up"


class _Stage:
    """The coordinator's measurement of all rails, each port alone."""

    def __init__(
        self, meeting: Meeting, leaders: Sequence[JoinedRank], found: MeetingResults, limits: Limits, rdma: bool
    ) -> None:
        """Choose the rails to be measured and by what; ports that cannot be are noted as unmeasured."""
        self._meeting, self._leaders, self._found, self._limits = meeting, leaders, found, limits
        self._ports = {rail: of for rail, of in found.rails.ports.items() if len(of) > 1}
        self._rdma = {rail for rail, of in self._ports.items() if rdma and all(map(_has_perftest, of.values()))}
        several = {rail: hosts for rail in self._ports if len(hosts := self._measurable_hosts(rail)) > 1}
        self.plan = RailPlan(several, found.switches, {rail: self._kind(rail) for rail in several})
        self.plan.cards = frozenset(rail for rail in several if any(port.number for port in self._ports[rail].values()))
        self._links: list[LinkSeen] = []
        self._counted, self._began = self._counters(), time.monotonic()
        self._measuring: dict[str, Measuring] = {}

    def _measurable_hosts(self, rail: str) -> list[str]:
        """Hosts of which that port can be measured: any by RDMA, else those that listen, of the more common IP version.
        Why another cannot is noted in the results.
        """
        of = self._ports[rail]
        if rail in self._rdma:
            return list(of)
        sixes = sum(":" in port.address for port in of.values()) > len(of) / 2
        hosts = [host for host, port in of.items() if port.port and (":" in port.address) == sixes]
        for host in [host for host in of if host not in hosts]:
            why = f"most others are measured by IPv{6 if sixes else 4}" if of[host].port else of[host].because
            self._found.rails.unmeasured.setdefault((rail, host), f"{{rail}} on {{host}}: {why}")
        return hosts

    def _kind(self, rail: str) -> tuple[object, bool]:
        """What rails have in common that are compared: (the rate in Gbit/s, if known and the same for all ports of the
        rail, else the rail's name; whether it is measured by RDMA).
        """
        rates = {port.gbps for port in self._ports[rail].values()}
        return (rates.pop() if len(rates) == 1 else None) or rail, rail in self._rdma

    def connect(self) -> None:
        """Have each port connect to its peers, and prepare each rail's measurement; pairs that fail are not
        measured.
        """
        self._links = by_each_port(self._meeting, self._leaders, self._ports, self._limits.connect)
        self._measuring = {rail: self._new_measuring(rail) for rail in self.plan.hosts}

    def _new_measuring(self, rail: str) -> Measuring:
        """A new measurement of that rail, by RDMA or TCP."""
        kind = RdmaMeasuring if rail in self._rdma else Measuring
        own = [link for link in self._links if link.used_by == rail]
        return kind(self._meeting, self._leaders, own, self._limits.flow, rail, self._ports[rail])

    def measure(self, rail: str, number: int, pairs: rounds.Pairs) -> None:
        """Measure these pairs of hosts by that rail's ports and record them; if ib_write_bw fails, by TCP where
        addresses allow.
        """
        measuring = self._measuring[rail]
        measuring.run_round(number, pairs)
        if isinstance(measuring, RdmaMeasuring) and measuring.failed:
            self._leave_rdma(rail, measuring.failed)
            if rail not in self.plan.hosts:
                return
            self._measuring[rail].run_round(number, self.plan.still_measured(rail, pairs))
        self.plan.pairs[rail] = self._measuring[rail].pairs

    @property
    def by_rdma(self) -> set[str]:
        """Rails that are measured by RDMA and have results."""
        return self._rdma & self.plan.pairs.keys()

    def pairs_for_gpu_memory(self, rail: str) -> list[rounds.Pairs]:
        """For each of the first two rounds, those of its pairs of hosts whose ports both have a GPU beside them."""
        measured, ports = self.plan.pairs.get(rail, ()), self._ports[rail]
        rounds_of = [[(one.a, one.b) for one in measured if one.round == number] for number in (1, 2)]
        return [tuple(pair for pair in pairs if all(ports[host].gpu for host in pair)) for pairs in rounds_of if pairs]

    def measure_gpu_memory(self, rail: str, pairs: rounds.Pairs) -> None:
        """Record the rates between the memory of GPUs in both directions of these pairs; why a host fails is noted.
        Does nothing by TCP, nor after a failure.
        """
        measuring, result = self._measuring[rail], self._found.rails
        for ways in (pairs, [pair[::-1] for pair in pairs]):
            if isinstance(measuring, RdmaMeasuring) and not measuring.failed:
                rates = measuring.write_rates(ways, gpu=True)
                result.gpu_memory.update({(rail, *way): rate for way, rate in rates.items()})
                for host, why in measuring.failed.items():
                    result.unmeasured[rail, host] = f"{{rail}} on {{host}} from GPU memory: {PERFTEST} says: {why}"

    def _leave_rdma(self, rail: str, failed: Mapping[str, str]) -> None:
        """Use TCP from now on for this rail and for those by RDMA that have no result yet; machines without an address
        leave the plan. `failed` maps machines to reasons, of which the first is noted.
        """
        host, why = next(iter(failed.items()))
        self._found.rails.unmeasured[rail, host] = f"{{rail}} on {{host}} by RDMA: {PERFTEST} says: {why}"
        untried = {other for other in self._rdma if other == rail or not self.plan.pairs.get(other)}
        self._rdma -= untried
        hosts = {each: self._measurable_hosts(each) if each in untried else of for each, of in self.plan.hosts.items()}
        self.plan.hosts = {each: of for each, of in hosts.items() if len(of) > 1}
        self._measuring |= {each: self._new_measuring(each) for each in self.plan.hosts if each in untried}
        self.plan.kinds = {each: self._kind(each) for each in self.plan.hosts}

    def conclude(self) -> None:
        """Record counters, pairs, usual rates, suspects and why ports were not measured, after ports that reach nobody
        and single paths were tried once more.
        """
        result = self._found.rails
        result.gains = dict(self._gains(time.monotonic() - self._began))
        blamed = [replace(one, rdma=one.rail in self._rdma) for one in self.plan.suspects()]
        again = self._cross(self.plan.paths(blamed))  # a busy machine may miss one connection of hundreds
        blamed = [one for one in blamed if not (self.plan.is_path(one) and _all_connected(one, again))]
        crossings = self._cross(self.plan.crossings(blamed))
        result.suspects = tuple(conclude(blamed, crossings, self.plan))
        self._found.suspects += result.suspects
        result.rdma = frozenset(self._rdma)
        result.usual = {rail: usual.gbps for rail, usual in self.plan.usual().items() if usual.gbps}
        result.pairs = [pair for measured in self.plan.pairs.values() for pair in measured]
        known = {
            (pair.rail, host)
            for pair in result.pairs
            if any(way.outcome is not None or way.gbps is not None for _, _, way in pair.directions)
            for host in (pair.a, pair.b)
        }
        result.unmeasured |= unjudged(blamed, crossings, self.plan)
        begun = {rail for rail, _ in known}
        for rail, host in ((rail, host) for rail, hosts in self.plan.hosts.items() for host in hosts):
            if (rail, host) not in known | result.unmeasured.keys():
                where = " on {host}" if rail in begun else ""
                result.unmeasured[rail, host] = f"no measurement of {{rail}}{where} came to an end in time"

    def _counters(self) -> dict[RailPort, Mapping[str, int]]:
        """Current error counters (``errors``, ``discards``) by port, asked of the leading ranks; missing without
        answer.
        """
        asked = {joined.rank: {"task": "counters"} for joined in self._leaders if joined.hello.get("ports")}
        answers = self._meeting.ask(asked, _COUNTERS_SECONDS)
        hosts = {joined.rank: joined.host for joined in self._leaders}
        return {
            (rail, hosts[rank]): counts
            for rank, answer in answers.items()
            for rail, counts in answer.get("counters", {}).items()
        }

    def _gains(self, seconds: float) -> Iterator[tuple[RailPort, Gain]]:
        """(port, increase of its counters since the stage began): 0 for one that was reset, None if not read twice."""
        for port, after in self._counters().items():
            before = self._counted.get(port, {})
            rose = {kind: max(0, after[kind] - count) for kind, count in before.items() if kind in after}
            yield port, Gain(seconds, rose.get("errors"), rose.get("discards"))

    def _cross(self, tried: Sequence[tuple[RailPort, RailPort]]) -> Crossings:
        """By port, (rail that it tried, outcome) of a connection to each given port of another host; a port that does
        not listen is not tried.
        """
        ranks = {joined.host: joined.rank for joined in self._leaders}
        links: dict[int, list[LinkSeen]] = {}
        for (rail, host), (other, target) in tried:
            own, there = self._ports[rail][host], self._ports[other][target]
            if own.port and there.port:
                link = link_by_port(host, own, target, there, other)
                links.setdefault(ranks[host], []).append(link)
        rail_of = {(host, port.place): rail for rail, of in self._ports.items() for host, port in of.items()}
        outcomes: dict[RailPort, list[tuple[str, str]]] = {}
        for link in connect_all(self._meeting, links, self._limits.connect):
            outcome = "refused" if link.answers else link.outcome
            outcomes.setdefault((rail_of[link.source, link.by], link.source), []).append((link.used_by, outcome))
        return outcomes


def _has_perftest(port: Port) -> bool:
    """True if it is an RDMA port of a machine that has ib_write_bw."""
    return port.perftest and port.number > 0


# ---- RDMA by one port ----


class RdmaMeasuring(Measuring):
    """Measures by RDMA; whether two hosts reach each other is known from TCP connections by the same port."""

    def __init__(self, *how: Any) -> None:
        """`how` as of `Measuring`."""
        super().__init__(*how)
        self.failed: dict[str, str] = {}
        """What ib_write_bw said, by machine on which it failed by itself."""

    def _address(self, direction: SourceTarget) -> tuple[str, int] | None:
        """(address, port) at which the target host listens for the job, by which perftest's two sides find each other;
        None if it listens nowhere.
        """
        listeners = self._joined_ranks[direction[1]].listeners
        return next(((str(own["address"]), int(own["port"])) for own in listeners if own.get("port")), None)

    def _measured_flows(self, ways: Sequence[SourceTarget]) -> Mapping[SourceTarget, Mapping[str, Any]]:
        """Results of the pairs, measured one direction after the other by ib_write_bw: ``outcome``, ``words``,
        ``gbps_out``, ``gbps_in``. A pair is missing where either direction failed.
        """
        out = self.write_rates(ways)
        back = self.write_rates([(there, here) for here, there in ways])
        rates = {way: (out.get(way), back.get(way[::-1])) for way in ways}
        return {
            way: {"outcome": CONNECTED, "words": "", "gbps_out": one, "gbps_in": other}
            for way, (one, other) in rates.items()
            if one is not None and other is not None
        }

    def write_rates(self, ways: Sequence[SourceTarget], gpu: bool = False) -> dict[SourceTarget, float]:
        """Gbit/s at which each first host wrote to the second by ib_write_bw, with `gpu` from and to GPU memory;
        missing where that failed. The first reason of each host is kept in `failed`.
        """
        tasks: dict[int, Message] = {}
        for host, target in ways:
            server, _ = self._address((host, target)) or ("", 0)
            tasks[self._rank(target)] = self._task(target, "", gpu)
            tasks[self._rank(host)] = self._task(host, server, gpu)
        answers = self._meeting.ask(tasks, self._seconds + 1)
        for host in dict.fromkeys(host for way in ways for host in way):
            if why := answers.get(self._rank(host), {}).get("why"):
                self.failed.setdefault(host, str(why))
        rates = {way: answers.get(self._rank(way[0]), {}).get("gbps") for way in ways}
        return {way: float(rate) for way, rate in rates.items() if rate is not None}

    def _task(self, host: str, server: str, gpu: bool) -> Message:
        """The task ``perftest`` for a host: to write to the address `server`, or, if that is "", to listen."""
        port = self._ports[host]
        where = {"device": port.rail.partition(":")[0], "number": port.number, "gpu": port.gpu if gpu else ""}
        return {"task": "perftest", **where, "server": server, "seconds": self._seconds}
