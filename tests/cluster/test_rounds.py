"""Which hosts measure each other in which round."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from gpudoctor.cluster.job import ROUNDS, rounds
from gpudoctor.cluster.job.pairs import CONNECTED, Direction, Pair
from tests.cluster.fabric.fabric import Fabric, Fault, hosts

GOOD = Direction(CONNECTED, 90.0, 10_000, 2)
SLOW = Direction(CONNECTED, 9.0, 10_000, 2)


def alike(number: int, pairs: rounds.Pairs, slow: frozenset[str] = frozenset()) -> list[Pair]:
    """Each pair measures the same, but that whoever is `slow` sends and receives slowly."""
    return [Pair(number, a, b, way, way, 0.1) for a, b in pairs for way in [GOOD if slow.isdisjoint((a, b)) else SLOW]]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 64, 1000, 1023])
@pytest.mark.parametrize("switches", [1, 7])
def test_no_host_is_in_two_pairs_of_a_round_and_none_is_forgotten(count: int, switches: int) -> None:
    names, leaves = hosts(count, switches)
    bad = (Fault("host", names[:1], "both", "bandwidth", 0.1), Fault("host", names[1:2], "both", "reach"))
    fabric = Fabric(Random(count), names, leaves, faults=bad)
    measured: list[Pair] = []
    for number in range(1, ROUNDS + 1):
        pairs = rounds.pairs_of_round(number, names, measured, leaves)
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
        assert set(busy) <= set(names)
        measured += fabric.measure(number, pairs)
    assert {host for pair in measured for host in (pair.a, pair.b)} == set(names)
    assert rounds.pairs_of_round(ROUNDS + 1, names, measured, leaves) == ()


def test_the_odd_one_is_first_in_round_2() -> None:
    names, _ = hosts(9, 1)
    first = rounds.pairs_of_round(1, names)
    (odd,) = set(names) - {host for pair in first for host in pair}
    second = rounds.pairs_of_round(2, names, alike(1, first))
    assert second[0][0] == odd


def test_the_same_arguments_give_the_same_pairs_in_whichever_order_hosts_come() -> None:
    names, leaves = hosts(100, 4)
    assert rounds.pairs_of_round(1, names, (), leaves, seed=7) == rounds.pairs_of_round(
        1, names[::-1], (), leaves, seed=7
    )
    assert rounds.pairs_of_round(1, names, (), leaves, seed=7) != rounds.pairs_of_round(1, names, (), leaves, seed=8)


def test_a_host_named_once_for_each_of_its_ranks_is_one_host() -> None:
    assert rounds.pairs_of_round(1, ["b", "a", "a", "b"]) in [(("a", "b"),), (("b", "a"),)]
    assert rounds.pairs_of_round(1, ["a", "a"]) == ()


@pytest.mark.parametrize("leaves", [2, 3, 32])
def test_round_1_is_between_switches(leaves: int) -> None:
    names, switches = hosts(1024, leaves)
    pairs = rounds.pairs_of_round(1, names, (), switches)
    within = sum(switches[a] == switches[b] for a, b in pairs)
    assert within <= len(pairs) // 100


@pytest.mark.parametrize(("count", "needed"), [(2, 1), (3, 3), (4, 3)])
def test_of_few_hosts_every_two_meet_though_nothing_is_in_doubt(count: int, needed: int) -> None:
    names, _ = hosts(count, 1)
    measured: list[Pair] = []
    number = 0
    while pairs := rounds.pairs_of_round(number + 1, names, measured):
        number += 1
        measured += alike(number, pairs)
    assert number == needed
    assert {frozenset((pair.a, pair.b)) for pair in measured} == set(map(frozenset, combinations(names, 2)))


def test_when_nothing_is_in_doubt_there_is_no_second_round() -> None:
    names, _ = hosts(64, 1)
    assert rounds.pairs_of_round(2, names, alike(1, rounds.pairs_of_round(1, names))) == ()


def test_round_2_pairs_the_slow_with_the_fast() -> None:
    names, _ = hosts(64, 1)
    slow = frozenset(names[:3])
    measured = alike(1, rounds.pairs_of_round(1, names), slow)
    tainted = {host for pair in measured if pair.there is SLOW for host in (pair.a, pair.b)}
    for a, b in rounds.pairs_of_round(2, names, measured):
        assert not tainted.issuperset((a, b))


def test_later_rounds_are_for_those_in_doubt_each_with_a_good_one_that_is_new_to_it() -> None:
    names, _ = hosts(64, 1)
    slow = frozenset(names[:3])
    measured: list[Pair] = []
    for number in (1, 2):
        measured += alike(number, rounds.pairs_of_round(number, names, measured), slow)
    third = rounds.pairs_of_round(3, names, measured)
    met = {frozenset((pair.a, pair.b)) for pair in measured}
    assert {a for a, _ in third} == slow
    assert not slow & {b for _, b in third}
    assert met.isdisjoint(map(frozenset, third))


def test_a_pair_that_never_reported_is_measured_in_the_next_round() -> None:
    names, _ = hosts(64, 1)
    first = rounds.pairs_of_round(1, names)
    second = rounds.pairs_of_round(2, names, alike(1, first[1:]))
    assert set(first[0]) <= {host for pair in second for host in pair}
    assert set(first[0]) not in map(set, second)


def test_when_more_than_half_are_tainted_the_fast_ones_are_not_taken_for_odd() -> None:
    names, _ = hosts(16, 1)
    first = rounds.pairs_of_round(1, names)
    slow = frozenset(a for a, _ in first[:5])
    measured = alike(1, first, slow)
    second = rounds.pairs_of_round(2, names, measured)
    assert len(second) == 8


def test_hosts_below_a_bad_switch_meet_each_other_in_round_3() -> None:
    names, switches = hosts(256, 8)
    fabric = Fabric(Random(1), names, switches, faults=(Fault("switch", ("leaf03",), "from", "bandwidth", 0.2),))
    measured: list[Pair] = []
    for number in (1, 2):
        measured += fabric.measure(number, rounds.pairs_of_round(number, names, measured, switches))
    third = rounds.pairs_of_round(3, names, measured, switches)
    home = [host for pair in third if {switches[one] for one in pair} == {"leaf03"} for host in pair]
    assert len(home) >= 30


def test_a_dead_host_is_nobodys_partner_once_it_is_known() -> None:
    fabric = Fabric(Random(1), *hosts(3, 1), faults=(Fault("host", ("n0001",), "both", "reach"),))
    measured: list[Pair] = []
    for number in (1, 2, 3):
        measured += fabric.measure(number, rounds.pairs_of_round(number, fabric.hosts, measured))
    slow = [replace(pair, there=SLOW, back=GOOD) if "n0001" not in (pair.a, pair.b) else pair for pair in measured]
    (fourth,) = rounds.pairs_of_round(4, fabric.hosts, slow)
    assert set(fourth) == {"n0000", "n0002"}
