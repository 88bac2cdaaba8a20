"""Links between hosts by rail: each network port of a machine alone, paired with the same port of another machine.

An end is a port of a host, and all else is as for hosts: rounds of disjoint pairs, what is usual, who is to blame.
Ports of one name on all hosts are a rail, which has rounds of its own. In each round one rail measures after the other,
so that no port shares its machine's processors and PCIe lanes with another one; ports of equal rate are compared over
all rails, so that of two hosts the one port that differs is seen, and a rail that is slow as a whole.

A port that reaches none of its rail tries the other rails' ports. Where it reaches those of one of them, its cable is
in that rail's switch. Its sockets are bound to its interface: Linux takes what has no route there to be on the link.

Which ports are measured is what the job itself would send by: RDMA ports of the highest rate (those of NCCL_IB_HCA,
where it is set); without any, the interfaces that NCCL_SOCKET_IFNAME names. One port alone is no rail.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from zlib import crc32

from gpudoctor.cluster.links.server import Server
from gpudoctor.cluster.preflight import ROUNDS, Limits, rounds
from gpudoctor.cluster.preflight.culprits import suspects
from gpudoctor.cluster.preflight.measuring import Measuring, Way, by_each_port, connect_all, link_by_port
from gpudoctor.cluster.preflight.meeting import Guest, Meeting
from gpudoctor.cluster.preflight.pairs import CONFIRMED, CONNECTED, Pair, Suspect, limits_of, sentence
from gpudoctor.cluster.preflight.pairs import Limits as Usual
from gpudoctor.cluster.preflight.results import LinkSeen, MeetingResults, Port
from gpudoctor.cluster.preflight.wire import Message
from gpudoctor.core.fact import number_of, text_of, value_of
from gpudoctor.probes.rdma import DEVICES, port_rows
from gpudoctor.target import Target
from gpudoctor.target.child import run_child
from gpudoctor.target.network import Interface, nccl_choice, selected_names

RailPort = tuple[str, str]
"""A rail and a host: one port."""

# ---- Which ports measure each other, and which are to blame ----


@dataclass
class RailPlan:
    """Rounds of all rails and what they come to. `hosts` gives the hosts that have the port, by rail."""

    hosts: Mapping[str, Sequence[str]]
    switches: Mapping[str, str]
    kinds: Mapping[str, object]
    """By rail, its ports' own rate and whether it is measured by RDMA: rails alike in both are compared."""
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """By rail, all that was measured."""

    def round(self, number: int) -> dict[str, rounds.Pairs]:
        """Pairs of hosts of that round (from 1) by rail; rails of which nothing is in doubt are left out."""
        usual = self.usual()
        due = {
            rail: rounds.pairs_of_round(
                number, hosts, self.pairs.get(rail, ()), self.switches, crc32(rail.encode()), usual.get(rail), few=0
            )
            for rail, hosts in self.hosts.items()
        }
        return {rail: pairs for rail, pairs in due.items() if pairs}

    def usual(self) -> dict[str, Usual]:
        """What is usual, and what is bad, by rail: learned from all rails of its kind."""
        by_kind: dict[object, list[Pair]] = {}
        for rail, measured in self.pairs.items():
            by_kind.setdefault(self.kinds.get(rail), []).extend(measured)
        limits = {kind: limits_of(measured) for kind, measured in by_kind.items()}
        return {rail: limits[self.kinds.get(rail)] for rail in self.pairs}

    def suspects(self) -> list[Suspect]:
        """Ports, paths and switches to blame, with the rail in each."""
        usual = self.usual()
        return [
            replace(suspect, rail=rail)
            for rail, measured in self.pairs.items()
            for suspect in suspects(measured, self.switches, usual[rail])
        ]

    def crossings(self, blamed: Iterable[Suspect]) -> list[tuple[RailPort, RailPort]]:
        """(port, port of another host) to be tried once more: each port that reaches nobody, with two of its own rail
        and two of each other one, sound ones first.
        """
        dead = {(one.rail, host) for one in blamed if _is_unreachable(one) for host in one.names}
        tried: list[tuple[RailPort, RailPort]] = []
        for port in sorted(dead):
            for rail, hosts in self.hosts.items():
                others = sorted((host for host in hosts if host != port[1]), key=lambda host: (rail, host) in dead)
                tried += [(port, (rail, host)) for host in others[:CONFIRMED]]
        return tried


