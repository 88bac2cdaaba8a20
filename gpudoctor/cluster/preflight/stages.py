"""The coordinator's stages in order: ranks join, connect, measure in rounds of pairs, and send their own checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpudoctor.cluster.preflight import Limits, local
from gpudoctor.cluster.preflight.culprits import suspects
from gpudoctor.cluster.preflight.measuring import Measuring, to_each_other, to_the_coordinator
from gpudoctor.cluster.preflight.meeting import SILENT_SECONDS, TERMINATED, JoinedRank, Meeting
from gpudoctor.cluster.preflight.rails import measure_rails
from gpudoctor.cluster.preflight.results import MeetingResults, RankSeen
from gpudoctor.core.about import __version__
from gpudoctor.core.fact import Unread
from gpudoctor.kernels.across_hosts import nccl_remarks
from gpudoctor.kernels.canary import canary_rows

Tell = Callable[[str], None]
"""Hears what is done now."""
_MESSAGE_SECONDS = 5.0
"""Seconds for messages, as `Limits.whole` has them."""


class Stages:
    """The meeting's stages in order. `found` is kept up to date, so that an interrupted check still has results."""

    def __init__(
        self, meeting: Meeting, results: MeetingResults, limits: Limits, tell: Tell, level: str, seconds: float
    ) -> None:
        """The stages fill `results` within `seconds` together, and `tell` receives each one's description."""
        self.meeting = meeting
        self.found = results
        self._limits = limits
        self._level = level
        self._tell = tell
        self._began = time.monotonic()
        self._until = self._began + seconds - limits.collective - limits.canary - _MESSAGE_SECONDS
        """When the machines' own checks must have come: what is left until then is the ports', one by one."""
        self._waited = False
        """Whether all ranks that are not here have had their time."""

    def run_all(self) -> None:
        """Run the meeting's stages in order, filling `found`; after an interruption the others are skipped, but for
        recording the machines' own checks that have come.
        """
        self._wait_for_ranks()
        leaders = self.meeting.leaders
        self.found.switches = {
            joined.host: str(joined.hello["switch"]) for joined in leaders if joined.hello.get("switch")
        }
        if len(leaders) > 1 and self._goes_on:
            self._connect(leaders)
        if len(leaders) > 1 and self._goes_on:
            self._measure(leaders)
        if len(leaders) > 1 and self._goes_on:
            until = self._until - self._limits.check
            measure_rails(self.meeting, leaders, self.found, self._limits, until, self._tell, self._level != "quick")
        self._await_own_checks(leaders)
        if (self._limits.collective or self._limits.canary) and self._goes_on:
            self._measure_collectives()

    def record_ranks(self) -> None:
        """Record the present state of every rank, and the time taken, in `found`."""
        self.found.ranks = rank_states(self.meeting, self._limits.come if self._waited else None)
        self.found.seconds = time.monotonic() - self._began

    @property
    def _goes_on(self) -> bool:
        """True unless the ranks' meeting was told to stop."""
        return not self.meeting.stop.is_set()

    def _wait_for_ranks(self) -> None:
        """Wait until all ranks have joined or their time is up; record how each reached the job's own port."""
        world = self.meeting.place.world
        self._tell(f"waiting for {world} ranks")
        self._waited = self.meeting.wait_until(lambda: self.meeting.complete, self._limits.come) or self._goes_on
        self.found.links += to_the_coordinator(self.meeting)

    def _connect(self, leaders: Sequence[JoinedRank]) -> None:
        """Have the machines connect to each other, and record the links."""
        self._tell(f"{len(leaders)} machines connect to each other")
        self.found.links += to_each_other(self.meeting, leaders, self._limits.connect)

    def _measure(self, leaders: Sequence[JoinedRank]) -> None:
        """Measure in rounds of pairs; record pairs, suspects and the largest clock difference."""
        measuring = Measuring(self.meeting, leaders, self.found.links, self._limits.flow)
        self.found.pairs, self.found.flows = measuring.pairs, measuring.flows
        measuring.run_rounds(self.found.switches, self._tell)
        self.found.links += measuring.links
        self.found.suspects = suspects(self.found.pairs, self.found.switches)
        offsets = {way: flow.get("clock_offset_ms") for way, flow in self.found.flows.items()}
        known = {way: float(offset) for way, offset in offsets.items() if offset is not None}
        if furthest := furthest_clock(known, [joined.host for joined in leaders]):
            self.found.skew_ms, self.found.skew_host = furthest

    def _await_own_checks(self, leaders: Sequence[JoinedRank]) -> None:
        """Wait for each machine's own diagnosis document, as long as time is left, and record those that came, and the
        backend (nccl with GPUs, else gloo).
        """
        self._tell("waiting for the machines' own checks")
        self.meeting.wait_until(
            lambda: all(
                {"document", "failed"} & set(leader.reports) or leader.ended or leader.silent_seconds > SILENT_SECONDS
                for leader in leaders
            ),
            min(self._limits.check + self._limits.waking, max(self._limits.check, self._until - time.monotonic())),
        )
        for joined in leaders:
            document = joined.reports.get("document")
            if isinstance(document, dict):
                self.found.documents[joined.host] = document
        gpus = [document["facts"].get("gpu") for document in self.found.documents.values()]
        if gpus:
            self.found.backend = "nccl" if any(isinstance(rows, list) and rows for rows in gpus) else "gloo"

    def _measure_collectives(self) -> None:
        """Run collectives, some steps of training, or both over all ranks; record results, or why there are none."""
        limits = self._limits
        self._tell("collectives over all ranks" if limits.collective else "some steps of training over all ranks")
        shut = any(not link.works for link in self.found.links)
        seconds = limits.collective + limits.canary
        found = local.run_collective(self.meeting, self._level, seconds, shut, bool(limits.canary))
        rows = local.rows(found)
        if limits.collective or isinstance(rows, tuple):  # of the canary alone: that it failed
            self.found.collective = rows
        self.found.nccl_remarks = None if isinstance(found, str) else nccl_remarks(found)
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
    """Offset in ms of each clock from the first host's, through chains of comparisons; without unconnected hosts."""
    near: dict[str, list[tuple[str, float]]] = {}
    for (a, b), offset in offsets.items():
        near.setdefault(a, []).append((b, offset))
        near.setdefault(b, []).append((a, -offset))
    waiting = [host for host in hosts if host in near][:1]
    known = dict.fromkeys(waiting, 0.0)
    while waiting:
        here = waiting.pop()
        for there, offset in near[here]:
            if there not in known:
                known[there] = known[here] + offset
                waiting.append(there)
    return known


