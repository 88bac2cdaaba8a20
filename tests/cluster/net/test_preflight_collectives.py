"""Level standard: collectives by torch.distributed over all ranks, each in a child of its own host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.net.hosts import Hosts
from tests.cluster.net.job import Job
from tests.needs import torch_python

pytestmark = pytest.mark.full


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