def _is_unreachable(suspect: Suspect) -> bool:
    """True if it is a port that reaches nobody of its rail; of two hosts, the path between their ports."""
    return suspect.measure == "reach" and suspect.kind != "switch" and len(suspect.names) <= 2


Crossings = Mapping[RailPort, Sequence[tuple[str, str]]]
"""By port that was tried once more: each rail that it tried to reach, and what became of it."""


def conclude(blamed: Iterable[Suspect], crossings: Crossings, hosts: Mapping[str, Sequence[str]]) -> list[Suspect]:
    """The suspects, knowing what ports that reach nobody of their rail reach elsewhere; `hosts` by rail.
    Left out are ports that reach their rail now, and those that are gone: their machine could not even try.
    """
    out: list[Suspect] = []
    for suspect in blamed:
        ends = [(suspect.rail, host) for host in suspect.names] if _is_unreachable(suspect) else []
        tried = [crossings.get(end, ()) for end in ends]
        if any(is_gone(outcomes) or suspect.rail in _reached(outcomes) for outcomes in tried):
            continue
        elsewhere = [(end[1], *_reached(outcomes)) for end, outcomes in zip(ends, tried, strict=True)]
        host, network = next((one for one in elsewhere if len(one) == 2), ("", ""))
        names = tuple(sorted(suspect.names, key=lambda name: name != host)) if network else suspect.names
        out.append(replace(suspect, names=names, network=network))
    return [replace(one, words=sentence(one)) for one in _merged(out, hosts)]


def is_gone(tried: Sequence[tuple[str, str]]) -> bool:
    """True if no attempt could even be made from the port."""
    return bool(tried) and all(outcome == "failed" for _, outcome in tried)


def _reached(tried: Sequence[tuple[str, str]]) -> set[str]:
    """Rails that were reached."""
    return {rail for rail, outcome in tried if outcome == CONNECTED}


def _merged(blamed: Iterable[Suspect], hosts: Mapping[str, Sequence[str]]) -> list[Suspect]:
    """The suspects; a host of which all ports are to blame alike is one, of no rail."""
    alike: dict[tuple[object, ...], list[Suspect]] = {}
    for one in blamed:
        alone = one.rail if one.kind != "host" or one.network else ""
        alike.setdefault((one.kind, one.names, one.way, one.measure, alone), []).append(one)
    return [one for same in alike.values() for one in _of_one_host(same, hosts)]


def _of_one_host(same: list[Suspect], hosts: Mapping[str, Sequence[str]]) -> list[Suspect]:
    """The suspects, which are ports of one host, as one where these are all of its ports."""
    ports = sum(same[0].names[0] in of for of in hosts.values())
    if len(same) == 1 or len(same) < ports:
        return same
    best = max(same, key=lambda one: one.value or 0.0)
    return [replace(best, rail="", pairs=sum(one.pairs for one in same))]


# ---- The hub's stage ----


def measure_rails(
    meeting: Meeting,
    leaders: Sequence[Guest],
    found: MeetingResults,
    limits: Limits,
    until: float,
    tell: Callable[[str], None],
    rdma: bool,
) -> None:
    """Measure the ports of machines that have several, each alone, until `until` (monotonic) at the latest, and record
    the results in `found`. With `rdma` by RDMA where all machines of a rail have ib_write_bw.
    """
    result = found.rails
    result.ports = ports = _announced(leaders)
    if not ports:
        return
    result.unmeasured = dict(_missing_ports(ports, [guest.host for guest in leaders]))
    stage = _Stage(meeting, leaders, found, limits, rdma)
    tell(f"{len(stage.plan.hosts)} network ports of each machine connect")
    stage.connect()
    for number in range(1, ROUNDS + 1):
        for rail, pairs in stage.plan.round(number).items():
            if meeting.stop.is_set() or time.monotonic() + limits.flow + 1 > until:
                break
            tell(f"{rail}, round {number}: {len(pairs)} pairs measure")
            stage.measure(rail, number, pairs)
    stage.conclude()


def _announced(leaders: Iterable[Guest]) -> dict[str, dict[str, Port]]:
    """Ports by rail, then by machine, as the machines announced them."""
    ports: dict[str, dict[str, Port]] = {}
    for guest in leaders:
        for message in guest.hello.get("ports", ()):
            port = Port(**{name: message[name] for name in asdict(Port("")) if name in message})
            ports.setdefault(port.rail, {})[guest.host] = port
    return ports


