"""What the hub has done, stage after stage: all come, connect, measure in rounds of pairs, tell of their own checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.job import rounds
from gpudoctor.job.clocks import furthest_clock
from gpudoctor.job.culprits import suspects
from gpudoctor.job.found import Found, LinkSeen, RankSeen
from gpudoctor.job.meeting import SILENT, Guest, Meeting, in_turn
from gpudoctor.job.pairs import CONNECTED, Direction, Pair
from gpudoctor.job.wire import Said

Tell = Callable[[str], None]
"""Hears what is done now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for each stage at most; a sound job takes a fraction of each."""

    come: float = 12.0
    connect: float = 6.0
    flow: float = 5.0
    check: float = 10.0
    collective: float = 0.0
    """0: nobody imports torch."""

    @property
    def whole(self) -> float:
        """All of it, with two pairs of rounds, and what talking takes."""
        return self.come + self.connect + rounds.ROUNDS * (self.flow + 1) + self.check + self.collective + 5


class Stages:
    """The meeting's agenda. `found` holds what is known at any moment, should it be cut short."""

    def __init__(self, meeting: Meeting, found: Found, limits: Limits, tell: Tell) -> None:
        self.meeting = meeting
        self.found = found
        self._limits = limits
        self._tell = tell
        self._began = time.monotonic()

    def all(self) -> None:
        """From the first to the last."""
        self._come()
        leaders = self.meeting.leaders
        self.found.switches = {one.host: str(one.hello["switch"]) for one in leaders if one.hello.get("switch")}
        if len(leaders) > 1:
            self._connect(leaders)
            self._measure(leaders)
        self._check(leaders)

    def note(self) -> None:
        """Who is here now, and what is wrong with the others."""
        world = self.meeting.place.world
        self.found.ranks = [self._seen(rank) for rank in range(world)]
        self.found.seconds = time.monotonic() - self._began

    def _come(self) -> None:
        world = self.meeting.place.world
        self._tell(f"waiting for {world} ranks")
        self.meeting.until(lambda: len(self.meeting.guests) >= world, self._limits.come)
        self._note_rendezvous()

    def _note_rendezvous(self) -> None:
        """How the job's own port looks from each machine; the hub's sees only whether the name leads anywhere."""
        place = self.meeting.place
        for guest in self.meeting.leaders:
            for way in guest.hello.get("ways", ()):
                outcome, words = str(way["outcome"]), str(way["words"])
                blind = guest.host == place.host and outcome not in {"unresolved", "unroutable"}
                if way["port"] == place.port and not way["stranger"] and not blind:
                    self.found.links.append(
                        LinkSeen(
                            guest.host,
                            place.master if outcome == "unresolved" else place.host,
                            "rendezvous",
                            outcome,
                            words,
                            "rendezvous",
                            place.master,
                            place.port,
                        )
                    )

    def _connect(self, leaders: Sequence[Guest]) -> None:
        self._tell(f"{len(leaders)} machines connect to each other")
        tasks: dict[int, list[LinkSeen]] = {}
        for source, target in in_turn(leaders):
            for ear in target.hello.get("ears", ()):
                link = _link(source.host, target.host, ear)
                (self.found.links if link.outcome else tasks.setdefault(source.rank, [])).append(link)
        asked = {
            rank: {"task": "reach", "to": [{"address": one.address, "port": one.port} for one in links]}
            for rank, links in tasks.items()
        }
        for rank, answer in self.meeting.ask(asked, self._limits.connect).items():
            seen = answer.get("links") or [{}] * len(tasks[rank])
            self.found.links += [_with(one, told) for one, told in zip(tasks[rank], seen, strict=False)]

    def _measure(self, leaders: Sequence[Guest]) -> None:
        """Rounds of disjoint pairs, until nothing is in doubt."""
        by_host = {guest.host: guest for guest in leaders}
        switches = self.found.switches
        open_to = {(one.source, one.target): one for one in self.found.links if one.works and one.kind == "peer"}
        shut = {(one.source, one.target): one for one in self.found.links if not one.works and one.kind == "peer"}
        for number in range(1, rounds.ROUNDS + 1):
            two = rounds.pairs(number, list(by_host), self.found.pairs, switches)
            if not two:
                break
            self._tell(f"round {number}: {len(two)} pairs measure")
            self.found.pairs += self._round(number, two, by_host, open_to, shut)
        self.found.suspects = suspects(self.found.pairs, switches)
        self._note_clocks(list(by_host))

    def _round(
        self,
        number: int,
        two: Sequence[tuple[str, str]],
        by_host: Mapping[str, Guest],
        open_to: Mapping[tuple[str, str], LinkSeen],
        shut: Mapping[tuple[str, str], LinkSeen],
    ) -> list[Pair]:
        """Each pair by whichever of the two can connect to the other."""
        tasks: dict[int, Said] = {}
        asked: dict[tuple[str, str], tuple[str, str]] = {}
        for a, b in two:
            way = next((way for way in ((a, b), (b, a)) if way not in shut), None)
            to = _way_to(by_host[way[1]], open_to.get(way)) if way else None
            if way and to:
                tasks[by_host[way[0]].rank] = {"task": "flow", **to, "seconds": self._limits.flow}
                asked[a, b] = way
        answers = self.meeting.ask(tasks, self._limits.flow + 1)
        pairs = []
        for a, b in two:
            way = asked.get((a, b))
            flow = answers.get(by_host[way[0]].rank, {}).get("flow") if way else None
            if way and flow:
                self._note_flow(way, flow, tasks[by_host[way[0]].rank])
            pairs.append(_pair(number, (a, b), way, flow, shut))
        return pairs

    def _note_flow(self, way: tuple[str, str], flow: Mapping[str, Any], task: Said) -> None:
        """What was measured; that it did not even connect is told as any such connection."""
        self.found.flows[way] = flow
        if flow["outcome"] != "connected":
            outcome, words = str(flow["outcome"]), str(flow["words"])
            self.found.links.append(
                LinkSeen(*way, "peer", outcome, words, "nccl", str(task["address"]), int(task["port"]))
            )

    def _note_clocks(self, hosts: Sequence[str]) -> None:
        offsets = {
            way: float(flow["clock_offset_ms"])
            for way, flow in self.found.flows.items()
            if flow.get("clock_offset_ms") is not None
        }
        if furthest := furthest_clock(offsets, hosts):
            self.found.skew_ms, self.found.skew_host = furthest

    def _check(self, leaders: Sequence[Guest]) -> None:
        self._tell("waiting for the machines' own checks")
        self.meeting.until(
            lambda: all("document" in one.told or one.ended or one.silent > SILENT for one in leaders),
            self._limits.check,
        )
        for guest in leaders:
            document = guest.told.get("document")
            if isinstance(document, dict):
                self.found.documents[guest.host] = document
        gpus = [document["facts"].get("gpu") for document in self.found.documents.values()]
        if gpus:
            self.found.backend = "nccl" if any(isinstance(rows, list) and rows for rows in gpus) else "gloo"

    def _seen(self, rank: int) -> RankSeen:
        place, guest = self.meeting.place, self.meeting.guests.get(rank)
        if guest is None:
            host = place.hosts[rank] if rank < len(place.hosts) else ""
            expected = f"; it belongs on {host}" if host else ""
            why = f"never came to {place.master} in {self._limits.come:.0f} s{expected}"
            return RankSeen(rank, "missing", host, because=why)
        state, because = "here", ""
        if guest.ended:
            state, because = "ended", f"on {guest.host} ended while it did: {guest.step} ({guest.ended})"
        elif guest.silent > SILENT:
            state, because = (
                "silent",
                f"on {guest.host} hangs: nothing heard for {guest.silent:.0f} s, last: {guest.step}",
            )
        elif guest.leads and "failed" in guest.told:
            state, because = "failed", f"on {guest.host}: {guest.told['failed']}"
        hello = guest.hello
        return RankSeen(
            rank,
            state,
            guest.host,
            _whole(hello.get("local_rank")),
            guest.step,
            because,
            _whole(hello.get("world")),
            str(guest.told.get("nccl", "")),
            guest.silent,
        )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _link(source: str, target: str, ear: Mapping[str, Any]) -> LinkSeen:
    """What is known before it is tried: a loopback or no address at all cannot be reached from elsewhere."""
    outcome, words = "", ""
    if ear.get("loopback"):
        outcome, words = "loopback", str(ear.get("because") or "a loopback leads nowhere from elsewhere")
    elif not ear.get("port"):
        outcome, words = "failed", str(ear.get("because") or "it does not listen")
    return LinkSeen(
        source,
        target,
        "peer",
        outcome,
        words,
        ", ".join(ear.get("used_by", ())),
        str(ear.get("address", "")),
        int(ear.get("port") or 0),
        str(ear.get("interface", "")),
    )


