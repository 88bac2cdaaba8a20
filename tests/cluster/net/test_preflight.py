"""Each fault of a network gives its id, its host and its direction, on all ranks that can know, within 25 s."""

import re
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.net.faults import Fault
from tests.cluster.net.hosts import PORT, Env, Hosts, Job
from tests.environments import Venv
from tests.processes import Ran

pytestmark = pytest.mark.full

DELAYED = r"([4-9]\d|\d{3,})"
"""Milliseconds of a round trip where each way waits 20: on a busy machine more."""
SOON = ("--json", "--budget", "25")
"""With less time for those who do not come."""
Broken = Callable[[Hosts], AbstractContextManager[Any]]
UNREACHABLE = "nccl.unreachable"


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


def told(job: Job, code: int = 1) -> Ran:
    """What rank 0 says for all, who end alike and in time."""
    ended = job.ended()
    assert {rank: one.code for rank, one in ended.items()} == dict.fromkeys(ended, code), ended
    assert [rank for rank, one in ended.items() if one.out] == [0], ended
    return ended[0]


def only(ended: Ran, name: str) -> str:
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
        (lambda hosts: hosts[1].slow(10, "from"), "nccl.slow", "from node1 to node0"),
        (lambda hosts: hosts[1].slow(10, "to"), "nccl.slow", "from node0 to node1"),
        (lambda hosts: hosts[1].delay(20), "nccl.slow", rf"between node0 and node1 a round trip takes {DELAYED}"),
    ],
    ids=["refused", "filtered", "loss from", "loss to", "slow from", "slow to", "delay"],
)
def test_a_fault_between_two_hosts(two: Hosts, fault: Broken, name: str, says: str) -> None:
    with fault(two):
        assert re.search(says, only(told(Job(two)), name))


def test_packets_that_are_too_large_vanish() -> None:
    with Hosts(2, mtu=9000) as hosts, hosts[1].hole(1500):
        said = only(told(Job(hosts)), "nccl.mtu")
    assert "between node0 and node1 packets of more than 1500 bytes vanish" in said


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({1: {"NCCL_SOCKET_IFNAME": "mgmt0", "GLOO_SOCKET_IFNAME": "mgmt0"}}, "node1 announces 10.88.1.1 of mgmt0"),
        ({0: {"NCCL_SOCKET_IFNAME": "mgmt0", "GLOO_SOCKET_IFNAME": "mgmt0"}}, "node0 announces 10.88.0.1 of mgmt0"),
        ({1: {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}}, "node1 announces 127.0.0.1 of lo"),
    ],
    ids=["not connected", "rank 0's not connected", "loopback"],
)
def test_an_interface_that_leads_nowhere(two: Hosts, env: Env, says: str) -> None:
    assert says in only(told(Job(two, env=env)), "nccl.interface")


def test_an_interface_that_is_not_there(two: Hosts) -> None:
    said = told(Job(two, env={1: {"NCCL_SOCKET_IFNAME": "ib9", "GLOO_SOCKET_IFNAME": "ib9"}}))
    assert said.ids == {"nccl.interface"}
    assert all("node1 announces no address to" in title for title in said.titles("nccl.interface"))
    assert len(said.titles("nccl.interface")) == 2


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


@pytest.mark.parametrize(
    ("fault", "name", "culprit", "says"),
    [
        (lambda hosts: hosts[2].loss(0.05, "from"), "nccl.packet-loss", "node2", "node2 sends with"),
        (lambda hosts: hosts[1].slow(10, "from"), "nccl.slow", "node1", "node1 sends at 0.0"),
        (lambda hosts: hosts[1].slow(10, "to"), "nccl.slow", "node1", "node1 receives at 0.0"),
        (lambda hosts: hosts[3].slow(10, "both"), "nccl.slow", "node3", "node3 sends and receives at 0.0"),
        (lambda hosts: hosts[2].delay(20), "nccl.slow", "node2", rf"node2 answers after {DELAYED}"),
        (
            lambda hosts: hosts[0].refuse(PORT),
            UNREACHABLE,
            "node0",
            "node1, node2, node3 cannot reach node0: 10.77.0.1",
        ),
        (lambda hosts: hosts[2].only(PORT), UNREACHABLE, "node2", "node0, node1, node3 cannot reach node2: no answer"),
        (
            lambda hosts: hosts[2].drop("32768-60999", hosts[1]),
            UNREACHABLE,
            "",
            "node1, node2 cannot reach node1, node2",
        ),
        (lambda hosts: everywhere(hosts, lambda host: host.only(PORT)), UNREACHABLE, "", "node3 cannot reach node0"),
    ],
)
def test_a_fault_of_one_among_four(four: Hosts, fault: Broken, name: str, culprit: str, says: str) -> None:
    with fault(four):
        said = told(Job(four))
    assert said.ids == {name}
    assert any(re.search(says, title) for title in said.titles(name)), said.titles(name)
    assert [drain["hosts"] for drain in said.document["fleet"]["drain"]] == [[culprit]] * bool(culprit)


def test_a_host_without_a_route_says_so_and_is_missed(four: Hosts) -> None:
    four[2].namespace.ip("addr del 10.77.0.3/24 dev eth0")
    try:
        ended = Job(four, SOON).ended()
    finally:
        four[2].namespace.ip("addr add 10.77.0.3/24 dev eth0")
    assert {rank: one.code for rank, one in ended.items()} == dict.fromkeys(range(4), 1)
    assert ended[0].titles("nccl.rank-missing") == ["Rank 2: never came to node0 in 5 s"]
    (said,) = ended[2].titles("nccl.unreachable")
    assert said.startswith(f"node2 cannot reach node0: 10.77.0.1 port {PORT}: Network is unreachable")


