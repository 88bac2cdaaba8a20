"""How far the reading of a machine is: its sources, each with its state and its time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpudoctor.model.snapshot import Event


@dataclass(frozen=True, slots=True)
class Source:
    """One source of facts, its state as in `Event`: `seconds` once it is no longer asked, `detail` while it is."""

    state: str
    since: float
    seconds: float = 0.0
    detail: str = ""

    @property
    def asked(self) -> bool:
        """Whether it is still being asked."""
        return self.state in {"started", "working"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading on its way, or at its end. `since` is in seconds of the monotonic clock."""

    since: float = field(default_factory=time.monotonic)
    sources: Mapping[str, Source] = field(default_factory=dict)
    over: bool = False
    seconds: float = 0.0
    trouble: str = ""
    """Why there is no diagnosis: what a person reads."""

    def after(self, event: Event) -> Reading:
        """The reading as it is after this event."""
        now = time.monotonic()
        before = self.sources.get(event.source)
        since = before.since if before and event.state != "started" else now
        asked = event.state in {"started", "working"}
        source = Source(event.state, since, 0.0 if asked else now - since, event.detail)
        return replace(self, sources={**self.sources, event.source: source})

    def ended(self, trouble: str = "") -> Reading:
        """The reading at its end."""
        return replace(self, over=True, seconds=time.monotonic() - self.since, trouble=trouble)

    @property
    def done(self) -> int:
        """Sources that are no longer asked."""
        return sum(not source.asked for source in self.sources.values())
