"""What the ranks of a job do together: legs by host and by rail, sizes for which there is room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpudoctor.kernels.child.collective._across import (
    Leg,
    Place,
    group_of,
    legs,
    make_plan,
    missing_gpu_message,
    plan_from_json,
)

GIB = 1 << 30


def _places(hosts: Mapping[str, int], gpu: int = 0, memory: int = 512 * GIB) -> list[Place]:
    """So many ranks on each host."""
    found: list[Place] = []
    for host, count in hosts.items():
        found += [Place(len(found) + local, host, local, memory, gpu) for local in range(count)]
    return found


def _plan(places: Sequence[Place], **ask: Any) -> list[Leg]:
    return make_plan(places, {"backend": "auto", "level": "standard", "legs": {}, **ask})


def test_a_job_of_many_gpus_a_host_has_three_legs() -> None:
    assert legs(_places({"a": 2, "b": 2})) == {
        "node": [[0, 1], [2, 3]],
        "network": [[0, 2], [1, 3]],
        "all": [[0, 1, 2, 3]],
    }


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({"a": 4}, {"node": [[0, 1, 2, 3]]}),
        ({"a": 1, "b": 1}, {"network": [[0, 1]]}),
        ({"a": 2, "b": 1}, {"node": [[0, 1]], "network": [[0, 2]], "all": [[0, 1, 2]]}),
        ({"a": 1}, {"node": [[0]]}),
    ],
)
def test_a_leg_that_is_the_same_as_one_before_is_left_out(
    hosts: dict[str, int], expected: dict[str, list[list[int]]]
) -> None:
    assert legs(_places(hosts)) == expected


def test_with_a_gpu_on_every_rank_nccl_works_and_gloo_meets_once_a_host() -> None:
    plan = _plan(_places({"a": 2, "b": 2}, gpu=80 * GIB))
    assert [(leg.backend, leg.name, leg.groups) for leg in plan] == [
        ("gloo", "network", [[0, 2]]),
        ("nccl", "node", [[0, 1], [2, 3]]),
        ("nccl", "network", [[0, 2], [1, 3]]),
        ("nccl", "all", [[0, 1, 2, 3]]),
    ]
    assert plan[0].operations == ["all_reduce"]


def test_one_rank_without_a_gpu_leaves_gloo_to_all() -> None:
    places = [*_places({"a": 1}, gpu=80 * GIB), Place(1, "b", 0, 512 * GIB, 0, "torch sees no GPU")]
    assert {leg.backend for leg in _plan(places)} == {"gloo"}
    assert missing_gpu_message(places, "auto") == "rank 1 (host b): torch sees no GPU"
    assert (
        missing_gpu_message(places[:1], "auto")
        == missing_gpu_message(places[1:], "auto")
        == missing_gpu_message(places, "gloo")
        == ""
    )


def test_where_nccl_is_asked_for_a_rank_without_a_gpu_leaves_nothing_to_do() -> None:
    (lacking,) = _places({"a": 1})
    assert _plan([lacking], backend="nccl") == []
    assert (
        missing_gpu_message([lacking._replace(no_gpu="torch sees no GPU")], "nccl")
        == "rank 0 (host a): torch sees no GPU"
    )


@pytest.mark.parametrize(
    ("gpu", "memory", "largest"),
    [(80 * GIB, 512 * GIB, GIB), (2 * GIB, 512 * GIB, GIB >> 3), (80 * GIB, 16 * GIB, GIB >> 3)],
)
def test_sizes_end_where_a_gpu_or_the_share_of_a_host_has_no_room(gpu: int, memory: int, largest: int) -> None:
    """Eight ranks of a host share its memory, in which the reference is reckoned."""
    plan = _plan(_places({"a": 8}, gpu, memory), level="deep", backend="nccl")
    assert [max(leg.sizes) for leg in plan] == [largest]


def test_groups_that_are_given_replace_the_usual_ones() -> None:
    (leg,) = _plan(_places({"a": 2, "b": 2}), legs={"left": [[0, 1]]})
    assert (leg.name, leg.groups, group_of(leg, 1), group_of(leg, 2)) == ("left", [[0, 1]], (0, 1), ())


def test_the_plan_is_the_same_after_its_way_through_the_store() -> None:
    plan = _plan(_places({"a": 2, "b": 2}))
    assert json.dumps(plan_from_json(json.loads(json.dumps(plan)))) == json.dumps(plan)
    assert {type(leg) for leg in plan_from_json(json.loads(json.dumps(plan)))} == {Leg}
