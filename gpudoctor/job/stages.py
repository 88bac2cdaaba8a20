"""What the hub has done, stage after stage: all come, connect, measure in rounds of pairs, tell of their own checks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.job import collectives, membership
from gpudoctor.job.found import Found, LinkSeen
from gpudoctor.job.guest import Guest
from gpudoctor.job.meeting import SILENT, Meeting
from gpudoctor.job.pairing import rounds
from gpudoctor.job.pairing.culprits import suspects
from gpudoctor.job.pairing.evidence import CONFIRMED
from gpudoctor.job.pairing.pairs import CONNECTED, Direction, Pair
from gpudoctor.job.wire import Message

Tell = Callable[[str], None]
"""Hears what is done now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for each stage at most; a sound job takes a fraction of each."""

    come: float = 12.0
    connect: float = 6.0
    flow: float = 5.0
    check: float = 10.0
    waking: float = 35.0
    """What sleeping GPUs may need beyond `check`; a short budget gives this up first."""
    collective: float = 0.0
    """0: nobody imports torch."""

    @property
    def whole(self) -> float:
        """All of it, and what talking takes."""
        measuring = rounds.ROUNDS * (self.flow + 1)
        return self.come + self.connect + measuring + self.check + self.waking + self.collective + 5


class Stages:
    """The meeting's agenda. `found` holds what is known at any moment, should it be cut short."""

    def __init__(self, meeting: Meeting, found: Found, limits: Limits, tell: Tell, level: str) -> None:
        self.meeting = meeting
        self.found = found
        self._limits = limits
        self._level = level
        self._tell = tell
        self._began = time.monotonic()
        self._waited = False
        """Whether all ranks that are not here have had their time."""

    def all(self) -> None:
        """From the first to the last."""
        self._come()
        leaders = self.meeting.leaders
        self.found.switches = {one.host: str(one.hello["switch"]) for one in leaders if one.hello.get("switch")}
        if len(leaders) > 1 and self._goes_on:
            self._connect(leaders)
        if len(leaders) > 1 and self._goes_on:
            self._measure(leaders)
        self._check(leaders)
        if self._limits.collective and self._goes_on:
            self._collect()

    def note(self) -> None:
        """Who is here now, and what is wrong with the others."""
        self.found.ranks = membership.called(self.meeting, self._limits.come if self._waited else None)
        self.found.seconds = time.monotonic() - self._began

    @property
    def _goes_on(self) -> bool:
        """Whether nobody has cut it short."""
        return not self.meeting.stop.is_set()

    def _come(self) -> None:
        world = self.meeting.place.world
        self._tell(f"waiting for {world} ranks")
        self._waited = self.meeting.until(lambda: self.meeting.complete, self._limits.come) or self._goes_on
        self.found.links += to_the_hub(self.meeting)

    def _connect(self, leaders: Sequence[Guest]) -> None:
        self._tell(f"{len(leaders)} machines connect to each other")
        self.found.links += to_each_other(self.meeting, leaders, self._limits.connect)

    def _measure(self, leaders: Sequence[Guest]) -> None:
        measuring = Measuring(self.meeting, leaders, self.found.links, self._limits.flow)
        self.found.pairs, self.found.flows = measuring.pairs, measuring.flows
        measuring.all(self.found.switches, self._tell)
        self.found.links += measuring.links
        self.found.suspects = suspects(self.found.pairs, self.found.switches)
        offsets = {way: flow.get("clock_offset_ms") for way, flow in self.found.flows.items()}
        known = {way: float(offset) for way, offset in offsets.items() if offset is not None}
        if furthest := furthest_clock(known, [guest.host for guest in leaders]):
            self.found.skew_ms, self.found.skew_host = furthest

    def _check(self, leaders: Sequence[Guest]) -> None:
        self._tell("waiting for the machines' own checks")
        self.meeting.until(
            lambda: all(
                {"document", "failed"} & set(one.reports) or one.ended or one.silent > SILENT for one in leaders
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

    def _collect(self) -> None:
        self._tell("collectives over all ranks")
        shut = any(not link.works for link in self.found.links)
        found = collectives.measured(self.meeting, self._level, self._limits.collective, shut)
        self.found.collective = collectives.rows(found)


# ---- Whose clock is away from the others', by comparisons of two at a time ----


def furthest_clock(offsets: Mapping[tuple[str, str], float], hosts: Sequence[str]) -> tuple[float, str] | None:
    """The largest difference from the middle clock, in ms, and whose it is.

    `offsets` are the second machine's clock minus the first one's, where two have compared theirs.
    """
    clocks = _clocks(offsets, hosts)
    if len(clocks) < 2:
        return None
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    host = max(clocks, key=lambda name: abs(clocks[name] - middle))
    return abs(clocks[host] - middle), host


def _clocks(offsets: Mapping[tuple[str, str], float], hosts: Iterable[str]) -> dict[str, float]:
    """Each clock against the first machine's, as far as comparisons lead from one to the next."""
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
    """How the job's own port looks from each machine; from the hub's only whether the name leads anywhere."""
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
    """Each connects to the addresses that others would announce, all at the same time."""
    known: list[LinkSeen] = []
    tried: dict[int, list[LinkSeen]] = {}
    for source, target in _in_turn(leaders):
        for ear in target.hello.get("ears", ()):
            link = _announced(source.host, target.host, ear)
            (known if link.outcome else tried.setdefault(source.rank, [])).append(link)
    asked = {
        rank: {"task": "reach", "to": [{"address": one.address, "port": one.port} for one in links]}
        for rank, links in tried.items()
    }
    for rank, answer in meeting.ask(asked, seconds).items():
        known += [_outcome(link, reply) for link, reply in zip(tried[rank], answer.get("links", ()), strict=False)]
    return known


def _in_turn(ring: Sequence[Guest]) -> Iterator[tuple[Guest, Guest]]:
    """Who connects to whom: few machines each to all others, many each to those 1, 2, 4, 8, ... places on."""
    count = len(ring)
    steps = range(1, count) if count <= ALL_OF else [1 << power for power in range((count - 1).bit_length())]
    for at, one in enumerate(ring):
        for step in steps:
            yield one, ring[(at + step) % count]


def _announced(source: str, target: str, ear: Mapping[str, Any]) -> LinkSeen:
    """What is known before it is tried: a loopback or no address at all cannot be reached from elsewhere."""
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


def _outcome(link: LinkSeen, reply: Mapping[str, Any]) -> LinkSeen:
    words = str(reply.get("words", "it did not say"))
    return replace(link, outcome=str(reply.get("outcome", "failed")), words=words, ms=reply.get("ms"))


# ---- Rounds of disjoint pairs ----
# Two machines at a time measure what passes between them, all pairs at the same time.

BUSY = 0.5
"""Of the time: a thread that had or wanted a processor for longer was not waiting for the network."""
Way = tuple[str, str]
"""From a machine to another."""


class Measuring:
    """`pairs` are what came of it; `links` those connections for it that did not come about."""

    def __init__(self, meeting: Meeting, leaders: Sequence[Guest], links: Sequence[LinkSeen], seconds: float) -> None:
        self.pairs: list[Pair] = []
        self.flows: dict[Way, Mapping[str, Any]] = {}
        self._failed: list[LinkSeen] = []
        self._meeting = meeting
        self._seconds = seconds
        self._guests = {guest.host: guest for guest in leaders}
        peers = [link for link in links if link.kind == "peer"]
        self._open = {(one.source, one.target): one for one in peers if one.works}
        self._shut = {(one.source, one.target): one for one in peers if not one.works}

    def all(self, switches: Mapping[str, str], tell: Callable[[str], None]) -> None:
        """Until nothing is in doubt, or the rounds are over."""
        for number in range(1, rounds.ROUNDS + 1):
            two = rounds.pairs(number, list(self._guests), self.pairs, switches)
            if not two:
                break
            tell(f"round {number}: {len(two)} pairs measure")
            self.pairs += self._round(number, two)

    @property
    def links(self) -> list[LinkSeen]:
        """The connections that failed, each way once. Of a machine that was reached just before, and with which talk
        then failed, one failure says nothing: it may have had no processor for a while.
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
        """Each pair by whichever of the two can connect to the other."""
        ways = {pair: way for pair in two if (way := self._way(*pair))}
        tasks = {self._guests[way[0]].rank: self._task(way) for way in ways.values()}
        answers = self._meeting.ask(tasks, self._seconds + 1)
        for way in ways.values():
            flow = answers.get(self._guests[way[0]].rank, {}).get("flow")
            if isinstance(flow, dict):
                self._note(way, flow, tasks[self._guests[way[0]].rank])
            else:
                self.flows.pop(way, None)
        return [self._pair(number, pair, ways.get(pair)) for pair in two]

    def _way(self, a: str, b: str) -> Way | None:
        return next((way for way in ((a, b), (b, a)) if way not in self._shut and self._address(way)), None)

    def _address(self, way: Way) -> tuple[str, int] | None:
        """Where the target was reached, else where it listens for NCCL or Gloo."""
        if link := self._open.get(way):
            return link.address, link.port
        ears = self._guests[way[1]].hello.get("ears", ())
        return next(((str(ear["address"]), int(ear["port"])) for ear in ears if _outward(ear)), None)

    def _task(self, way: Way) -> Message:
        address, port = self._address(way) or ("", 0)
        return {"task": "flow", "address": address, "port": port, "seconds": self._seconds}

    def _note(self, way: Way, flow: Mapping[str, Any], task: Message) -> None:
        """What was measured; that it did not even connect is told as any such connection."""
        self.flows[way] = flow
        if flow["outcome"] != CONNECTED:
            words, where = str(flow["words"]), (str(task["address"]), int(task["port"]))
            self._failed.append(LinkSeen(*way, "peer", str(flow["outcome"]), words, "nccl", *where))

    def _pair(self, number: int, pair: tuple[str, str], way: Way | None) -> Pair:
        flow = self.flows.get(way) if way else None
        there, back = (self._direction(one, way, flow) for one in (pair, pair[::-1]))
        return Pair(number, *pair, there, back, flow.get("ms") if flow else None)

    def _direction(self, one: Way, way: Way | None, flow: Mapping[str, Any] | None) -> Direction:
        """One way of a pair. Whoever asked has connected; that the other could is known from before, or assumed."""
        shut = self._shut.get(one)
        measured = str(flow["outcome"]) if flow and (way == one or flow["outcome"] == CONNECTED) else None
        outcome = shut.outcome if shut else measured
        if not flow:
            return Direction(outcome)
        side = "out" if way == one else "in"
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


def _outward(ear: Mapping[str, Any]) -> bool:
    return bool(ear.get("port")) and not ear.get("loopback")
