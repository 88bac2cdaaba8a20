"""What machines measure between each other: who reaches whom, and in rounds of disjoint pairs what passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.cluster.preflight import MOST_ROUNDS, rounds
from gpudoctor.cluster.preflight.meeting import JoinedRank, Meeting
from gpudoctor.cluster.preflight.pairs import CONNECTED, FEWEST_BAD, Direction, Pair
from gpudoctor.cluster.preflight.results import LinkSeen, Port
from gpudoctor.cluster.preflight.wire import Message

# ---- Who reaches whom ----
# The job's own port as each machine saw it when it came, then machines to each other.

MOST_ALL_TO_ALL = 16
"""Machines up to which each connects to all others."""


def to_the_coordinator(meeting: Meeting) -> Iterator[LinkSeen]:
    """How each machine reached the job's port when it joined; of the coordinator's own only failures of name or
    route.
    """
    place = meeting.place
    for joined in meeting.leaders:
        for way in joined.hello.get("ways", ()):
            outcome = str(way["outcome"])
            blind = joined.host == place.host and outcome not in {"unresolved", "unroutable"}
            if way["port"] == place.port and not way["stranger"] and not blind:
                yield LinkSeen(
                    source=joined.host,
                    target=place.master if outcome == "unresolved" else place.host,
                    kind="rendezvous",
                    outcome=outcome,
                    words=str(way["words"]),
                    used_by="rendezvous",
                    address=place.master,
                    port=place.port,
                )


def to_each_other(meeting: Meeting, leaders: Sequence[JoinedRank], seconds: float) -> list[LinkSeen]:
    """Links between machines with their outcomes: each connects to the addresses others announce, all in parallel,
    within `seconds`; addresses known to lead nowhere are not tried.
    """
    known: list[LinkSeen] = []
    tried: dict[int, list[LinkSeen]] = {}
    for source, target in _connection_schedule(leaders):
        for listener in target.listeners:
            link = _link_before_attempt(source.host, target.host, listener)
            (known if link.outcome else tried.setdefault(source.rank, [])).append(link)
    return known + connect_all(meeting, tried, seconds)


def by_each_port(
    meeting: Meeting, leaders: Sequence[JoinedRank], ports: Mapping[str, Mapping[str, Port]], seconds: float
) -> list[LinkSeen]:
    """Links, with outcomes, between the same ports of two machines, each by that port alone; `ports`: rail, then
    host.
    """
    tried: dict[int, list[LinkSeen]] = {}
    for source, target in _connection_schedule(leaders):
        for rail, of in ports.items():
            own, other = of.get(source.host), of.get(target.host)
            if own and other and own.port and other.port:
                tried.setdefault(source.rank, []).append(link_by_port(source.host, own, target.host, other, rail))
    return connect_all(meeting, tried, seconds)


def link_by_port(source: str, own: Port, target: str, other: Port, used_by: str) -> LinkSeen:
    """The link from one machine's network port to another machine's, not tried yet."""
    place = {"address": other.address, "port": other.port, "interface": other.interface}
    return LinkSeen(source, target, "rail", "", "", used_by, **place, by=own.place)  # type: ignore[arg-type]


def connect_all(meeting: Meeting, tried: Mapping[int, Sequence[LinkSeen]], seconds: float) -> list[LinkSeen]:
    """The links that each rank (key of `tried`) tries, all at once, with their outcomes; missing without an answer."""
    asked = {
        rank: {
            "task": "reach",
            "to": [{"address": link.address, "port": link.port, "source": link.by} for link in links],
        }
        for rank, links in tried.items()
    }
    return [
        _with_outcome(link, reply)
        for rank, answer in meeting.ask(asked, seconds).items()
        for link, reply in zip(tried[rank], answer.get("links", ()), strict=False)
    ]


def _connection_schedule(ring: Sequence[JoinedRank]) -> Iterator[tuple[JoinedRank, JoinedRank]]:
    """(source, target) machines: all pairs up to `MOST_ALL_TO_ALL` machines, else those 1, 2, 4, 8, ... places on."""
    count = len(ring)
    steps = range(1, count) if count <= MOST_ALL_TO_ALL else [1 << power for power in range((count - 1).bit_length())]
    for at, host in enumerate(ring):
        for step in steps:
            yield host, ring[(at + step) % count]


def _link_before_attempt(source: str, target: str, listener: Mapping[str, Any]) -> LinkSeen:
    """Link to an announced address; outcome ``""``, or ``loopback``, ``failed``, ``nowhere`` if out of reach."""
    outcome, words = "", ""
    if listener.get("loopback"):
        outcome, words = "loopback", str(listener.get("because") or "a loopback leads nowhere from elsewhere")
    elif not listener.get("port"):
        outcome = "failed" if listener.get("address") else "nowhere"
        words = str(listener.get("because") or "it does not listen")
    return LinkSeen(
        source=source,
        target=target,
        kind="peer",
        outcome=outcome,
        words=words,
        used_by=", ".join(listener.get("used_by", ())),
        address=str(listener.get("address", "")),
        port=int(listener.get("port") or 0),
        interface=str(listener.get("interface", "")),
    )


def _with_outcome(link: LinkSeen, reply: Mapping[str, Any]) -> LinkSeen:
    """The link with the outcome, words and time of the attempt."""
    words = str(reply.get("words", "it did not say"))
    outcome = str(reply.get("outcome", "failed"))
    return replace(link, outcome=outcome, words=words, ms=reply.get("ms"), answers=reply.get("answers"))


# ---- Rounds of disjoint pairs ----
# Two machines at a time measure what passes between them, all pairs at the same time.

BUSY_SHARE = 0.5
"""Of the time: a thread that had or wanted a processor for longer was not waiting for the network."""
SourceTarget = tuple[str, str]
"""From a machine to another."""


class Measuring:
    """Measures hosts in rounds of pairs: `pairs` and `flows` are results, `links` the connections that failed."""

    def __init__(
        self,
        meeting: Meeting,
        leaders: Sequence[JoinedRank],
        links: Sequence[LinkSeen],
        seconds: float,
        rail: str = "",
        ports: Mapping[str, Port] | None = None,
    ) -> None:
        """`links` are earlier connection attempts between machines; `seconds` limits one measurement. With `rail` it is
        measured by that port of each machine alone; `ports` by machine.
        """
        self.pairs: list[Pair] = []
        self.flows: dict[SourceTarget, Mapping[str, Any]] = {}
        self._failed: list[LinkSeen] = []
        self._meeting = meeting
        self._seconds = seconds
        self._joined_ranks = {joined.host: joined for joined in leaders}
        self._rail, self._ports = rail, ports or {}
        peers = [link for link in links if link.kind == ("rail" if rail else "peer")]
        self._open = {(peer.source, peer.target): peer for peer in peers if peer.works}
        self._shut = {(peer.source, peer.target): peer for peer in peers if not peer.works}

    def run_rounds(self, switches: Mapping[str, str], tell: Callable[[str], None]) -> None:
        """Run rounds of pairs and add their results until nothing is in doubt or all are done; `tell` gets a line on
        each.
        """
        for number in range(1, MOST_ROUNDS + 1):
            two = rounds.pairs_of_round(number, list(self._joined_ranks), self.pairs, switches)
            if not two:
                break
            tell(f"round {number}: {len(two)} pairs measure")
            self.run_round(number, two)

    @property
    def links(self) -> list[LinkSeen]:
        """Connections that failed while pairs were measured, one per direction. Left out is one that worked before,
        unless two or more to that target failed and the target measured with nobody.
        """
        talked = {host for pair in self.pairs for host in (pair.a, pair.b) if pair.ms is not None}
        times = Counter(link.target for link in self._failed)
        sure = [
            link
            for link in self._failed
            if (link.source, link.target) not in self._open
            or (times[link.target] >= FEWEST_BAD and link.target not in talked)
        ]
        return list({(link.source, link.target): link for link in sure}.values())

    def run_round(self, number: int, two: Sequence[tuple[str, str]]) -> None:
        """Measure these pairs of hosts at once, each from whichever host can connect, and add their results."""
        ways = {pair: way for pair in two if (way := self._open_direction(*pair))}
        flows = self._measured_flows(list(ways.values()))
        for way in ways.values():
            self.flows.pop(way, None)
            if flow := flows.get(way):
                self.flows[way] = flow
                if flow["outcome"] != CONNECTED:
                    words, where = str(flow["words"]), self._address(way) or ("", 0)
                    self._failed.append(LinkSeen(*way, "peer", str(flow["outcome"]), words, "nccl", *where))
        self.pairs += [self._pair_result(number, pair, ways.get(pair)) for pair in two]

    def _measured_flows(self, ways: Sequence[SourceTarget]) -> Mapping[SourceTarget, Mapping[str, Any]]:
        """What each pair measured, asked of its first host; missing where no answer came."""
        answers = self._meeting.ask({self._rank(way[0]): self._flow_task(way) for way in ways}, self._seconds + 1)
        flows = {way: answers.get(self._rank(way[0]), {}).get("flow") for way in ways}
        return {way: flow for way, flow in flows.items() if isinstance(flow, dict)}

    def _rank(self, host: str) -> int:
        """Number of the rank that measures for a machine."""
        return self._joined_ranks[host].rank

    def _open_direction(self, a: str, b: str) -> SourceTarget | None:
        """The direction of a pair of hosts in which a connection is not known to fail; None if there is none."""
        return next((way for way in ((a, b), (b, a)) if way not in self._shut and self._address(way)), None)

    def _address(self, direction: SourceTarget) -> tuple[str, int] | None:
        """(address, port) where the target was reached, else where its port or its NCCL or Gloo listens; None if
        nowhere.
        """
        if link := self._open.get(direction):
            return link.address, link.port
        if self._rail:
            other = self._ports[direction[1]]
            return (other.address, other.port) if other.port else None
        listeners = self._joined_ranks[direction[1]].listeners
        reachable = (own for own in listeners if own.get("port") and not own.get("loopback"))
        return next(((str(own["address"]), int(own["port"])) for own in reachable), None)

    def _flow_task(self, direction: SourceTarget) -> Message:
        """Task ``flow`` for the first host of that direction."""
        address, port = self._address(direction) or ("", 0)
        task: Message = {"task": "flow", "address": address, "port": port, "seconds": self._seconds}
        return {**task, "source": self._ports[direction[0]].place} if self._rail else task

    def _pair_result(self, number: int, pair: tuple[str, str], direction: SourceTarget | None) -> Pair:
        """Pair with both directions, from the flow measured in `direction` (None: not measured)."""
        flow = self.flows.get(direction) if direction else None
        there, back = (self._direction(end, direction, flow) for end in (pair, pair[::-1]))
        ms = flow.get("ms") if flow and not self._rail else None  # a round trip is the host's rather than its port's
        return Pair(number, *pair, there, back, ms, self._rail)

    def _direction(
        self, end: SourceTarget, measured_from: SourceTarget | None, flow: Mapping[str, Any] | None
    ) -> Direction:
        """Result of a pair's direction `end`, measured in `measured_from`; known failures to connect come first."""
        shut = self._shut.get(end)
        measured = str(flow["outcome"]) if flow and (measured_from == end or flow["outcome"] == CONNECTED) else None
        outcome = shut.outcome if shut else measured
        if not flow:
            return Direction(outcome)
        side = "out" if measured_from == end else "in"
        sent = int(flow.get(f"segments_{side}") or 0)
        gbps = flow.get(f"gbps_{side}")
        return Direction(
            outcome,
            gbps,
            sent,
            round(sent * float(flow.get(f"retransmitted_{side}") or 0.0)),
            flow.get("stalled_above") if not gbps else None,
            float(flow.get(f"busy_{side}") or 0.0) >= BUSY_SHARE,
        )
