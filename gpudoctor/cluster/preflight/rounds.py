"""Which hosts measure each other in which round: pairs that share no host and run at the same time.

Time is spent by rounds, not by pairs, so every host of thousands is measured in each of the first two rounds, and four
rounds are enough:

1. Everybody with somebody, below another switch where switches are known, so that the links between the switches are
   tried, too. Who is left over because the number is odd is first in the next round.
2. The fastest with the slowest: whoever was slow, or heard nothing, because of a bad partner is fast now.
3. Those still in doubt, each with a host that is known to be good and that it did not meet. Hosts below one switch of
   which nearly all are bad meet each other: where they are good among themselves, it is the switch. Two hosts that are
   good with everybody else meet again: if they are bad again, it is the path between them.
4. The same once more, because one measurement of a hundred is bad without a reason.

When nothing is in doubt there is no further round. Up to eight hosts meet as in a round-robin tournament for three
rounds; so of up to four, every two have met.

What cannot be found: a bad path between two hosts that never were a pair. Of 1,024 hosts in four rounds these are all
but 0.4 % of the paths; a bad host or a bad switch is on many of them and is found, a single path is not.

Sources (read 2026-11): two rounds of pairs, fastest with slowest, and the smaller of two times are DLRover's
(dlrover/python/master/elastic_training/rdzv_manager.py, NetworkCheckRendezvousManager); suspects against hosts that
passed, which can no longer fall, are the second pass of Google's cluster-health-scanner
(src/health_runner/nccl_runner.py); disjoint pairs by the circle method are SuperBench's pair-wise pattern
(superbench/common/utils/gen_traffic_pattern_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from random import Random

from gpudoctor.cluster.preflight import MOST_ROUNDS
from gpudoctor.cluster.preflight.culprits import judge
from gpudoctor.cluster.preflight.pairs import Limits, Pair

TOURNAMENT_HOSTS = 8
"""Up to so many hosts meet as in a tournament."""
TOURNAMENT_ROUNDS = 3
_PARTNERS_TRIED = 16
"""So many partners are looked at for one that fits better: rounds of thousands stay fast."""

Two = tuple[str, str]
Pairs = tuple[Two, ...]


def pairs_of_round(
    number: int,
    hosts: Sequence[str],
    measured: Sequence[Pair] = (),
    switches: Mapping[str, str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    few: int = TOURNAMENT_HOSTS,
) -> Pairs:
    """The pairs of hosts that measure each other in round `number`, from 1; none when nothing is in doubt or all rounds
    are over.
    `measured` is what all earlier rounds measured, as far as it is known. `switches` are the leaf switches of those
    hosts of which it is known. `limits` say what is usual where more was measured than that. Up to `few` hosts meet as
    in a tournament. The same arguments give the same pairs.
    """
    shuffled = sorted({*hosts})
    if number > MOST_ROUNDS or len(shuffled) < 2:
        return ()
    leaves = switches or {}
    random = Random(seed)
    random.shuffle(shuffled)
    if len(shuffled) <= few and number <= min(TOURNAMENT_ROUNDS, len(shuffled) - 1 + len(shuffled) % 2):
        return _tournament(number, shuffled)
    if number == 1:
        return _across_switches(shuffled, leaves, random)
    stand = standing_after(shuffled, measured, leaves, limits)
    if stand.settled and not (number == 2 and stand.lopsided):
        return ()
    return tuple(_slowest_with_fastest(stand) if number == 2 else _doubtful_pairs(stand))


def _tournament(number: int, hosts: Sequence[str]) -> Pairs:
    """Pairs of one round of a round-robin tournament (circle method); with an odd number of hosts one rests."""
    ring: list[str | None] = [*hosts, None] if len(hosts) % 2 else [*hosts]
    at = (number - 1) % (len(ring) - 1)
    circle = [ring[0], *ring[1 + at :], *ring[1 : 1 + at]]
    both = zip(circle, reversed(circle), strict=True)
    return tuple((a, b) for a, b in list(both)[: len(circle) // 2] if a is not None and b is not None)


def _across_switches(hosts: Sequence[str], switches: Mapping[str, str], random: Random) -> Pairs:
    """Pairs across switches, taken from the two with most hosts left; the rest are paired below one switch."""
    below: dict[str, list[str]] = {}
    for host in hosts:
        below.setdefault(switches.get(host, f"of {host} alone"), []).append(host)
    left = [(-len(its), random.random(), its) for its in below.values()]
    heapify(left)
    found: list[Two] = []
    while len(left) > 1:
        slow, fast = heappop(left)[2], heappop(left)[2]
        found.append((slow.pop(), fast.pop()))
        for its in (slow, fast):
            if its:
                heappush(left, (-len(its), random.random(), its))
    rest = left[0][2] if left else []
    return (*found, *zip(rest[::2], rest[1::2], strict=False))


def _slowest_with_fastest(stand: Standing) -> list[Two]:
    """Pairs of the slowest host with the fastest, the next slowest with the next fastest, and so on to the middle.

    Of the next 16 partners one not met before comes first, then one below another switch. Takes two hosts or more.
    """
    half = len(stand.order) // 2
    slow = list(reversed(stand.order[-half:]))
    return _matched_partners(stand, slow, stand.order[: len(stand.order) - half])


def _doubtful_pairs(stand: Standing) -> list[Two]:
    """Pairs for hosts in doubt: below a bad switch with each other, else with good hosts, else among themselves; bad
    paths are repeated, and come first with at most `TOURNAMENT_HOSTS` hosts.
    """
    found = _with_bad_paths(stand, []) if len(stand.order) <= TOURNAMENT_HOSTS else []
    for leaf in sorted({stand.switches[host] for host in stand.at_home}):
        below = [host for host in stand.order if host in stand.at_home and stand.switches[host] == leaf]
        below += [host for host in stand.good if stand.switches.get(host) == leaf][: len(below) % 2]
        found += _matched_partners(stand, below[::2], below[1::2], at_home=True)
    ends = {host for pair in stand.again for host in pair}
    doubtful = _unpaired([host for host in reversed(stand.order) if host in stand.doubt], found)
    good = sorted(_unpaired(stand.good, found), key=lambda host: host in ends)
    found += _matched_partners(stand, doubtful, good)
    left = _unpaired(doubtful, found)
    found += _matched_partners(stand, left[::2], left[1::2])
    return _with_bad_paths(stand, found)


def _with_bad_paths(stand: Standing, pairs: Sequence[Two]) -> list[Two]:
    """The pairs, and behind them those pairs with a bad path, to be measured again, whose hosts are in no other."""
    out = [*pairs]
    busy = {host for pair in pairs for host in pair}
    for pair in stand.again:
        if busy.isdisjoint(pair):
            out.append(pair)
            busy |= {*pair}
    return out


def _unpaired(hosts: Sequence[str], pairs: Sequence[Two]) -> list[str]:
    """Hosts that are in none of the pairs."""
    busy = {host for pair in pairs for host in pair}
    return [host for host in hosts if host not in busy]


def _matched_partners(
    stand: Standing, hosts: Sequence[str], partners: Sequence[str], at_home: bool = False
) -> list[Two]:
    """Pairs of each host with the best of the next 16 partners, until a list is used up; `at_home`: below one
    switch.
    """
    waiting = list(partners)
    found: list[Two] = []
    for host in hosts[: len(waiting)]:
        partner = min(waiting[:_PARTNERS_TRIED], key=partial(_misfit, stand, at_home, host))
        waiting.remove(partner)
        found.append((host, partner))
    return found


def _misfit(stand: Standing, at_home: bool, host: str, partner: str) -> tuple[bool, bool]:
    """Sort key of a pair, lowest is best: not met before, then below different switches (the same one if `at_home`)."""
    leaf = stand.switches.get(host)
    same = stand.switches.get(partner) == leaf
    return partner in stand.met.get(host, ()), leaf is not None and same != at_home


# ---- How the hosts stand after some rounds ----
# The fastest first, who is in doubt, who met whom.


@dataclass(frozen=True)
class Standing:
    """Ranking of the hosts after some rounds, and who is in doubt."""

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
        """True if no host is in doubt and no pair is to be measured again."""
        return not (self.doubt or self.again)


def standing_after(
    hosts: Sequence[str], measured: Sequence[Pair], switches: Mapping[str, str], limits: Limits | None = None
) -> Standing:
    """Ranking of the hosts by all measurements so far, and who is in doubt; equal hosts keep the order given."""
    judged = judge(measured, switches, limits)
    speeds, met = _best_speeds(measured), _partners_met(measured)
    known = set(hosts)
    doubt = judged.doubt & known | (known - met.keys())
    bad_switches = {name for weighed in judged.weighed for name, _ in weighed.switches}
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


def _best_speeds(measured: Sequence[Pair]) -> dict[str, float]:
    """Best rate of each host in Gbit/s, in its slower direction; of those that sent anything."""
    sends: dict[str, float] = {}
    receives: dict[str, float] = {}
    for pair in measured:
        for source, target, way in pair.directions:
            if way.gbps is not None:
                sends[source] = max(way.gbps, sends.get(source, 0.0))
                receives[target] = max(way.gbps, receives.get(target, 0.0))
    return {host: min(rate, receives.get(host, inf)) for host, rate in sends.items()}


def _partners_met(measured: Sequence[Pair]) -> dict[str, set[str]]:
    """Hosts that each host was measured with; pairs without any result do not count."""
    met: dict[str, set[str]] = {}
    for pair in measured:
        if pair.ms is not None or any(way.outcome is not None or way.gbps is not None for _, _, way in pair.directions):
            met.setdefault(pair.a, set()).add(pair.b)
            met.setdefault(pair.b, set()).add(pair.a)
    return met
