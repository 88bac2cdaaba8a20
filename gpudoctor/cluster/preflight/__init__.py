"""The pre-training check of a job: its ranks meet at rank 0, its machines are checked and measured in pairs.

::

    place -> member -> meeting -> MeetingResults -> Snapshot of scope cluster -> rules -> Diagnosis

Every rank is a `member` that comes to the `meeting`, which rank 0 holds: on the job's own port, so that the way there
is tested as well. The meeting asks machines to connect to each other and to measure in `rounds` of disjoint pairs, and
names who is to blame by `culprits`. It never waits without end: each stage has its seconds, and the whole has a budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

MOST_ROUNDS = 4
"""Rounds of pairs that measure each other: no more are ever needed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum seconds of each stage."""

    come: float = 12.0
    connect: float = 6.0
    flow: float = 5.0
    check: float = 10.0
    waking: float = 35.0
    """What sleeping GPUs may need beyond `check`; a short budget gives this up first."""
    collective: float = 0.0
    """0: nobody imports torch, unless for the canary."""
    canary: float = 0.0
    """Of the training of a few steps; 0: none."""

    @property
    def whole(self) -> float:
        """Maximum seconds of all stages, with time for messages."""
        measuring = MOST_ROUNDS * (self.flow + 1)
        return self.come + self.connect + measuring + self.check + self.waking + self.collective + self.canary + 5


LIMITS: Mapping[str, Limits] = {
    "quick": Limits(),
    "standard": Limits(come=20, check=40, waking=110, collective=30),
    "deep": Limits(come=30, check=180, waking=120, collective=150, canary=60),
}
_CANARY_SECONDS = 60.0
"""Seconds of the canary, with the import of torch, at a level that has none by itself."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the job's check. `network`: only the network counts, not the machines' own checks."""

    level: str = "quick"
    python: str | None = None
    rules: Sequence[Path] = ()
    budget: float | None = None
    network: bool = False
    expect: str | None = None
    """What each machine must be: a profile's file or name, which each machine reads for itself."""
    canary: bool = False
    """Whether all ranks train some steps of a small transformer, as they do at level deep."""

    @property
    def limits(self) -> Limits:
        """Limits of the level, fitted to the budget: spare time goes to waiting for ranks.
        If time is short, first waking of GPUs is reduced, then every stage in proportion.
        """
        limits = self._usual_limits
        if self.budget is None:
            return limits
        if self.budget >= limits.whole:
            return replace(limits, come=limits.come + self.budget - limits.whole)
        awake = replace(limits, waking=0.0)
        if self.budget >= awake.whole:
            return replace(limits, waking=self.budget - awake.whole)
        share = self.budget / awake.whole
        return Limits(*(share * seconds for seconds in astuple(awake)))

    @property
    def seconds(self) -> float:
        """Maximum seconds of the whole check: the budget, else what the level's stages need."""
        return self.budget or self._usual_limits.whole

    @property
    def _usual_limits(self) -> Limits:
        """Limits of the level, with a canary where one is asked for."""
        limits = LIMITS[self.level]
        return replace(limits, canary=_CANARY_SECONDS) if self.canary else limits
