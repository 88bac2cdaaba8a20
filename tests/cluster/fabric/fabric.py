"""Hosts below leaf switches, and what pairs of them measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from gpudoctor.cluster.preflight.pairs import CONNECTED, Direction, Measure, Pair, Way

RATE = 92.0
"""Gbit/s: what a 100 Gbit/s link carries."""
SENT = 20_000
"""TCP segments of one measurement."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong: a host's access link, a leaf's uplinks, or the path between two hosts; so it is to be named."""

    kind: Literal["host", "switch", "link"]
    names: tuple[str, ...]
    way: Way
    measure: Measure
    amount: float = 0.0
    """Share of the rate, share of lost segments, added ms one way, or bytes of the largest packet."""
    since: int = 1
    """The round in which it begins."""


@dataclass
class Fabric:
    """Rates differ from host to host by `spread`, and from one time to the next by `noise` (standard deviations of
    logarithms). The share `outliers` of all figures is bad without a reason: 0.3 to 0.8 of the rate, or 2 to 4 ms more.
    """

    random: Random
    hosts: tuple[str, ...]
    switches: dict[str, str]
    spread: float = 0.05
    noise: float = 0.02
    outliers: float = 0.01
    unreported: float = 0.0
    """Share of pairs of which no report arrives."""
    faults: Sequence[Fault] = ()
    _natural: dict[tuple[str, Way], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for host in self.hosts:
            for way in ("from", "to"):
                self._natural[host, way] = RATE * self.random.lognormvariate(0, self.spread)

    def measure(self, number: int, pairs: Iterable[tuple[str, str]]) -> list[Pair]:
        """What the pairs of a round report."""
        return [self._pair(number, a, b) for a, b in pairs if self.random.random() >= self.unreported]

    def _pair(self, number: int, a: str, b: str) -> Pair:
        there, back = self._direction(number, a, b), self._direction(number, b, a)
        connected = CONNECTED in (there.outcome, back.outcome)
        added = sum(2 * fault.amount for fault in self._at_work(number, a, b, "latency"))
        ms = 0.1 * self.random.lognormvariate(0, 0.2) + added
        if self.random.random() < self.outliers:
            ms += self.random.uniform(2, 4)
        return Pair(number, a, b, there, back, ms if connected else None)

    def _direction(self, number: int, source: str, target: str) -> Direction:
        dead = self._at_work(number, source, target, "reach")
        if dead:
            told = not any(fault.way == "both" and fault.names[0] == source for fault in dead)
            return Direction("filtered" if told else None)
        rate = min(self._natural[source, "from"], self._natural[target, "to"]) * self.random.lognormvariate(
            0, self.noise
        )
        if self.random.random() < self.outliers:
            rate *= self.random.uniform(0.3, 0.8)
        for fault in self._at_work(number, source, target, "bandwidth"):
            rate *= fault.amount
        lost = sum(fault.amount for fault in self._at_work(number, source, target, "loss"))
        resent = round(SENT * (lost * self.random.uniform(0.8, 1.2) + 0.001 * self.random.random()))
        holes = [int(fault.amount) for fault in self._at_work(number, source, target, "mtu")]
        return Direction(CONNECTED, rate, SENT, resent, min(holes, default=None))

    def _at_work(self, number: int, source: str, target: str, measure: Measure) -> list[Fault]:
        """The faults of this measure that meet a packet from the one to the other."""
        return [
            fault
            for fault in self.faults
            if fault.measure == measure and number >= fault.since and self._meets(fault, source, target)
        ]

    def _meets(self, fault: Fault, source: str, target: str) -> bool:
        if fault.kind == "switch":
            source, target = self.switches[source], self.switches[target]
            if source == target:
                return False
        if fault.kind == "link" and {source, target} != {*fault.names}:
            return False
        name = fault.names[0]
        return (name == source and fault.way != "to") or (name == target and fault.way != "from")


def hosts(count: int, leaves: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names, and the leaf of each; as many on each leaf as possible."""
    names = tuple(f"n{at:04}" for at in range(count))
    return names, {name: f"leaf{at * leaves // count:02}" for at, name in enumerate(names)}
