"""Collectives between hosts, by Gloo and a real torch, with faults on the network between them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.kernels.across import Across, collective_rows
from tests import needs
from tests.cluster.net.hosts import Hosts

pytestmark = pytest.mark.full

RANK = Path(__file__).with_name("across_rank.py")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        yield made


def _answers(hosts: Hosts, seconds: float = 24.0, **env: str) -> list[Across]:
    """Each host's rank's, one a host."""
    argv = [sys.executable, str(RANK), needs.torch_python(), str(seconds)]
    done = hosts.ranks(argv, {"PYTHONPATH": str(needs.REPOSITORY), **env})
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


def test_sound_hosts_have_right_values_over_the_interface_that_gloo_took(hosts: Hosts) -> None:
    answers = _answers(hosts)
    assert [(answer.why, answer.host) for answer in answers] == [("", f"node{number}") for number in range(3)]
    rows = _rows(answers)
    assert len(rows) == 12
    assert min(row["bytes"] for row in rows) >= 4 << 10
    assert sum(row["bytes"] >= 1 << 20 for row in rows) == 6
    for row in rows:
        assert (row["leg"], row["state"], row["right"], row["ranks"]) == ("network", "measured", True, 3)
        assert row["via"] == tuple(f"eth0 10.77.0.{number}" for number in (1, 2, 3))


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
        answers = _answers(hosts, seconds=12.0)
    assert answers[0].why == "ranks 1, 2 did not come"
    for answer in answers[1:]:
        assert answer.step == "store at node0 port 29500"
        assert "trying to connect to (node0, 29500)" in answer.why
