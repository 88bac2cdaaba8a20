"""Each fault of a network gives its id, its host and its direction, on all ranks that can know, within 25 s."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from tests.net.faults import Fault
from tests.net.hosts import PORT, Hosts
from tests.net.job import LIMIT, Ended, Env, Job

Broken = Callable[[Hosts], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def two() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def four() -> Iterator[Hosts]:
    with Hosts(4) as hosts:
        yield hosts


def everywhere(hosts: Hosts, fault: Callable[[Any], Fault]) -> ExitStack:
    """The fault on each host."""
    stack = ExitStack()
    for host in hosts:
        stack.enter_context(fault(host))
    return stack


def told(job: Job, code: int = 1) -> Ended:
    """What rank 0 says for all, who end alike and in time."""
    ended = job.ended()
    assert {rank: one.code for rank, one in ended.items()} == dict.fromkeys(ended, code), ended
    assert max(one.seconds for one in ended.values()) < LIMIT
    assert [rank for rank, one in ended.items() if one.out] == [0]
    return ended[0]


def only(ended: Ended, name: str) -> str:
    """Its one bad finding of another severity than information, which is of this kind: what it says."""
    assert ended.ids == {name}
    (title,) = ended.titles(name)
    return title


@pytest.mark.parametrize(
    ("fault", "name", "says"),
    [
        (lambda hosts: hosts[0].refuse(PORT), "nccl.unreachable", "node1 cannot reach node0: 10.77.0.1 refuses port"),
        (lambda hosts: hosts[0].drop(PORT), "nccl.unreachable", "node1 cannot reach node0: no answer from 10.77.0.1"),
        (lambda hosts: hosts[1].loss(0.05, "from"), "nccl.packet-loss", "from node1 to node0"),
        (lambda hosts: hosts[1].loss(0.05, "to"), "nccl.packet-loss", "from node0 to node1"),
        (lambda hosts: hosts[1].slow(50, "from"), "nccl.slow", "from node1 to node0"),
        (lambda hosts: hosts[1].slow(50, "to"), "nccl.slow", "from node0 to node1"),
        (lambda hosts: hosts[1].delay(20), "nccl.slow", "between node0 and node1 a round trip takes 4"),
    ],
    ids=["refused", "filtered", "loss from", "loss to", "slow from", "slow to", "delay"],
)
def test_a_fault_between_two_hosts(two: Hosts, fault: Broken, name: str, says: str) -> None:
    with fault(two):
        assert says in only(told(Job(two)), name)


def test_packets_that_are_too_large_vanish() -> None:
    with Hosts(2, mtu=9000) as hosts, hosts[1].hole(1500):
        said = only(told(Job(hosts)), "nccl.mtu")
    assert "between node0 and node1 packets of more than 1500 bytes vanish" in said


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({1: {"NCCL_SOCKET_IFNAME": "mgmt0", "GLOO_SOCKET_IFNAME": "mgmt0"}}, "node1 announces 10.88.1.1 of mgmt0"),
        ({0: {"NCCL_SOCKET_IFNAME": "mgmt0", "GLOO_SOCKET_IFNAME": "mgmt0"}}, "node0 announces 10.88.0.1 of mgmt0"),
    ],
    ids=["node1", "node0"],
)
def test_an_interface_that_leads_nowhere(two: Hosts, env: Env, says: str) -> None:
    assert says in only(told(Job(two, env=env)), "nccl.interface")


def test_a_name_that_is_a_loopback(two: Hosts) -> None:
    two[1].knows("node1", "127.0.1.1")
    try:
        said = only(told(Job(two)), "nccl.interface")
    finally:
        two[1].knows("node1", two[1].address)
    assert said.startswith("node1 announces 127.0.1.1 of lo to gloo, where node0 cannot reach it")


def test_a_port_that_another_program_has(two: Hosts) -> None:
    listen = f"import socket, time; one = socket.create_server(('', {PORT})); print('on', flush=True); time.sleep(99)"
    process = two[0].start([sys.executable, "-c", listen])
    assert process.stdout
    assert process.stdout.readline() == "on\n"
    said = only(told(Job(two)), "nccl.port-in-use")
    process.kill()
    assert said.startswith(f"Port {PORT} on node0 is taken by python")
    assert said.endswith(f"(pid {process.pid})")


@pytest.mark.parametrize("count", [2, 4, 8])
def test_healthy_hosts_are_a_go(count: int) -> None:
    with Hosts(count) as hosts:
        said = told(Job(hosts), code=0)
    assert said.ids == set()
    assert said.titles("nccl.connected")
    assert (said.document["verdict"], said.document["fleet"]["verdict"]) == ("sound", "go")