def _missing_ports(ports: Mapping[str, Mapping[str, Port]], hosts: Sequence[str]) -> Iterator[tuple[RailPort, str]]:
    """(port, why it is not measured) for ports that only some machines have."""
    for rail, of in ports.items():
        for host in hosts:
            if host not in of:
                yield (rail, host), f"{host} has no {rail} that is up ({len(of)} of {len(hosts)} machines have)"
        if len(of) == 1:
            yield (rail, next(iter(of))), f"no other machine has a {rail} that is up"


class _Stage:
    """What the hub does of it."""

    def __init__(
        self, meeting: Meeting, leaders: Sequence[Guest], found: MeetingResults, limits: Limits, rdma: bool
    ) -> None:
        """Choose the rails to be measured and by what; ports that cannot be are noted as unmeasured."""
        self._meeting, self._leaders, self._found, self._limits = meeting, leaders, found, limits
        self._ports = {rail: of for rail, of in found.rails.ports.items() if len(of) > 1}
        self._rdma = {rail for rail, of in self._ports.items() if rdma and all(map(_has_perftest, of.values()))}
        hosts: dict[str, list[str]] = {}
        for rail, of in self._ports.items():
            sixes = sum(":" in port.address for port in of.values()) > len(of) / 2
            for host, port in of.items():
                other = port.port and (":" in port.address) != sixes
                if rail in self._rdma or (port.port and not other):
                    hosts.setdefault(rail, []).append(host)
                else:
                    why = f"most others are measured by IPv{6 if sixes else 4}" if other else port.because
                    found.rails.unmeasured[rail, host] = f"{rail} on {host}: {why}"
        self.plan = RailPlan(
            {rail: names for rail, names in hosts.items() if len(names) > 1},
            found.switches,
            {rail: (_common_rate(of.values()) or rail, rail in self._rdma) for rail, of in self._ports.items()},
        )
        self._measuring: dict[str, Measuring] = {}

    def connect(self) -> None:
        """Have each port connect to its peers; who does not reach whom is not measured later."""
        links = by_each_port(self._meeting, self._leaders, self._ports, self._limits.connect)
        for rail in self.plan.hosts:
            kind = RdmaMeasuring if rail in self._rdma else Measuring
            own = [link for link in links if link.used_by == rail]
            ports = self._ports[rail]
            self._measuring[rail] = kind(self._meeting, self._leaders, own, self._limits.flow, rail, ports)

    def measure(self, rail: str, number: int, pairs: rounds.Pairs) -> None:
        """Measure these pairs of hosts by that port."""
        self._measuring[rail].run_round(number, pairs)
        self.plan.pairs[rail] = self._measuring[rail].pairs

    def conclude(self) -> None:
        """Try the ports that reach nobody once more, and record pairs, suspects and what was not measured."""
        result = self._found.rails
        blamed = [replace(one, rdma=one.rail in self._rdma) for one in self.plan.suspects()]
        crossings = self._cross(self.plan.crossings(blamed))
        result.suspects = tuple(conclude(blamed, crossings, self.plan.hosts))
        self._found.suspects += result.suspects
        result.rdma = frozenset(self._rdma)
        result.usual = {rail: usual.gbps for rail, usual in self.plan.usual().items() if usual.gbps}
        result.pairs = [pair for measured in self.plan.pairs.values() for pair in measured]
        known = {(pair.rail, host) for pair in result.pairs for host in _answered(pair)}
        for rail, host in ((rail, host) for rail, hosts in self.plan.hosts.items() for host in hosts):
            if is_gone(crossings.get((rail, host), ())):
                result.unmeasured[rail, host] = f"{rail} of {host} went away while it was measured"
            elif (rail, host) not in known:
                result.unmeasured[rail, host] = f"no measurement of {rail} on {host} came to an end in time"

    def _cross(self, tried: Sequence[tuple[RailPort, RailPort]]) -> Crossings:
        """What became of connecting from each port to ports of other hosts, whichever rail these are of."""
        ranks = {guest.host: guest.rank for guest in self._leaders}
        links: dict[int, list[LinkSeen]] = {}
        for (rail, host), (other, target) in tried:
            own, there = self._ports[rail][host], self._ports[other][target]
            if own.port and there.port:
                link = link_by_port(host, own, target, there, other)
                links.setdefault(ranks[host], []).append(link)
        rail_of = {(host, port.place): rail for rail, of in self._ports.items() for host, port in of.items()}
        outcomes: dict[RailPort, list[tuple[str, str]]] = {}
        for link in connect_all(self._meeting, links, self._limits.connect):
            outcomes.setdefault((rail_of[link.source, link.by], link.source), []).append((link.used_by, link.outcome))
        return outcomes


