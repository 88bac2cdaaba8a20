"""Hosts with several ports, some of them bad, and the rounds that all rails go through."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from gpudoctor.cluster.preflight import MOST_ROUNDS
from gpudoctor.cluster.preflight.pairs import CONNECTED, Suspect, Way
from gpudoctor.cluster.preflight.rails import RailPlan, RailPort, conclude
from tests.cluster.fabric import Fabric, Fault, hosts

WAYS: tuple[Way, ...] = ("from", "to", "both")
RailFault = tuple[str, str, Way, str, str]
"""Rail, host, direction, measure and, where a cable is wrong, the rail that it leads to: as it is to be named."""


@dataclass
class Rails:
    """A fabric for each rail, all of the same hosts. `crossed`: rails by the port that is cabled to them."""

    fabrics: Mapping[str, Fabric]
    crossed: Mapping[RailPort, str] = field(default_factory=dict)

    @property
    def faults(self) -> set[RailFault]:
        """What is to be named."""
        return {
            (rail, fault.names[0], fault.way, fault.measure, self.crossed.get((rail, fault.names[0]), ""))
            for rail, fabric in self.fabrics.items()
            for fault in fabric.faults
        }

    def reach(self, port: RailPort, other: RailPort) -> str:
        """What becomes of connecting by one port to another, of whichever rail."""
        dead = {(rail, host) for rail, host, _, measure, _ in self.faults if measure == "reach"}
        switches = [self.crossed.get(end) or ("" if end in dead else end[0]) for end in (port, other)]
        return CONNECTED if switches[0] == switches[1] != "" else "filtered"


def blamed(rails: Rails) -> tuple[int, list[Suspect]]:
    """(rounds it took, suspects), by the rounds as the coordinator runs them."""
    names = {rail: fabric.hosts for rail, fabric in rails.fabrics.items()}
    switches = next(iter(rails.fabrics.values())).switches
    plan = RailPlan(names, switches, dict.fromkeys(names, 400.0), {rail: [] for rail in names})
    took = 0
    for number in range(1, MOST_ROUNDS + 1):
        for rail, pairs in plan.round(number).items():
            took = number
            measured = rails.fabrics[rail].measure(number, pairs)
            plan.pairs[rail] += [replace(pair, ms=None, rail=rail) for pair in measured]
    suspects = plan.suspects()
    tried: dict[RailPort, list[tuple[str, str]]] = {}
    for port, other in plan.crossings(suspects):
        tried.setdefault(port, []).append((other[0], rails.reach(port, other)))
    return took + bool(tried), conclude(suspects, tried, plan)


def one_of_each(random: Random, count: int, rails: int) -> Rails:
    """So many hosts and rails, with one slow, one dead and one lossy port, and one host whose cables are exchanged."""
    names, leaves = hosts(count, max(1, count // 32))
    spread = random.uniform(0.03, 0.08)
    fabrics = {f"mlx5_{at}": Fabric(random, names, leaves, spread=spread) for at in range(rails)}
    faults: dict[str, list[Fault]] = {rail: [] for rail in fabrics}
    slow, dead, lossy, swapped = random.sample(names, 4)
    one, other = random.sample(sorted(fabrics), 2)
    faults[random.choice(sorted(fabrics))].append(
        Fault("host", (slow,), random.choice(WAYS), "bandwidth", random.uniform(0.1, 0.6))
    )
    faults[random.choice(sorted(fabrics))].append(Fault("host", (dead,), "both", "reach"))
    faults[random.choice(sorted(fabrics))].append(
        Fault("host", (lossy,), random.choice(WAYS), "loss", random.uniform(0.02, 0.1))
    )
    for rail in (one, other):
        faults[rail].append(Fault("host", (swapped,), "both", "reach"))
    for rail, fabric in fabrics.items():
        fabric.faults = faults[rail]
    return Rails(fabrics, {(one, swapped): other, (other, swapped): one})


class Figures(NamedTuple):
    """Of many trials: shares in which all ports are named as they are, and in which an innocent is; the most rounds."""

    named: float
    wronged: float
    rounds: int


def trials(count: int, seed: int, hosts: int, rails: int) -> Figures:
    """So many trials of `one_of_each`; the same arguments give the same."""
    named = wronged = rounds = 0
    for one in range(seed, seed + count):
        fabric = one_of_each(Random(f"rails {one}"), hosts, rails)
        took, suspects = blamed(fabric)
        bad = {(rail, (host,)) for rail, host, *_ in fabric.faults}
        named += fabric.faults <= {(one.rail, one.names[0], one.way, one.measure, one.network) for one in suspects}
        wronged += any((one.rail, one.names) not in bad for one in suspects)
        rounds = max(rounds, took)
    return Figures(named / count, wronged / count, rounds)
