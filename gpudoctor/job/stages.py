"""What the hub has done, stage after stage: all come, connect, measure in rounds of pairs, tell of their own checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudoctor.job import collectives, connecting, membership
from gpudoctor.job.clocks import furthest_clock
from gpudoctor.job.found import Found
from gpudoctor.job.guest import Guest
from gpudoctor.job.measuring import Measuring
from gpudoctor.job.meeting import SILENT, Meeting
from gpudoctor.job.pairing import rounds
from gpudoctor.job.pairing.culprits import suspects

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
        self.found.links += connecting.to_the_hub(self.meeting)

    def _connect(self, leaders: Sequence[Guest]) -> None:
        self._tell(f"{len(leaders)} machines connect to each other")
        self.found.links += connecting.to_each_other(self.meeting, leaders, self._limits.connect)

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
