"""Rounds of disjoint pairs: two machines at a time measure what passes between them, all pairs at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoctor.job.found import LinkSeen
from gpudoctor.job.guest import Guest
from gpudoctor.job.meeting import Meeting
from gpudoctor.job.pairing import rounds
from gpudoctor.job.pairing.evidence import CONFIRMED
from gpudoctor.job.pairing.pairs import CONNECTED, Direction, Pair
from gpudoctor.job.wire import Message

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
