"""What the hub has done, stage after stage: all come, connect, measure in rounds of pairs, tell of their own checks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.cluster.preflight import ROUNDS, Limits, local, rounds
from gpudoctor.cluster.preflight.culprits import suspects
from gpudoctor.cluster.preflight.meeting import SILENT, TERMINATED, Guest, Meeting
from gpudoctor.cluster.preflight.pairs import CONFIRMED, CONNECTED, Direction, Pair
from gpudoctor.cluster.preflight.results import LinkSeen, MeetingResults, RankSeen
from gpudoctor.cluster.preflight.wire import Message
from gpudoctor.core.about import __version__
from gpudoctor.core.fact import Unread
from gpudoctor.kernels.canary import canary_rows

Tell = Callable[[str], None]
"""Hears what is done now."""


class Stages:
    """The meeting's stages in order. `found` is kept up to date, so that an interrupted check still has results."""

    def __init__(self, meeting: Meeting, results: MeetingResults, limits: Limits, tell: Tell, level: str) -> None:
        """`results` is filled by the stages; `tell` receives each stage's description."""
        self.meeting = meeting
        self.found = results
        self._limits = limits
        self._level = level
        self._tell = tell
        self._began = time.monotonic()
        self._waited = False
        """Whether all ranks that are not here have had their time."""

    def run_all(self) -> None:
        """Run all stages; those after an interruption are skipped."""
        self._wait_for_ranks()
        leaders = self.meeting.leaders
        self.found.switches = {guest.host: str(guest.hello["switch"]) for guest in leaders if guest.hello.get("switch")}
        if len(leaders) > 1 and self._goes_on:
            self._connect(leaders)
        if len(leaders) > 1 and self._goes_on:
            self._measure(leaders)
        self._await_own_checks(leaders)
        if (self._limits.collective or self._limits.canary) and self._goes_on:
            self._measure_collectives()

    def record_ranks(self) -> None:
        """Record the present state of every rank, and the time taken, in `found`."""
        self.found.ranks = rank_states(self.meeting, self._limits.come if self._waited else None)
        self.found.seconds = time.monotonic() - self._began

    @property
    def _goes_on(self) -> bool:
        """True unless the meeting was told to stop."""
        return not self.meeting.stop.is_set()

    def _wait_for_ranks(self) -> None:
        """Wait until all ranks have joined or their time is up; record how each reached the hub's port."""
        world = self.meeting.place.world
        self._tell(f"waiting for {world} ranks")
        self._waited = self.meeting.wait_until(lambda: self.meeting.complete, self._limits.come) or self._goes_on
        self.found.links += to_the_hub(self.meeting)

    def _connect(self, leaders: Sequence[Guest]) -> None:
        """Have the machines connect to each other, and record the links."""
        self._tell(f"{len(leaders)} machines connect to each other")
        self.found.links += to_each_other(self.meeting, leaders, self._limits.connect)

    def _measure(self, leaders: Sequence[Guest]) -> None:
        """Measure in rounds of pairs; record pairs, suspects and the largest clock difference."""
        measuring = Measuring(self.meeting, leaders, self.found.links, self._limits.flow)
        self.found.pairs, self.found.flows = measuring.pairs, measuring.flows
        measuring.run_rounds(self.found.switches, self._tell)
        self.found.links += measuring.links
        self.found.suspects = suspects(self.found.pairs, self.found.switches)
        offsets = {way: flow.get("clock_offset_ms") for way, flow in self.found.flows.items()}
        known = {way: float(offset) for way, offset in offsets.items() if offset is not None}
        if furthest := furthest_clock(known, [guest.host for guest in leaders]):
            self.found.skew_ms, self.found.skew_host = furthest

    def _await_own_checks(self, leaders: Sequence[Guest]) -> None:
        """Wait for each machine's own diagnosis document and record it; also which backend they would use."""
        self._tell("waiting for the machines' own checks")
        self.meeting.wait_until(
            lambda: all(
                {"document", "failed"} & set(leader.reports) or leader.ended or leader.silent > SILENT
                for leader in leaders
            ),
            self._limits.check + self._limits.waking,
        )
        for guest in leaders:
            document = guest.reports.get("document")
            if isinstance(document, dict):
                self.found.documents[guest.host] = document
        gpus = [document["facts"].get("gpu") for document in self.found.documents.values()]
        if gpus:
            self.found.backend = "nccl" if any(isinstance(rows, list) and rows for rows in gpus) else "gloo"

    def _measure_collectives(self) -> None:
        """Run collectives, the canary's training, or both over all ranks and record the results."""
        limits = self._limits
        self._tell("collectives over all ranks" if limits.collective else "some steps of training over all ranks")
        shut = any(not link.works for link in self.found.links)
        seconds = limits.collective + limits.canary
        found = local.run_collective(self.meeting, self._level, seconds, shut, bool(limits.canary))
        rows = local.rows(found)
        if limits.collective or isinstance(rows, tuple):  # of the canary alone: that it failed
            self.found.collective = rows
        if limits.canary:
            self.found.canary = Unread(found) if isinstance(found, str) else canary_rows(found)


