"""Hosts below leaf switches, what pairs of them measure, and whether the right ones are blamed for random faults."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from gpudoctor.cluster.preflight import rounds
from gpudoctor.cluster.preflight.culprits import suspects
from gpudoctor.cluster.preflight.pairs import CONNECTED, Direction, Measure, Pair, Suspect, Way

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


WAYS: tuple[Way, ...] = ("from", "to", "both")


@dataclass(frozen=True)
class Trial:
    """What came of one fabric."""

    fabric: Fabric
    rounds: int
    measured: tuple[Pair, ...]
    suspects: tuple[Suspect, ...]

    @property
    def missed(self) -> list[Fault]:
        """Faults that nobody is blamed for, or in another direction."""
        said = {(one.kind, one.names, one.way, one.measure) for one in self.suspects}
        return [one for one in self.fabric.faults if (one.kind, one.names, one.way, one.measure) not in said]

    @property
    def innocent(self) -> list[Suspect]:
        """Suspects that are not at fault."""
        bad = {(one.kind, one.names) for one in self.fabric.faults}
        return [one for one in self.suspects if (one.kind, one.names) not in bad]


def run(fabric: Fabric, seed: int) -> Trial:
    """Measure until there is nothing more to measure, then say who is to blame."""
    measured: list[Pair] = []
    number = 0
    while pairs := rounds.pairs_of_round(number + 1, fabric.hosts, measured, fabric.switches, seed):
        number += 1
        measured += fabric.measure(number, pairs)
    return Trial(fabric, number, tuple(measured), suspects(measured, fabric.switches))


def _large(random: Random) -> Fabric:
    return Fabric(random, *hosts(1024, 32), spread=random.uniform(0.03, 0.08))


def _slow(random: Random, name: str) -> Fault:
    return Fault("host", (name,), random.choice(WAYS), "bandwidth", random.uniform(0.1, 0.6))


def _dead(random: Random, name: str) -> Fault:
    return Fault("host", (name,), random.choice(WAYS), "reach")


def one_slow_one_dead(random: Random, seed: int) -> Fabric:
    """One slow and one dead access link of 1,024."""
    fabric = _large(random)
    slow, dead = random.sample(fabric.hosts, 2)
    fabric.faults = [_slow(random, slow), _dead(random, dead)]
    return fabric


def sound(random: Random, seed: int) -> Fabric:
    """1,024 hosts, none of them bad."""
    return _large(random)


def both_in_a_pair(random: Random, seed: int) -> Fabric:
    """One slow and one dead, who meet in round 1."""
    fabric = _large(random)
    slow, dead = random.choice(rounds.pairs_of_round(1, fabric.hosts, (), fabric.switches, seed))
    fabric.faults = [_slow(random, slow), _dead(random, dead)]
    return fabric


def few(random: Random, seed: int) -> Fabric:
    """3 to 64 hosts, one of them bad; of 6 and more also a second."""
    count = random.randint(3, 64)
    fabric = Fabric(random, *hosts(count, max(1, count // 16)), spread=random.uniform(0.03, 0.08))
    slow, dead = random.sample(fabric.hosts, 2)
    both = [_slow(random, slow), _dead(random, dead)]
    fabric.faults = both if count >= 6 else [random.choice(both)]
    return fabric


def few_sound(random: Random, seed: int) -> Fabric:
    """2 to 64 hosts, none of them bad."""
    count = random.randint(2, 64)
    return Fabric(random, *hosts(count, max(1, count // 16)), spread=random.uniform(0.03, 0.08))


def busy(random: Random, seed: int) -> Fabric:
    """3 to 16 hosts on a busy machine, where the same pair differs 2-fold; one at a tenth of its rate."""
    count = random.randint(3, 16)
    fabric = Fabric(random, *hosts(count, 1), spread=0.05, noise=0.25)
    fabric.faults = [Fault("host", (random.choice(fabric.hosts),), random.choice(WAYS), "bandwidth", 0.1)]
    return fabric


def busy_sound(random: Random, seed: int) -> Fabric:
    """The same, none of them bad."""
    return Fabric(random, *hosts(random.randint(2, 16), 1), spread=0.05, noise=0.25)


def many_bad(random: Random, seed: int) -> Fabric:
    """5 % of 1,024: half of them slow, half dead."""
    fabric = _large(random)
    bad = random.sample(fabric.hosts, 51)
    fabric.faults = [_slow(random, name) for name in bad[::2]] + [_dead(random, name) for name in bad[1::2]]
    return fabric


def half_a_leaf(random: Random, seed: int) -> Fabric:
    """16 of the 32 hosts below one switch are slow."""
    fabric = _large(random)
    below = [name for name, leaf in fabric.switches.items() if leaf == "leaf07"]
    fabric.faults = [_slow(random, name) for name in random.sample(below, len(below) // 2)]
    return fabric


def bad_uplink(random: Random, seed: int) -> Fabric:
    """What a leaf switch sends to the others, or receives, is slow, or nothing passes."""
    fabric = _large(random)
    way = random.choice(WAYS)
    slow = Fault("switch", ("leaf07",), way, "bandwidth", random.uniform(0.1, 0.6))
    fabric.faults = [random.choice([slow, Fault("switch", ("leaf07",), way, "reach")])]
    return fabric


def partly_reported(random: Random, seed: int) -> Fabric:
    """One pair of fifty never reports; one slow, one dead."""
    fabric = one_slow_one_dead(random, seed)
    fabric.unreported = 0.02
    return fabric


def dies_later(random: Random, seed: int) -> Fabric:
    """One is slow, another dies in round 2."""
    fabric = _large(random)
    slow, dead = random.sample(fabric.hosts, 2)
    fabric.faults = [_slow(random, slow), Fault("host", (dead,), "both", "reach", since=2)]
    return fabric


def bad_path(random: Random, seed: int) -> Fabric:
    """The path between two that meet in round 1; in one direction."""
    fabric = _large(random)
    pair = random.choice(rounds.pairs_of_round(1, fabric.hosts, (), fabric.switches, seed))
    fabric.faults = [_bad_path(random, pair)]
    return fabric


def few_bad_path(random: Random, seed: int) -> Fabric:
    """The same of 2 to 4 hosts, where all meet."""
    fabric = Fabric(random, *hosts(random.randint(2, 4), 1), spread=random.uniform(0.03, 0.08))
    a, b = random.sample(fabric.hosts, 2)
    fabric.faults = [_bad_path(random, (a, b))]
    return fabric


def _bad_path(random: Random, pair: tuple[str, str]) -> Fault:
    slow = Fault("link", pair, "from", "bandwidth", random.uniform(0.05, 0.25))
    return random.choice([slow, Fault("link", pair, "from", "reach")])


def other_faults(random: Random, seed: int) -> Fabric:
    """Lost packets, added delay, and packets of full size that vanish."""
    fabric = _large(random)
    loss, late, hole = random.sample(fabric.hosts, 3)
    fabric.faults = [
        Fault("host", (loss,), random.choice(WAYS), "loss", random.uniform(0.02, 0.1)),
        Fault("host", (late,), "both", "latency", random.uniform(4, 40)),
        Fault("host", (hole,), random.choice(WAYS), "mtu", 1472),
    ]
    return fabric


SCENES: dict[str, Callable[[Random, int], Fabric]] = {
    scene.__name__: scene
    for scene in (
        one_slow_one_dead,
        sound,
        both_in_a_pair,
        few,
        few_sound,
        busy,
        busy_sound,
        many_bad,
        half_a_leaf,
        bad_uplink,
        partly_reported,
        dies_later,
        bad_path,
        few_bad_path,
        other_faults,
    )
}


@dataclass(frozen=True)
class Figures:
    """What came of many trials of one scene."""

    scene: str
    trials: tuple[Trial, ...]

    @property
    def named(self) -> float:
        """Share of the trials in which all faults are named."""
        return sum(not trial.missed for trial in self.trials) / len(self.trials)

    @property
    def wronged(self) -> float:
        """Share of the trials in which somebody is suspected who is not at fault."""
        return sum(bool(trial.innocent) for trial in self.trials) / len(self.trials)

    @property
    def rounds(self) -> int:
        """The most rounds that any of them took."""
        return max(trial.rounds for trial in self.trials)


def trials(scene: str, count: int, seed: int) -> Figures:
    """So many trials; the same arguments give the same."""
    return Figures(
        scene, tuple(run(SCENES[scene](Random(f"{scene} {one}"), one), one) for one in range(seed, seed + count))
    )
