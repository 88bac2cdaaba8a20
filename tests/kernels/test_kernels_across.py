"""What the ranks of a job do together, and what they say of it as facts: slow, wrong, failed and missing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.core.fact import Known, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.kernels.across_hosts import Across, Ended, Found, Via, collective_rows
from gpudoctor.kernels.child.collective._across_hosts import (
    Leg,
    Place,
    device_and_place,
    group_of,
    legs,
    make_plan,
    missing_gpu_message,
    plan_from_json,
)
from gpudoctor.kernels.child.training import _host

GB = 10**9


def _found(leg: str = "all", group: int = 0, ranks: int = 4, alone: float = 1.0, **more: Any) -> Found:
    made = Found(leg, "nccl", "all_reduce", group, ranks, GB, 0.5, alone, 0, 100)
    return replace(made, **more)


def _rank(rank: int, *found: Found, **more: Any) -> Across:
    return Across(rank, f"host{rank // 2}", rank % 2, found, **more)


def _known(answers: Sequence[Across]) -> list[dict[str, Any]]:
    rows = collective_rows(answers)
    snapshot = Snapshot(Target("fleet", "job"), {}, {"collective": rows})
    assert not list(catalog().misfits(snapshot))
    return [{name: state.value for name, state in row.items() if isinstance(state, Known)} for row in rows]


def test_bandwidth_is_nccl_tests_of_the_slowest_rank_and_group() -> None:
    (row,) = _known([_rank(rank, _found(seconds=0.5 if rank else 1.0)) for rank in range(4)])
    assert (row["algbw"], row["busbw"], row["ranks"], row["groups"]) == (1.0, 1.5, 4, 1)
    assert (row["leg"], row["backend"], row["operation"], row["bytes"]) == ("all", "nccl", "all_reduce", GB)
    # One call that took long by chance, in a group that is fast, names nobody.
    answers = [_rank(rank, _found("node", rank // 2 * 2, 2, seconds=2.0 if rank < 2 else 1.0)) for rank in range(6)]
    hiccup = replace(answers[5], found=(replace(answers[5].found[0], alone=9.0),))
    (row,) = _known([*answers[:5], hiccup])
    assert (row["host"], row["busbw"]) == ("host0", 0.5)


def test_the_slow_host_of_a_leg_is_named_beside_the_usual_rate() -> None:
    answers = [
        _rank(rank, _found("node", rank // 2 * 2, 2, alone := 4.0 if rank // 2 == 1 else 1.0, seconds=alone))
        for rank in range(8)
    ]
    (row,) = _known(answers)
    assert (row["groups"], row["busbw"], row["usual"]) == (4, 0.25, 1.0)
    assert (row["slowest"], row["host"], row["ratio"]) == (2, "host1", 4.0)


def test_wrong_values_name_their_ranks() -> None:
    (row,) = _known([_rank(rank, _found(differ=3 if rank == 3 else 0)) for rank in range(4)])
    assert (row["right"], row["culprits"], row["hosts"]) == (False, (3,), ("host1",))
    assert row["words"] == "rank 3 (host host1): 3 of 100 values are wrong"


def test_of_ranks_that_are_missing_nothing_is_said_and_the_others_count() -> None:
    answers = [_rank(rank, _found()) for rank in (0, 1, 3)]
    (row,) = collective_rows(answers)
    assert row["right"] == Unread("3 of 4 ranks answered")
    assert _known(answers)[0]["busbw"] == 3.0
    assert collective_rows([]) == ()


def test_a_leg_that_failed_names_who_crashed_before_those_that_waited() -> None:
    waited = Ended("network", "nccl", "", "RuntimeError: Connection closed by peer [10.0.0.2]", False, "first", 5)
    step = {"step": "all_reduce 1 MiB", "steps": 6}
    answers = [
        _rank(0, _found("node"), ended=(waited,)),
        _rank(1, _found("node"), ended=(waited,)),
        _rank(2, _found("node"), why="was killed by SIGSEGV", leg="network", backend="nccl", **step),
    ]
    measured, failed = _known(answers)
    assert (measured["leg"], measured["state"]) == ("node", "measured")
    assert (failed["leg"], failed["state"], failed["operation"]) == ("network", "failed", "all_reduce")
    assert (failed["culprits"], failed["hosts"]) == ((2,), ("host1",))
    assert failed["words"].startswith('rank 2 was killed by SIGSEGV at "all_reduce 1 MiB" (host host1); rank 0 failed')
    assert failed["advice"]


def test_what_nccl_warned_of_comes_first_and_where_all_waited_all_are_named() -> None:
    ended = Ended("all", "nccl", "", "DistBackendError: NCCL error", False)
    warned = "Call to ibv_reg_mr failed with error Cannot allocate memory"
    (row,) = _known([_rank(0, ended=(ended,), warned=warned)])
    assert row["words"].startswith(f"NCCL: {warned}; rank 0 failed")
    assert "ulimit -l" in row["advice"]
    ended = Ended("network", "gloo", "", "RuntimeError: Gloo connectFullMesh failed with Connect timeout [none]", False)
    (row,) = _known([_rank(rank, ended=(ended,)) for rank in range(4)])
    assert (row["culprits"], row["hosts"]) == ((0, 1, 2, 3), ("host0", "host1"))
    assert row["words"].endswith("; and 1 more")
    assert "advice" not in row


def test_what_cannot_be_measured_is_no_failure() -> None:
    ended = Ended("all", "gloo", "reduce_scatter", "RuntimeError: Gloo does not support it", True)
    (row,) = _known([_rank(rank, ended=(ended,)) for rank in range(4)])
    assert (row["state"], row["operation"]) == ("not-measured", "reduce_scatter")
    assert row["words"] == "RuntimeError: Gloo does not support it"
    assert collective_rows([_rank(0, why="rank 1 did not come", cannot=True, leg="all", backend="gloo")]) == ()
    zero = _found(size=0)
    assert collective_rows([_rank(0, zero, _found(operation="gossip"), _found(ranks=0))]) == ()
    (row,) = _known([_rank(0, _found(ranks=1, seconds=0.0, alone=0.0))])
    assert row["right"]


def test_how_the_data_went_is_gathered_from_all_ranks_by_leg() -> None:
    via = [
        (Via("node", "nccl", ("P2P/CUMEM",)), Via("network", "nccl", (way,))) for way in ("NET/IB/GDRDMA", "NET/Socket")
    ]
    answers = [_rank(rank, _found("network", ranks=2), via=via[rank]) for rank in range(2)]
    (row,) = _known(answers)
    assert row["via"] == ("NET/IB/GDRDMA", "NET/Socket")


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"rank": "0", "found": 7, "ended": [1], "via": "x", "seconds": float("nan"), "host": None, "cannot": 1},
        {"rank": True, "found": [{"leg": "all"}, {"size": 10**400}], "seconds": 10**400, "why": ["x"]},
    ],
)
def test_an_answer_of_another_shape_is_read_for_what_it_is(raw: dict[str, Any]) -> None:
    assert Across.from_json(raw) == Across(-1, "", -1)
    assert collective_rows([Across.from_json(raw)]) == ()


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


def test_memory_that_a_container_withholds_is_not_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": "MemAvailable: 536870912 kB",
        "/proc/self/cgroup": "0::/pod",
        "/sys/fs/cgroup/pod/memory.max": str(16 * GIB),
        "/sys/fs/cgroup/pod/memory.current": str(GIB),
    }
    monkeypatch.setattr(_host, "read_text", lambda path: files.get(path, ""))
    _, place = device_and_place(None, {"rank": 0, "host": "a", "local_rank": 0, "backend": "gloo"})
    assert place.memory == 15 * GIB


def test_given_groups_replace_the_usual_ones_and_the_plan_survives_the_store() -> None:
    (leg,) = _plan(_places({"a": 2, "b": 2}), legs={"left": [[0, 1]]})
    assert (leg.name, leg.groups, group_of(leg, 1), group_of(leg, 2)) == ("left", [[0, 1]], (0, 1), ())
    plan = _plan(_places({"a": 2, "b": 2}))
    assert json.dumps(plan_from_json(json.loads(json.dumps(plan)))) == json.dumps(plan)
    assert {type(leg) for leg in plan_from_json(json.loads(json.dumps(plan)))} == {Leg}