# ---- Whose clock is away from the others', by comparisons of two at a time ----


def furthest_clock(offsets: Mapping[tuple[str, str], float], hosts: Sequence[str]) -> tuple[float, str] | None:
    """(largest difference from the median clock in ms, its host); None if fewer than two clocks are comparable.
    `offsets` maps (a, b) to the clock of b minus that of a, in ms.
    """
    clocks = _relative_clocks(offsets, hosts)
    if len(clocks) < 2:
        return None
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    host = max(clocks, key=lambda name: abs(clocks[name] - middle))
    return abs(clocks[host] - middle), host


def _relative_clocks(offsets: Mapping[tuple[str, str], float], hosts: Iterable[str]) -> dict[str, float]:
    """Offset in ms of each clock from the first host's, through chains of comparisons; unconnected hosts are left
    out.
    """
    known: dict[str, float] = {}
    near: dict[str, list[tuple[str, float]]] = {}
    for (a, b), offset in offsets.items():
        near.setdefault(a, []).append((b, offset))
        near.setdefault(b, []).append((a, -offset))
    for first in hosts:
        if near.get(first):
            known[first] = 0.0
            waiting = [first]
            while waiting:
                here = waiting.pop()
                for there, offset in near.get(here, ()):
                    if there not in known:
                        known[there] = known[here] + offset
                        waiting.append(there)
            break
    return known


# ---- Who reaches whom ----
# The job's own port as each machine saw it when it came, then machines to each other.

ALL_OF = 16
"""Machines up to which each connects to all others."""


def to_the_hub(meeting: Meeting) -> Iterator[LinkSeen]:
    """Outcome of reaching the job's own port, per machine.
    From the hub's machine only failures of name or route are given.
    """
    place = meeting.place
    for guest in meeting.leaders:
        for way in guest.hello.get("ways", ()):
            outcome = str(way["outcome"])
            blind = guest.host == place.host and outcome not in {"unresolved", "unroutable"}
            if way["port"] == place.port and not way["stranger"] and not blind:
                yield LinkSeen(
                    source=guest.host,
                    target=place.master if outcome == "unresolved" else place.host,
                    kind="rendezvous",
                    outcome=outcome,
                    words=str(way["words"]),
                    used_by="rendezvous",
                    address=place.master,
                    port=place.port,
                )


def to_each_other(meeting: Meeting, leaders: Sequence[Guest], seconds: float) -> list[LinkSeen]:
    """Links between machines: each connects to the addresses that others announce, all in parallel, within
    `seconds`.
    """
    known: list[LinkSeen] = []
    tried: dict[int, list[LinkSeen]] = {}
    for source, target in _connection_schedule(leaders):
        for ear in target.hello.get("ears", ()):
            link = _link_before_attempt(source.host, target.host, ear)
            (known if link.outcome else tried.setdefault(source.rank, [])).append(link)
    asked = {
        rank: {"task": "reach", "to": [{"address": link.address, "port": link.port} for link in links]}
        for rank, links in tried.items()
    }
    for rank, answer in meeting.ask(asked, seconds).items():
        known += [_with_outcome(link, reply) for link, reply in zip(tried[rank], answer.get("links", ()), strict=False)]
    return known


def _connection_schedule(ring: Sequence[Guest]) -> Iterator[tuple[Guest, Guest]]:
    """(source, target) machines: all pairs up to `ALL_OF` machines, else those 1, 2, 4, 8, ... places on."""
    count = len(ring)
    steps = range(1, count) if count <= ALL_OF else [1 << power for power in range((count - 1).bit_length())]
    for at, host in enumerate(ring):
        for step in steps:
            yield host, ring[(at + step) % count]


