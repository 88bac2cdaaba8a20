"""What was measured between two hosts: one `Pair` for each time that two hosts measured each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Measure = Literal["reach", "mtu", "loss", "latency", "bandwidth"]
Way = Literal["from", "to", "both"]

CONNECTED = "connected"


@dataclass(frozen=True, slots=True)
class Direction:
    """What came of sending from one host to the other. None is what nobody measured: it accuses and clears no one."""

    outcome: str | None = None
    """``connected``, or why not: refused, filtered, unroutable, unresolved, loopback, failed. None: nobody said."""
    gbps: float | None = None
    """Gbit/s."""
    sent: int = 0
    """TCP segments."""
    resent: int = 0
    """Of these, how many were sent more than once."""
    stalled_above: int | None = None
    """Bytes: larger packets vanish."""
    busy: bool = False
    """Whether its ends were too busy to send or receive faster: a low rate then says nothing against the link."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What two hosts measured of each other in one round, counted from 1."""

    round: int
    a: str
    b: str
    there: Direction
    """From `a` to `b`."""
    back: Direction
    """From `b` to `a`."""
    ms: float | None = None
    """Round trip, the shortest of some."""

    @property
    def ways(self) -> Iterator[tuple[str, str, Direction]]:
        """Who sends, who receives, and what came of it."""
        yield self.a, self.b, self.there
        yield self.b, self.a, self.back