def _with(link: LinkSeen, told: Mapping[str, Any]) -> LinkSeen:
    outcome = str(told.get("outcome", "failed"))
    return replace(link, outcome=outcome, words=str(told.get("words", "it did not say")), ms=told.get("ms"))


def _way_to(target: Guest, link: LinkSeen | None) -> Said | None:
    """Where the target listens: where it was reached, else where NCCL would be."""
    if link:
        return {"address": link.address, "port": link.port}
    ears = [ear for ear in target.hello.get("ears", ()) if ear.get("port") and not ear.get("loopback")]
    return {"address": ears[0]["address"], "port": ears[0]["port"]} if ears else None


def _pair(
    number: int,
    names: tuple[str, str],
    way: tuple[str, str] | None,
    flow: Mapping[str, Any] | None,
    shut: Mapping[tuple[str, str], LinkSeen],
) -> Pair:
    """Of what the asking side measured; whether the other could have asked is known from the connecting before."""
    a, b = names
    told = str(flow["outcome"]) if flow else None
    outcome = {one: shut[one].outcome if one in shut else told for one in ((a, b), (b, a))}
    if way and told != CONNECTED:
        outcome[way[1], way[0]] = shut[way[1], way[0]].outcome if way[::-1] in shut else None
    there, back = (_direction(flow, way == one, outcome[one]) for one in ((a, b), (b, a)))
    return Pair(number, a, b, there, back, flow.get("ms") if flow else None)


def _direction(flow: Mapping[str, Any] | None, out: bool, outcome: str | None) -> Direction:
    if not flow:
        return Direction(outcome)
    side = "out" if out else "in"
    sent = int(flow.get(f"segments_{side}") or 0)
    return Direction(
        outcome,
        flow.get(f"gbps_{side}"),
        sent,
        round(sent * float(flow.get(f"retransmitted_{side}") or 0.0)),
        flow.get("stalled_above") if not flow.get(f"gbps_{side}") else None,
    )