def _link_before_attempt(source: str, target: str, ear: Mapping[str, Any]) -> LinkSeen:
    """Link to an announced address; its outcome is ``""`` unless it is known to be unreachable (loopback, no
    address).
    """
    outcome, words = "", ""
    if ear.get("loopback"):
        outcome, words = "loopback", str(ear.get("because") or "a loopback leads nowhere from elsewhere")
    elif not ear.get("port"):
        outcome = "failed" if ear.get("address") else "nowhere"
        words = str(ear.get("because") or "it does not listen")
    return LinkSeen(
        source=source,
        target=target,
        kind="peer",
        outcome=outcome,
        words=words,
        used_by=", ".join(ear.get("used_by", ())),
        address=str(ear.get("address", "")),
        port=int(ear.get("port") or 0),
        interface=str(ear.get("interface", "")),
    )


def _with_outcome(link: LinkSeen, reply: Mapping[str, Any]) -> LinkSeen:
    """The link with the outcome, words and time of the attempt."""
    words = str(reply.get("words", "it did not say"))
    return replace(link, outcome=str(reply.get("outcome", "failed")), words=words, ms=reply.get("ms"))


# ---- Rounds of disjoint pairs ----
# Two machines at a time measure what passes between them, all pairs at the same time.

BUSY = 0.5
"""Of the time: a thread that had or wanted a processor for longer was not waiting for the network."""
Way = tuple[str, str]
"""From a machine to another."""


class Measuring:
    """Measures hosts in rounds of pairs: `pairs` and `flows` are results, `links` the connections that failed."""

    def __init__(self, meeting: Meeting, leaders: Sequence[Guest], links: Sequence[LinkSeen], seconds: float) -> None:
        """`links` are earlier connection attempts between machines; `seconds` limits one measurement."""
        self.pairs: list[Pair] = []
        self.flows: dict[Way, Mapping[str, Any]] = {}
        self._failed: list[LinkSeen] = []
        self._meeting = meeting
        self._seconds = seconds
        self._guests = {guest.host: guest for guest in leaders}
        peers = [link for link in links if link.kind == "peer"]
        self._open = {(peer.source, peer.target): peer for peer in peers if peer.works}
        self._shut = {(peer.source, peer.target): peer for peer in peers if not peer.works}

    def run_rounds(self, switches: Mapping[str, str], tell: Callable[[str], None]) -> None:
        """Run rounds until nothing is in doubt or `ROUNDS` are done; results are added to `pairs`."""
        for number in range(1, ROUNDS + 1):
            two = rounds.pairs_of_round(number, list(self._guests), self.pairs, switches)
            if not two:
                break
            tell(f"round {number}: {len(two)} pairs measure")
            self.pairs += self._round(number, two)

    @property
    def links(self) -> list[LinkSeen]:
        """Failed connections, one per direction.
        A single failure to a machine that was reached before, or talked in another pair, is ignored as a busy machine.
        """
        talked = {host for pair in self.pairs for host in (pair.a, pair.b) if pair.ms is not None}
        times = Counter(link.target for link in self._failed)
        sure = [
            link
            for link in self._failed
            if (link.source, link.target) not in self._open
            or (times[link.target] >= CONFIRMED and link.target not in talked)
        ]
        return list({(link.source, link.target): link for link in sure}.values())

    def _round(self, number: int, two: Sequence[tuple[str, str]]) -> list[Pair]:
        """Results of one round; each pair measures from whichever host can connect to the other."""
        ways = {pair: way for pair in two if (way := self._open_direction(*pair))}
        tasks = {self._guests[way[0]].rank: self._flow_task(way) for way in ways.values()}
        answers = self._meeting.ask(tasks, self._seconds + 1)
        for way in ways.values():
            flow = answers.get(self._guests[way[0]].rank, {}).get("flow")
            if isinstance(flow, dict):
                self._note_flow(way, flow, tasks[self._guests[way[0]].rank])
            else:
                self.flows.pop(way, None)
        return [self._pair_result(number, pair, ways.get(pair)) for pair in two]

    def _open_direction(self, a: str, b: str) -> Way | None:
        """The direction of a pair in which a connection is possible; None if there is none."""
        return next((way for way in ((a, b), (b, a)) if way not in self._shut and self._address(way)), None)

    def _address(self, direction: Way) -> tuple[str, int] | None:
        """(address, port) at which the target was reached, else where it listens for NCCL or Gloo; None if it does
        not.
        """
        if link := self._open.get(direction):
            return link.address, link.port
        ears = self._guests[direction[1]].hello.get("ears", ())
        return next(((str(ear["address"]), int(ear["port"])) for ear in ears if _is_reachable_listener(ear)), None)

    def _flow_task(self, direction: Way) -> Message:
        """Task message for measuring in that direction."""
        address, port = self._address(direction) or ("", 0)
        return {"task": "flow", "address": address, "port": port, "seconds": self._seconds}

    def _note_flow(self, direction: Way, flow: Mapping[str, Any], task: Message) -> None:
        """Store a measured flow; if it did not connect, record a failed link."""
        self.flows[direction] = flow
        if flow["outcome"] != CONNECTED:
            words, where = str(flow["words"]), (str(task["address"]), int(task["port"]))
            self._failed.append(LinkSeen(*direction, "peer", str(flow["outcome"]), words, "nccl", *where))

    def _pair_result(self, number: int, pair: tuple[str, str], direction: Way | None) -> Pair:
        """Pair with both directions, from the flow measured in `direction` (None: not measured)."""
        flow = self.flows.get(direction) if direction else None
        there, back = (self._direction(end, direction, flow) for end in (pair, pair[::-1]))
        return Pair(number, *pair, there, back, flow.get("ms") if flow else None)

    def _direction(self, end: Way, measured_from: Way | None, flow: Mapping[str, Any] | None) -> Direction:
        """Result of one direction `end` of a pair that was measured in `measured_from`; known failures to connect
        take precedence.
        """
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
            float(flow.get(f"busy_{side}") or 0.0) >= BUSY,
        )


