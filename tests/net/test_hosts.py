"""The hosts that other tests rely on: each fault is there, on the right host, and gone when it is removed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.net.hosts import Host, Hosts

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""
_LISTEN = """
import socket
ears = [socket.create_server(("", port)) for port in (29500, 29501)]
print("ready", flush=True)
while True:
    for ear in ears:
        ear.setblocking(False)
        try:
            ear.accept()[0].close()
        except BlockingIOError:
            pass
    __import__("time").sleep(0.001)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        assert listening(made[1])
        yield made


def listening(host: Host) -> bool:
    process = host.start([sys.executable, "-c", _LISTEN])
    assert process.stdout
    return process.stdout.readline() == "ready\n"


def tried(host: Host, name: str, port: int = 29500, seconds: float = 0.5) -> str:
    return host.run([sys.executable, "-c", _CONNECT, name, str(port), str(seconds)]).stdout.strip()


def ping(host: Host, name: str, *options: str) -> bool:
    return host.run(["ping", "-c1", "-W1", *options, name]).returncode == 0


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
    with hosts[1].drop(29500, peer=hosts[0].address):
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
def test_a_hole_swallows_large_packets(hosts: Hosts, way: str) -> None:
    with hosts[1].hole(1000, way=way), hosts[1].delay(1):  # type: ignore[arg-type]
        assert tried(hosts[0], "node1") == "connected"
    assert tried(hosts[0], "node1") == "connected"


def test_what_was_started_ends_with_the_hosts() -> None:
    with Hosts(2) as hosts:
        left = hosts[1].start(["sh", "-c", "setsid sleep 1000 & echo $!; wait"])
        assert left.stdout
        grandchild = left.stdout.readline().strip()
    assert left.returncode is not None
    assert subprocess.run(["kill", "-0", grandchild], check=False, capture_output=True).returncode != 0