# ---- The roll call: who is here, and what is wrong with whoever is not ----


def rank_states(meeting: Meeting, waited: float | None) -> list[RankSeen]:
    """State of every rank of the job, and of any other that joined. `waited`: seconds that they had to join, None if
    the check was interrupted before that time was up.
    """
    ranks = sorted({*range(meeting.place.world), *meeting.joined_ranks})
    return [_rank_seen(meeting, rank, waited) for rank in ranks]


def _rank_seen(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    """State of one rank; `waited` is how many seconds it had to join, None if that time was not up."""
    joined = meeting.joined_ranks.get(rank)
    if joined is None:
        return _missing(meeting, rank, waited)
    state, because = _state_of(joined, meeting.stop.is_set())
    if others := meeting.twice.get(rank):
        state, because = "twice", f"came more than once: from {' and from '.join(others)}"
    hello = joined.hello
    return RankSeen(
        rank=rank,
        state=state,
        host=joined.host,
        local_rank=_integer_or_none(hello.get("local_rank")),
        step=joined.step,
        because=because,
        world=_integer_or_none(hello.get("world")),
        nccl=str(joined.reports.get("nccl", "")),
        seconds=joined.silent_seconds,
        blames=state != "twice" and TERMINATED not in joined.reports,
    )


def _missing(meeting: Meeting, rank: int, waited: float | None) -> RankSeen:
    """A rank that has not joined: awaited if `waited` is None, else missing: it was turned away or never came."""
    place = meeting.place
    host = place.hosts[rank] if rank < len(place.hosts) else ""
    if waited is None:
        return RankSeen(rank, "awaited", host, because="had not come yet when the check was cut short")
    if why := meeting.unproven.get(rank):  # which is nobody's proof: it may change words, and blames no machine
        return RankSeen(rank, "missing", host, because=f"was turned away: {why}", blames=False)
    expected = f"; it belongs on {host}" if host else ""
    return RankSeen(rank, "missing", host, because=f"never came to {place.master} in {waited:.0f} s{expected}")


def _state_of(joined: JoinedRank, cut: bool) -> tuple[str, str]:
    """(``here``, ``ended``, ``silent`` or ``failed``; explanation, ``""`` for ``here``).
    With `cut` the coordinator was told to end, too: a rank that was told to end then counts as ``here``.
    """
    if joined.ended and TERMINATED in joined.reports:
        if cut:  # so were we all
            return "here", ""
        return "ended", f"on {joined.host} was told to end while it did: {joined.step}"
    if joined.ended:
        return "ended", f"on {joined.host} ended while it did: {joined.step} ({joined.ended})"
    if joined.silent_seconds > SILENT_SECONDS:
        return "silent", f"on {joined.host} hangs: no message for {joined.silent_seconds:.0f} s, last: {joined.step}"
    if joined.refused:
        version = joined.hello.get("version")
        other = f" (gpudoctor {version}, and {__version__} here)" if version != __version__ else ""
        return "failed", f"on {joined.host} could not do its part: {joined.refused}{other}"
    if joined.leads and "failed" in joined.reports:
        return "failed", f"on {joined.host}: {joined.reports['failed']}"
    return "here", ""


def _integer_or_none(value: Any) -> int | None:
    """The value if it is an int; None for anything else."""
    return value if isinstance(value, int) else None