def _is_reachable_listener(ear: Mapping[str, Any]) -> bool:
    """True if the announced listener has a port and is not a loopback."""
    return bool(ear.get("port")) and not ear.get("loopback")


# ---- The roll call: who is here, and what is wrong with whoever is not ----


def rank_states(meeting: Meeting, waited: float | None) -> list[RankSeen]:
    """State of every rank of the job, and of any other that joined. `waited`: seconds they had to join.
    `waited` is None if the check was interrupted before that time was up.
    """
    ranks = sorted({*range(meeting.place.world), *meeting.guests})
    return [_rank_seen(meeting, rank, waited) for rank in ranks]


def _rank_seen(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    """State of one rank; `waited` is how many seconds it had to join, None if that time was not up."""
    guest = meeting.guests.get(rank)
    if guest is None:
        return _missing(meeting, rank, waited)
    state, because = _state_of(guest, meeting.stop.is_set())
    if others := meeting.twice.get(rank):
        state, because = "twice", f"came more than once: from {' and from '.join(others)}"
    hello = guest.hello
    return RankSeen(
        rank=rank,
        state=state,
        host=guest.host,
        local_rank=_integer_or_none(hello.get("local_rank")),
        step=guest.step,
        because=because,
        world=_integer_or_none(hello.get("world")),
        nccl=str(guest.reports.get("nccl", "")),
        seconds=guest.silent,
        blames=state != "twice" and TERMINATED not in guest.reports,
    )


def _missing(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    """A rank without a guest: awaited if `waited` is None, else missing: it was turned away or never came."""
    place = meeting.place
    host = place.hosts[rank] if rank < len(place.hosts) else ""
    if waited is None:
        return RankSeen(rank, "awaited", host, because="had not come yet when the check was cut short")
    if why := meeting.unproven.get(rank):  # which is nobody's proof: it may change words, and blames no machine
        return RankSeen(rank, "missing", host, because=f"was turned away: {why}", blames=False)
    expected = f"; it belongs on {host}" if host else ""
    return RankSeen(rank, "missing", host, because=f"never came to {place.master} in {waited:.0f} s{expected}")


def _state_of(guest: Guest, cut: bool) -> tuple[str, str]:
    """(``here``, ``ended``, ``silent`` or ``failed``; explanation, ``""`` for ``here``). With `cut`, the hub was told
    to end, too, and a guest that was told to end still counts as ``here``.
    """
    if guest.ended and TERMINATED in guest.reports:
        if cut:  # so were we all
            return "here", ""
        return "ended", f"on {guest.host} was told to end while it did: {guest.step}"
    if guest.ended:
        return "ended", f"on {guest.host} ended while it did: {guest.step} ({guest.ended})"
    if guest.silent > SILENT:
        return "silent", f"on {guest.host} hangs: nothing heard for {guest.silent:.0f} s, last: {guest.step}"
    if guest.refused:
        version = guest.hello.get("version")
        other = f" (gpudoctor {version}, and {__version__} here)" if version != __version__ else ""
        return "failed", f"on {guest.host} could not do its part: {guest.refused}{other}"
    if guest.leads and "failed" in guest.reports:
        return "failed", f"on {guest.host}: {guest.reports['failed']}"
    return "here", ""


def _integer_or_none(value: Any) -> int | None:
    """The value if it is an int, else None."""
    return value if isinstance(value, int) else None
