"""Who differs: the few against a clear majority, rates by their spread, hosts of one kind among themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gpudoctor.cluster.fleet.findings import Outlier, find_outliers
from gpudoctor.cluster.fleet.summary import Rate, Summary

DRIVER = "driver.version"


def hosts(values: Sequence[str], fact: str = DRIVER, gpu: str = "H100") -> list[Summary]:
    """A host for each value."""
    return [Summary(f"n{number}", values={fact: value}, gpu=gpu) for number, value in enumerate(values, 1)]


def rated(rates: Sequence[float], gpu: str = "H100", first: int = 1) -> list[Summary]:
    """A host for each rate of a matrix product."""
    return [
        Summary(f"n{number}", rates={"matmul.bf16": Rate(value, "TFLOP/s", 2)}, gpu=gpu)
        for number, value in enumerate(rates, first)
    ]


def told(outliers: Sequence[Outlier]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Value, usual value and hosts of each."""
    return [(one.value, one.usual, one.hosts) for one in outliers]


def test_the_minority_is_named() -> None:
    outliers, splits = find_outliers(hosts(["580", "580", "570", "580"]))
    assert told(outliers) == [("570", "580", ("n3",))]
    assert (outliers[0].of, outliers[0].matters, splits) == (4, True, [])


@pytest.mark.parametrize("values", [["580"], ["580", "570"], ["580", "580", "580"]])
def test_two_hosts_or_equal_ones_have_no_outlier(values: list[str]) -> None:
    assert find_outliers(hosts(values)) == ([], [])


def test_half_against_half_is_told_once_and_blames_nobody() -> None:
    outliers, splits = find_outliers(hosts(["580", "570"] * 4))
    assert outliers == []
    assert [(one.fact, one.values, one.of) for one in splits] == [(DRIVER, (("580", 4), ("570", 4)), 8)]


def test_several_minorities_are_each_told() -> None:
    outliers, _ = find_outliers(hosts(["580"] * 8 + ["570", "570", "550"]))
    assert told(outliers) == [("570", "580", ("n9", "n10")), ("550", "580", ("n11",))]


def test_who_did_not_say_counts_neither_way() -> None:
    summaries = [*hosts(["580", "580", "580"]), Summary("n8"), Summary("n9", because="timed out")]
    assert find_outliers(summaries) == ([], [])


def test_a_variable_that_only_one_host_has_is_not_set_on_the_others() -> None:
    summaries = [Summary(f"n{number}") for number in range(1, 4)]
    outliers, _ = find_outliers([*summaries, Summary("n4", values={"env.NCCL_P2P_DISABLE": "1"})])
    assert told(outliers) == [("1", "not there", ("n4",))]


def test_memory_that_the_kernel_keeps_is_no_difference() -> None:
    outliers, splits = find_outliers(hosts(["1031521", "1031519", "1031400", "515000"], "host.memory_mib"))
    assert [one.hosts for one in outliers] == [("n4",)]
    assert splits == []


def test_hosts_with_other_gpus_are_compared_among_their_own() -> None:
    h100 = hosts(["580"] * 6)
    t4 = [Summary(f"t{number}", values={DRIVER: "550"}, gpu="T4") for number in range(1, 5)]
    odd = Summary("t9", values={DRIVER: "470"}, gpu="T4")
    outliers, splits = find_outliers([*h100, *t4, odd])
    assert [(one.hosts, one.usual, one.kind) for one in outliers] == [(("t9",), "550", "T4")]
    assert splits == []


def test_a_host_with_other_gpus_is_itself_told() -> None:
    values = {"gpu.name": "8 × H100"}
    summaries = [Summary(f"n{number}", values=values, gpu="H100") for number in range(1, 8)]
    outliers, _ = find_outliers([*summaries, Summary("n8", values={"gpu.name": "7 × H100"}, gpu="H100")])
    assert told(outliers) == [("7 × H100", "8 × H100", ("n8",))]


def test_a_stranger_is_told_and_a_fleet_of_two_kinds_has_none() -> None:
    h100 = [Summary(f"n{number}", gpu="H100") for number in range(1, 20)]
    outliers, splits = find_outliers([*h100, Summary("n20", gpu="A10")])
    assert [(*one, splits) for one in told(outliers)] == [("A10", "H100", ("n20",), [])]
    assert find_outliers([*h100, *(Summary(f"a{number}", gpu="A10") for number in range(1, 10))]) == ([], [])


def test_a_slow_gpu_is_told_with_its_share() -> None:
    outliers, _ = find_outliers(rated([722, 719, 725, 478, 721]))
    (slow,) = outliers
    assert (slow.hosts, slow.value, slow.usual, slow.share) == (("n4",), "478 TFLOP/s on GPU 2", "721 TFLOP/s", 0.663)


def test_where_the_others_are_close_together_little_less_is_slow() -> None:
    assert find_outliers(rated([100, 99, 101, 100, 91, 100, 100]))[0] != []


@pytest.mark.parametrize(
    "summaries",
    [
        rated([100, 80, 120, 90, 110, 70, 130]),
        rated([100, 100, 100, 150]),
        [*rated([700] * 5), *rated([65] * 5, "T4", 11)],
        rated([100] * 5 + [50] * 4),
    ],
    ids=["far apart", "faster than the others", "beside a faster kind", "nearly half"],
)
def test_whose_rate_is_no_fault(summaries: list[Summary]) -> None:
    assert find_outliers(summaries)[0] == []


def test_chance_alone_makes_nobody_slow() -> None:
    noise = random.Random(11)
    suspected = sum(
        len(one.hosts)
        for _ in range(20)
        for one in find_outliers(rated([noise.gauss(700, 25) for _ in range(1000)]))[0]
    )
    assert suspected == 0