def test_a_name_that_does_not_resolve(two: Hosts) -> None:
    ended = Job(two, SOON, lambda _: {"MASTER_ADDR": "nohost.example"}).ended()
    for rank, one in ended.items():
        assert one.code == 1
        (said,) = one.titles("nccl.unreachable")
        assert said.startswith(f"node{rank} cannot reach nohost.example: nohost.example: ")
        assert one.document["fleet"]["drain"] == []


def test_a_name_that_one_host_does_not_know(two: Hosts) -> None:
    two[1].knows("node0", None)
    try:
        ended = Job(two, SOON).ended()
    finally:
        two[1].knows("node0", two[0].address)
    assert [one.code for one in ended.values()] == [1, 1]
    assert ended[0].titles("nccl.rank-missing") == ["Rank 1: never came to node0 in 5 s"]
    (said,) = ended[1].titles("nccl.unreachable")
    assert said.startswith("node1 cannot reach node0: node0: ")


def test_a_rank_that_never_comes(two: Hosts) -> None:
    assert only(told(Job(two, missing=[1])), "nccl.rank-missing") == "Rank 1: never came to node0 in 12 s"


def test_ranks_that_were_told_different_sizes(two: Hosts) -> None:
    for wrong in ({0: {"WORLD_SIZE": "3"}}, {1: {"WORLD_SIZE": "3"}}, {1: {"RANK": "2", "WORLD_SIZE": "3"}}):
        said = told(Job(two, SOON, wrong))
        assert said.titles("nccl.world-size") == ["The ranks were told different sizes of the job: 2, 3"]
    assert "nccl.rank-missing" in said.document["findings"][0]["explains"]  # a rank of a larger job is none of ours


def test_two_ranks_0(two: Hosts) -> None:
    ended = Job(two, SOON, {1: {"RANK": "0"}}).ended()
    assert [one.code for one in ended.values()] == [1, 1]
    assert "Rank 0: came more than once: from node0 and from node1" in ended[0].titles("nccl.rank-missing")
    assert "Rank 0: came more than once: from node1 and from node0" in ended[1].titles("nccl.rank-missing")


def test_two_jobs_on_the_same_hosts(two: Hosts) -> None:
    jobs = [Job(two), Job(two, port=PORT + 1)]
    assert [[one.code for one in job.ended().values()] for job in jobs] == [[0, 0], [0, 0]]


def test_two_jobs_that_were_given_one_port(two: Hosts) -> None:
    """Each waits for a third rank, so that neither is over before the other begins."""
    jobs = [Job(two, env={rank: {"WORLD_SIZE": "3"} for rank in range(2)}) for _ in range(2)]
    coordinators = [job.ended()[0] for job in jobs]
    taken = [said for coordinator in coordinators for said in coordinator.titles("nccl.port-in-use")]
    assert len(taken) == 1
    assert taken[0].startswith(f"Port {PORT} on node0 is taken by ")
    assert all(coordinator.code == 1 for coordinator in coordinators)


def test_environments_with_different_nccl(two: Hosts, tmp_path: Path) -> None:
    pythons = [environment(tmp_path / f"env{rank}", nccl) for rank, nccl in enumerate(("2.26.2", "2.27.5"))]
    said = told(Job(two, env=lambda rank: {"VIRTUAL_ENV": str(pythons[rank])}))
    assert said.titles("nccl.version") == ["The ranks have NCCL 2.26.2, 2.27.5; all must have the same"]
    by_rank = {row["rank"]["value"]: row["nccl"]["value"] for row in said.document["facts"]["rank"]}
    assert by_rank == {0: "2.26.2", 1: "2.27.5"}


def environment(folder: Path, nccl: str) -> Path:
    """A virtual environment with torch's wheels of one NCCL version."""
    venv.create(folder)
    version = ".".join(map(str, sys.version_info[:3]))
    made = Venv(Path("/"), version, str(folder))
    made.torch("2.7.0+cu126", "12.6", [f"nvidia-nccl-cu12=={nccl}"])
    made.dist("nvidia-nccl-cu12", nccl)
    return folder


def test_hosts_with_one_name_are_told_apart() -> None:
    with Hosts(2) as hosts:
        uts = ["nsenter", f"--target={hosts[1].namespace.pid}", "--uts", "hostname", "node0"]
        hosts[1].namespace.tell(uts)
        by_address = {rank: {"MASTER_ADDR": hosts[0].address} for rank in range(2)}
        wrong = told(Job(hosts, env=by_address)).titles("nccl.interface")
        hosts[1].knows("node0", hosts[1].address)
        right = told(Job(hosts, env=by_address), code=0)
    assert any(one.startswith("node0 (10.77.0.2) announces 127.0.0.1 of lo to gloo") for one in wrong), wrong
    assert "node0 (10.77.0.2)" in right.titles("nccl.connected")[0]


def test_hosts_that_only_know_ipv6() -> None:
    with Hosts(2) as hosts:
        for host in hosts:
            host.namespace.ip(f"addr del {host.address}/24 dev eth0", "link set mgmt0 down")
            for other in hosts:
                host.knows(other.name, other.address6)
        assert told(Job(hosts), code=0).titles("nccl.connected")


@pytest.mark.parametrize("count", [2, 8])
def test_healthy_hosts_are_a_go(count: int) -> None:
    with Hosts(count) as hosts:
        said = told(Job(hosts), code=0)
    assert said.ids == set()
    assert said.titles("nccl.connected")
    assert (said.document["verdict"], said.document["fleet"]["verdict"]) == ("sound", "go")
