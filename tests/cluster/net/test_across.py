"""Collectives between hosts by Gloo and a real torch, alone and in a preflight, with faults on the network between."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.kernels.across_hosts import Across, collective_rows
from tests import needs
from tests.cluster.net.hosts import Hosts, Job
from tests.needs import torch_python

pytestmark = pytest.mark.full

RANK = Path(__file__).with_name("across_rank.py")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        yield made


def _answers(hosts: Hosts, seconds: float = 60.0, **env: str) -> list[Across]:
    """Each host's rank's, one a host."""
    argv = [sys.executable, str(RANK), needs.torch_python(), str(seconds)]
    done = hosts.ranks(argv, {"PYTHONPATH": str(needs.REPOSITORY), **env}, timeout=seconds + 60)
    return [Across.from_json(json.loads(one.stdout)) for one in done]


def _rows(answers: list[Across]) -> list[dict[str, Any]]:
    """The facts by column, those alone that are known."""
    return [
        {name: state.value for name, state in row.items() if isinstance(state, Known)}
        for row in collective_rows(answers)
    ]


def _failed(answers: list[Across]) -> dict[str, Any]:
    (row,) = [row for row in _rows(answers) if row["state"] == "failed"]
    return row


def test_a_slow_host_slows_the_ring_and_no_value_is_wrong(hosts: Hosts) -> None:
    with hosts[1].slow(40, "both"):
        rows = _rows(_answers(hosts))
    ring = max((row for row in rows if row["operation"] == "send_receive"), key=lambda row: int(row["bytes"]))
    assert ring["right"]
    assert 8 * ring["busbw"] < 0.060


def test_names_that_are_loopback_are_refused_by_their_address(hosts: Hosts) -> None:
    for host in hosts:
        host.knows(host.name, "127.0.1.1")
    try:
        answers = _answers(hosts, MASTER_ADDR=hosts[0].address)
    finally:
        for host in hosts:
            host.knows(host.name, host.address)
    assert "Connection refused, remote=[127.0.1.1]" in _failed(answers)["words"]
    assert [answer.why for answer in answers] == [""] * 3


def test_where_only_the_store_is_open_gloo_gives_up_in_time(hosts: Hosts) -> None:
    """It takes five times its timeout, and names nobody."""
    with hosts[0].only(29500):
        answers = _answers(hosts)
    assert "Gloo connectFullMesh failed with Connect timeout" in _failed(answers)["words"]


def test_large_packets_that_vanish_stop_what_small_ones_began(hosts: Hosts) -> None:
    with hosts[1].hole(1000):
        answers = _answers(hosts)
    failed = _failed(answers)
    assert failed["via"] == tuple(f"eth0 10.77.0.{number}" for number in (1, 2, 3))
    assert "Timed out waiting 2500ms for" in failed["words"]


def test_a_store_that_nobody_can_reach_is_said_by_every_rank(hosts: Hosts) -> None:
    with hosts[0].drop(29500):
        answers = _answers(hosts, seconds=30.0)
    assert answers[0].why == "ranks 1, 2 did not come"
    for answer in answers[1:]:
        assert answer.step == "store at node0 port 29500"
        assert "trying to connect to (node0, 29500)" in answer.why


def document(hosts: Hosts, pythons: list[str], code: int = 0) -> Any:
    """What rank 0 says of a job whose ranks have these interpreters."""
    words = ("--json", "--level", "standard")
    env = {rank: {"VIRTUAL_ENV": str(Path(python).parents[1])} for rank, python in enumerate(pythons)}
    ended = Job(hosts, words, env).ended(120)
    assert {one.code for one in ended.values()} == {code}, ended
    return ended[0].document


def test_gloo_over_two_hosts_gives_right_values(two: Hosts) -> None:
    found = document(two, [torch_python()] * 2)
    rows = [{name: fact.get("value") for name, fact in row.items()} for row in found["facts"]["collective"]]
    assert {row["operation"] for row in rows} >= {"all_reduce", "all_gather", "broadcast", "send_receive"}
    assert {(row["leg"], row["backend"], row["state"], row["right"]) for row in rows} == {
        ("network", "gloo", "measured", True)
    }
    assert {way for row in rows for way in row["via"]} == {"eth0 10.77.0.1", "eth0 10.77.0.2"}
    judged = {item["id"] for item in found["unjudged"]}
    assert not judged & {"nccl.failed", "nccl.wrong-results", "nccl.slow-group"}


def test_that_one_rank_has_no_torch_is_said_and_no_fault(two: Hosts) -> None:
    found = document(two, [torch_python(), sys.executable])
    assert found["facts"]["collective"] == {"unread": "rank 1 on node1: torch is not installed in this interpreter"}
    assert "nccl.failed" in {item["id"] for item in found["unjudged"]}


def test_where_hosts_do_not_reach_each_other_no_collective_is_begun(two: Hosts) -> None:
    with two[1].only(29500):
        found = document(two, [torch_python()] * 2, code=1)
    assert {one["id"] for one in found["findings"] if one["severity"] == "error"} == {"nccl.unreachable"}
    assert "do not reach each other" in found["facts"]["collective"]["unread"]
