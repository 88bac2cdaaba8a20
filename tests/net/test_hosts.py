"""The hosts that other tests rely on: each fault is there, on the right host, and gone when it is removed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from tests.net.faults import Way
from tests.net.hosts import Host, Hosts

pytestmark = pytest.mark.full

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""
_LISTEN = """
import selectors, socket
with selectors.DefaultSelector() as ears:
    for port in (29500, 29501):
        ears.register(socket.create_server(("", port)), 1)
    datagrams = socket.socket(type=socket.SOCK_DGRAM)
    datagrams.bind(("", 7))
    ears.register(datagrams, 1)
    print("ready", flush=True)
    while True:
        for key, _ in ears.select():
            if key.fileobj is datagrams:
                datagrams.sendto(*datagrams.recvfrom(65536))
            else:
                key.fileobj.accept()[0].close()
"""
_PING = """
import socket, sys, time
def once():
    begun = time.perf_counter()
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        asked.settimeout(0.3)
        asked.connect((sys.argv[1], 7))
        try:
            asked.send(bytes(int(sys.argv[2])))
            asked.recv(65536)
        except TimeoutError:
            return float("inf")
    return time.perf_counter() - begun
print(min(once() for _ in range(4)) * 1000)
"""


HEADERS = 28
"""Of an IPv4 datagram."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        assert listening(made[1])
        assert listening(made[2])
        yield made


def listening(host: Host) -> bool:
    process = host.start([sys.executable, "-c", _LISTEN])
    assert process.stdout
    return process.stdout.readline() == "ready\n"


def tried(host: Host, name: str, port: int = 29500, seconds: float = 0.5) -> str:
    return host.run([sys.executable, "-c", _CONNECT, name, str(port), str(seconds)]).stdout.strip()


def ping(host: Host, name: str, size: int = 8) -> float:
    """Milliseconds there and back of a datagram, the best of a few; infinite where none came back."""
    return float(host.run([sys.executable, "-c", _PING, name, str(size)]).stdout)


def test_each_has_a_name_addresses_and_an_interface_that_leads_nowhere(hosts: Hosts) -> None:
    assert hosts[2].run(["hostname"]).stdout == "node2\n"
    assert hosts[2].run(["ls", "/sys/class/net"]).stdout.split() == ["eth0", "lo", "mgmt0"]
    assert [tried(hosts[2], name) for name in ("node1", "10.77.0.2")] == ["connected"] * 2
    assert tried(hosts[2], "10.88.1.1") == "OSError", "no route to another host's mgmt0"


def test_ports_are_dropped_refused_or_unroutable_on_one_host(hosts: Hosts) -> None:
    with hosts[1].drop(29500):
        assert tried(hosts[0], "node1") == "TimeoutError"
        assert tried(hosts[0], "node1", 29501) == "connected"
    with hosts[1].refuse(29500):
        assert tried(hosts[0], "node1") == "ConnectionRefusedError"
    with hosts[1].unroutable(29500):
        assert tried(hosts[0], "node1") == "OSError"
    with hosts[1].only(29501):
        assert tried(hosts[0], "node1") == "TimeoutError"
        assert tried(hosts[0], "node1", 29501) == "connected"
    with hosts[1].drop(29500, peer=hosts[0]):
        assert [tried(hosts[number], "node1") for number in (0, 2)] == ["TimeoutError", "connected"]
    with hosts[0].drop(29500, way="from"):
        assert [tried(hosts[number], "node1") for number in (0, 2)] == ["TimeoutError", "connected"]
    assert tried(hosts[0], "node1") == "connected"


def test_a_name_is_forgotten_or_leads_to_loopback_on_one_host(hosts: Hosts) -> None:
    hosts[0].knows("node1", "127.0.1.1")
    assert tried(hosts[0], "node1") == "ConnectionRefusedError"
    hosts[0].knows("node1", None)
    assert tried(hosts[0], "node1") == "gaierror"
    assert tried(hosts[2], "node1") == "connected"
    hosts[0].knows("node1", hosts[1].address)
    assert tried(hosts[0], "node1") == "connected"


def test_the_cable_can_be_out(hosts: Hosts) -> None:
    with hosts[1].unplugged():
        assert tried(hosts[0], "node1") == "TimeoutError"
    assert tried(hosts[0], "node1", seconds=5) == "connected"


@pytest.mark.parametrize("way", ["from", "to", "both"])
def test_a_hole_swallows_large_packets_alone(hosts: Hosts, way: Way) -> None:
    with hosts[1].hole(1000, way=way):
        assert ping(hosts[0], "node1", 1000 - HEADERS) < inf
        assert ping(hosts[0], "node1", 1001 - HEADERS) == inf
        assert ping(hosts[0], "node2", 1001 - HEADERS) < inf
    assert ping(hosts[0], "node1", 1001 - HEADERS) < inf


def test_a_delay_is_for_one_host_or_one_pair(hosts: Hosts) -> None:
    with hosts[1].delay(20):
        assert ping(hosts[0], "node1") > 40 > ping(hosts[0], "node2")
    with hosts[1].delay(20, peer=hosts[2]):
        assert ping(hosts[2], "node1") > 40 > ping(hosts[0], "node1")
    assert ping(hosts[2], "node1") < 40


@pytest.mark.parametrize("way", ["from", "to"])
def test_what_is_lost_is_lost_between_two_hosts(hosts: Hosts, way: Way) -> None:
    with hosts[1].loss(1.0, way, peer=hosts[2]):
        assert ping(hosts[2], "node1") == inf
        assert ping(hosts[0], "node1") < inf


def test_one_rank_on_each_host_as_torchrun_would_start_them(hosts: Hosts) -> None:
    told = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['MASTER_ADDR'], 'x' * 100000)"
    ended = hosts.ranks([sys.executable, "-c", told])
    assert [one.stdout.split()[:3] for one in ended] == [[str(rank), "3", "node0"] for rank in range(3)]


def test_what_was_started_ends_with_the_hosts() -> None:
    with Hosts(2) as hosts:
        left = hosts[1].start(["sh", "-c", "setsid sleep 1000 & echo $!; wait"])
        assert left.stdout
        grandchild = left.stdout.readline().strip()
    assert left.returncode is not None
    assert not runs(grandchild)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
