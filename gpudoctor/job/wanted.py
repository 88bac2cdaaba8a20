"""What was asked of a job's check, and how long each of its stages may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from gpudoctor.job.stages import Limits

LIMITS: Mapping[str, Limits] = {
    "quick": Limits(),
    "standard": Limits(come=20, check=40, waking=110, collective=30),
    "deep": Limits(come=30, check=180, waking=120, collective=150),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. `network`: the machines' own checks do not count, so that they need no GPU."""

    level: str = "quick"
    python: str | None = None
    rules: Sequence[Path] = ()
    budget: float | None = None
    network: bool = False
    expect: str | None = None
    """What each machine must be: a profile's file or name, which each machine reads for itself."""

    @property
    def limits(self) -> Limits:
        """The level's, made to fit into the budget: what is to spare is for ranks that come late, and what is missing
        is taken from GPUs that sleep, then from every stage alike.
        """
        limits = LIMITS[self.level]
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
        """Of the whole."""
        return self.budget or LIMITS[self.level].whole