def _has_perftest(port: Port) -> bool:
    """True if it is an RDMA port of a machine that has ib_write_bw."""
    return port.perftest and port.number > 0


def _common_rate(ports: Iterable[Port]) -> float | None:
    """The rate in Gbit/s that all of the ports have; None if they differ or it is not known."""
    rates = {port.gbps for port in ports}
    return rates.pop() if len(rates) == 1 else None


def _answered(pair: Pair) -> Iterator[str]:
    """Hosts of the pair, if anything is known of it."""
    if any(way.outcome is not None or way.gbps is not None for _, _, way in pair.directions):
        yield from (pair.a, pair.b)


# ---- RDMA by one port, with perftest ----
# github.com/linux-rdma/perftest, 4.5 (Debian 12) to 26.04: one side listens and the other writes to its memory, so that
# two runs give the two directions. -q 4 and messages of 1 MiB fill a port of 400 Gb/s, as its maintainers advise.

_PERFTEST = "ib_write_bw"
_PERFTEST_PORT = 18515
"""TCP port by which its two sides find each other: perftest's own."""
_RATE = re.compile(r"BW average\[Gb/sec\][^\n]*\n\s*\d+\s+\d+\s+[\d.]+\s+(\d+\.\d+)")
_AGAIN = 0.2
"""Seconds until the writing side tries again whether the other one listens."""


def perftest_command(device: str, number: int, server: str = "") -> list[str]:
    """The command that measures by that port of an RDMA device for a second: writes to `server`, or listens."""
    words = [_PERFTEST, "-d", device, "-i", str(number), "-p", str(_PERFTEST_PORT), "-s", str(1 << 20), "-q", "4"]
    return [*words, "-D", "1", "-f", "0", "-F", "--report_gbits", *([server] if server else [])]


def perftest_rate(printed: str) -> float | None:
    """Average rate in Gbit/s that ib_write_bw printed; None if it printed none."""
    match = _RATE.search(printed)
    return float(match[1]) if match else None


def run_perftest(message: Mapping[str, Any]) -> Message:
    """Task: measure by one RDMA port: ``{"gbps": rate}`` of the side that writes, ``{"why": words}`` if it failed."""
    argv = perftest_command(str(message["device"]), int(message["number"]), str(message["server"]))
    until = time.monotonic() + float(message["seconds"])
    while True:
        try:
            answer = run_child(argv, max(0.0, until - time.monotonic()), os.environ)
        except OSError as error:
            return {"why": str(error)}
        rate = perftest_rate(answer.out)
        if rate is not None or not message["server"] or time.monotonic() + _AGAIN > until:
            return {"gbps": rate, "why": (answer.err.strip() or answer.how).splitlines()[-1]}
        time.sleep(_AGAIN)


class RdmaMeasuring(Measuring):
    """Measures by RDMA; whether two hosts reach each other by the port is what its TCP connections said."""

    def _address(self, direction: Way) -> tuple[str, int] | None:
        """(address, port) by which both sides of perftest find each other: where the target listens for the job."""
        ears = self._guests[direction[1]].hello.get("ears", ())
        return next(((str(ear["address"]), int(ear["port"])) for ear in ears if ear.get("port")), None)

    def _measured_flows(self, ways: Sequence[Way]) -> Mapping[Way, Mapping[str, Any]]:
        """Rates of both directions, one after the other; missing where one of them came to no end."""
        out = self._written(ways)
        back = self._written([(there, here) for here, there in ways])
        rates = {way: (out.get(way), back.get(way[::-1])) for way in ways}
        return {
            way: {"outcome": CONNECTED, "words": "", "gbps_out": one, "gbps_in": other}
            for way, (one, other) in rates.items()
            if one is not None and other is not None
        }

    def _written(self, ways: Sequence[Way]) -> dict[Way, float]:
        """Gbit/s that each first host writes to the second one; missing where that failed."""
        tasks: dict[int, Message] = {}
        for host, target in ways:
            server, _ = self._address((host, target)) or ("", 0)
            tasks[self._rank(target)] = self._task(target, "")
            tasks[self._rank(host)] = self._task(host, server)
        answers = self._meeting.ask(tasks, self._seconds + 1)
        rates = {way: answers.get(self._rank(way[0]), {}).get("gbps") for way in ways}
        return {way: float(rate) for way, rate in rates.items() if rate is not None}

    def _task(self, host: str, server: str) -> Message:
        """Task of one side: it writes to `server`, or listens."""
        port = self._ports[host]
        device = port.rail.partition(":")[0]
        return {"task": "perftest", "device": device, "number": port.number, "server": server, "seconds": self._seconds}


