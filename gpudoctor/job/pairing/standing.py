"""How the hosts stand after some rounds: the fastest first, who is in doubt, who met whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gpudoctor.job.pairing.culprits import judge
from gpudoctor.job.pairing.pairs import Pair


@dataclass(frozen=True)
class Standing:
    """How the hosts stand; all names are of hosts."""

    order: Sequence[str]
    """The good ones first, of these the fastest first; whom nobody measured or reached is at the very end."""
    good: Sequence[str]
    """The fastest first."""
    doubt: frozenset[str]
    again: Sequence[tuple[str, str]]
    """Pairs that are bad though both are good with others."""
    met: Mapping[str, frozenset[str]]
    switches: Mapping[str, str]
    at_home: frozenset[str]
    """In doubt below a switch that is bad: to be measured with others below it."""
    lopsided: bool
    """Some are so much faster than the usual that it may be the usual ones who are slow."""

    @property
    def settled(self) -> bool:
        """Whether nothing is in doubt."""
        return not (self.doubt or self.again)


def standing(hosts: Sequence[str], measured: Sequence[Pair], switches: Mapping[str, str]) -> Standing:
    """How they stand, by all that was measured. Hosts that are equal stay in the order in which they are given."""
    judged = judge(measured, switches)
    speeds, met = _speeds(measured), _met(measured)
    known = set(hosts)
    doubt = judged.doubt & known | (known - met.keys())
    bad_switches = {name for one in judged.weighed for name, _ in one.switches}
    usual, least = judged.limits.gbps or 0.0, judged.limits.least
    not_good = doubt | judged.guilty
    order = sorted(hosts, key=lambda host: (host in not_good, -speeds.get(host, 0.0)))
    return Standing(
        order=order,
        good=[host for host in order if host not in not_good],
        doubt=doubt,
        again=[pair for pair in sorted(judged.again) if known.issuperset(pair)],
        met={host: frozenset(others) for host, others in met.items()},
        switches=switches,
        at_home=frozenset(host for host in doubt if switches.get(host) in bad_switches),
        lopsided=any(speed * least > usual * usual for speed in speeds.values()),
    )


def _speeds(measured: Sequence[Pair]) -> dict[str, float]:
    """The best rate of each host in its slower direction, in Gbit/s."""
    sends: dict[str, float] = {}
    receives: dict[str, float] = {}
    for pair in measured:
        for source, target, way in pair.ways:
            if way.gbps is not None:
                sends[source] = max(way.gbps, sends.get(source, 0.0))
                receives[target] = max(way.gbps, receives.get(target, 0.0))
    return {host: min(rate, receives.get(host, inf)) for host, rate in sends.items()}


def _met(measured: Sequence[Pair]) -> dict[str, set[str]]:
    """Who was measured with whom, as far as anybody said anything of it."""
    met: dict[str, set[str]] = {}
    for pair in measured:
        if pair.ms is not None or any(way.outcome is not None or way.gbps is not None for _, _, way in pair.ways):
            met.setdefault(pair.a, set()).add(pair.b)
            met.setdefault(pair.b, set()).add(pair.a)
    return met
