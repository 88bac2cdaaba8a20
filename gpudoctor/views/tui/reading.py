"""How far the reading of a machine is: its sources, each with its state and its time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Source:
    """One source of facts: ``started``, ``done``, ``died`` or ``stopped``; `seconds` once it is no longer asked."""

    state: str
    since: float
    seconds: float = 0.0

    @property
    def asked(self) -> bool:
        """Whether it is still being asked."""
        return self.state == "started"


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading on its way, or at its end. `since` is in seconds of the monotonic clock."""

    since: float = field(default_factory=time.monotonic)
    sources: Mapping[str, Source] = field(default_factory=dict)
    over: bool = False
    seconds: float = 0.0
    trouble: str = ""
    """Why there is no diagnosis: what a person reads."""

    def after(self, event: tuple[str, str]) -> Reading:
        """The reading as it is after this event."""
        name, state = event
        now = time.monotonic()
        before = self.sources.get(name)
        since = before.since if before and state != "started" else now
        source = Source(state, since, 0.0 if state == "started" else now - since)
        return replace(self, sources={**self.sources, name: source})

    def ended(self, trouble: str = "") -> Reading:
        """The reading at its end."""
        return replace(self, over=True, seconds=time.monotonic() - self.since, trouble=trouble)

    @property
    def done(self) -> int:
        """Sources that are no longer asked."""
        return sum(not source.asked for source in self.sources.values())