# ---- The ports of this machine ----


def own_ports(target: Target, settings: Mapping[str, str], among: Sequence[Interface]) -> list[Port]:
    """Ports of this machine to be measured one by one, not listened at yet; empty if it has less than two.
    `settings` are NCCL's (environment and nccl.conf), `among` the machine's interfaces.
    """
    up = {one.name: one for one in among if one.running}
    ports = list(_rdma_ports(target, settings, up)) if settings.get("NCCL_IB_DISABLE", "0") == "0" else []
    named = settings.get("NCCL_SOCKET_IFNAME", "")
    if named and not named.startswith("^") and not ports:
        choice = nccl_choice(among, settings)
        names = [name for name in (choice.interface, *choice.also) if name in up]
        ports = [Port(name, name, gbps=_interface_rate(target, name)) for name in names]
    if len(ports) < 2:
        return []
    interfaces = [up[port.interface] for port in ports if port.interface]
    return [_with_address(port, up[port.interface], interfaces) if port.interface else port for port in ports]


def _rdma_ports(target: Target, settings: Mapping[str, str], up: Mapping[str, Interface]) -> Iterator[Port]:
    """Active RDMA ports that NCCL may use, of the highest rate: slower ones are for storage and for logging in."""
    names = target.listing(DEVICES) if target.exists(DEVICES) else []
    rows = list(port_rows(target, selected_names(settings.get("NCCL_IB_HCA", ""), sorted(names))))
    active = [row for row in rows if text_of(row["state"]) == "ACTIVE" and number_of(row["rate_gbps"])]
    highest = max((number_of(row["rate_gbps"]) or 0.0 for row in active), default=0.0)
    devices = [text_of(row["device"]) for row in rows]
    for row in active:
        device, number = text_of(row["device"]), int(number_of(row["port"]) or 0)
        if number_of(row["rate_gbps"]) == highest:
            candidates = value_of(row["netdev"])
            interfaces = [str(name) for name in candidates] if isinstance(candidates, tuple) else []
            interface = next((name for name in interfaces if name in up and up[name].addresses), "")
            name = f"{device}:{number}" if devices.count(device) > 1 else device
            ours = shutil.which(_PERFTEST) is not None
            why = "no interface of it is up with an IP address"
            yield Port(name, interface, gbps=highest, number=number, perftest=ours, because=why)


def _with_address(port: Port, interface: Interface, others: Sequence[Interface]) -> Port:
    """The port with the address by which it is measured: its first one, IPv4 before IPv6. Where another port is in the
    same IPv4 network, Linux answers for an address by any of them (arp_ignore), so that it is a link-local IPv6 one.
    """
    first, *_ = interface.addresses
    shared = first.version == 4 and any(
        first.in_same_network(address.text) or address.in_same_network(first.text)
        for other in others
        if other.name != interface.name
        for address in other.addresses
        if address.version == 4
    )
    usable = [address for address in interface.addresses if not shared or address.text.startswith("fe80:")]
    if usable:
        return replace(port, address=usable[0].text.partition("%")[0])
    return replace(port, because="another port is in the same network, and it has no link-local IPv6 address")


def _interface_rate(target: Target, name: str) -> float | None:
    """Rate of an Ethernet interface in Gbit/s; None where the driver tells none."""
    try:
        speed = int(target.read(f"/sys/class/net/{name}/speed", 32))
    except (OSError, ValueError):
        return None
    return speed / 1000 if speed > 0 else None


def listen_at(port: Port, key: str, host: str) -> tuple[Port, Server | None]:
    """(port with the TCP port that we listen on there, its server), or with why we do not, and None."""
    if not port.address:
        return port, None
    try:
        server = Server(port.place, key, name=host, alone=True)
    except OSError as error:
        why = f"cannot listen on {port.address} by {port.interface} alone: {error.strerror or error}"
        return replace(port, because=why), None
    return replace(port, port=server.port), server
