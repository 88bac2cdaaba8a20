"""Which interface NCCL and Gloo take is one answer, whether the kernel is asked or files are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.net.hosts import Host, Hosts
from tests.cluster.net.job import Job

pytestmark = pytest.mark.full

BOTH = """
import json, os, sys
from gpudoctor.cluster.preflight.local import Listeners
from gpudoctor.core.fact import Known
from gpudoctor.probes import network, rendezvous
from gpudoctor.target.local import Local
target = Local("standard", python=sys.executable)
facts = dict(network.probe(target)) | dict(rendezvous.probe(target))
def by_files(user):
    one = {part: facts[f"net.{user}_{part}"] for part in ("interface", "address", "why")}
    if not isinstance(one["interface"], Known):
        return ["", "", one["interface"].why]
    return [fact.value for fact in one.values()]
def live(user, told):
    one = next(one for one in told if user in one["used_by"])
    return [one["interface"], one["address"].partition("%")[0], one["because"]]
listeners = Listeners("the job", "node1", os.environ)
print(json.dumps({user: [by_files(user), live(user, listeners.announced)] for user in ("nccl", "gloo")}))
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two machines, each with a bridge of docker's that has a guest, and with a card that has no carrier."""
    with Hosts(2) as made:
        for one in made:
            one.namespace.ip(
                "link add name docker0 type bridge",
                "addr add 172.17.0.1/16 dev docker0",
                "link set docker0 up",
                "link add guest type veth peer name inside",
                "link set guest master docker0",
                "link set guest up",
                "link set inside up",
                "link add ens1 type veth peer name far1",
                "link set ens1 up",
                "addr add 10.5.0.1/24 dev ens1",
            )
        yield made


@pytest.fixture
def host(hosts: Hosts) -> Host:
    return hosts[1]


def taken(host: Host, **environ: str) -> dict[str, tuple[str, str]]:
    """Interface and address for NCCL and for Gloo, after both roads gave the same."""
    done = host.run([sys.executable, "-c", BOTH], environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, str]] = {}
    for user, (by_files, live) in json.loads(done.stdout).items():
        assert by_files[:2] == live[:2]
        found[user] = by_files[0], by_files[1]
    return found


@pytest.mark.parametrize(
    ("environ", "interface"),
    [
        ({}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "mgmt"}, "mgmt0"),
        ({"NCCL_SOCKET_IFNAME": "^eth,mgmt,docker"}, "lo"),
        ({"NCCL_SOCKET_IFNAME": "=docker0"}, "docker0"),
        ({"NCCL_SOCKET_IFNAME": "ens1"}, ""),
        ({"NCCL_SOCKET_IFNAME": "wlan"}, ""),
        ({"NCCL_SOCKET_FAMILY": "AF_INET6"}, "eth0"),
        ({"NCCL_COMM_ID": "172.17.0.9:29500"}, "docker0"),
        ({"NCCL_COMM_ID": "node0:29500"}, "eth0"),
        ({"NCCL_COMM_ID": "[fd77::1]:29500"}, "eth0"),
        ({"NCCL_COMM_ID": "203.0.113.1:29500"}, ""),
    ],
)
def test_nccl(host: Host, environ: dict[str, str], interface: str) -> None:
    assert taken(host, **environ)["nccl"][0] == interface


def test_a_file_of_nccls_counts_where_the_environment_says_nothing(host: Host, tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("NCCL_SOCKET_IFNAME=mgmt\n")
    assert taken(host, HOME=str(tmp_path))["nccl"] == ("mgmt0", "10.88.1.1")
    assert taken(host, HOME=str(tmp_path), NCCL_SOCKET_IFNAME="eth")["nccl"] == ("eth0", host.address)


def test_gloo(host: Host) -> None:
    assert taken(host)["gloo"] == ("eth0", host.address)
    assert taken(host, GLOO_SOCKET_IFNAME="mgmt0")["gloo"] == ("mgmt0", "10.88.1.1")
    assert taken(host, GLOO_SOCKET_IFNAME="mgmt")["gloo"] == ("", "")
    try:
        host.knows(host.name, "127.0.1.1")
        assert taken(host)["gloo"] == ("lo", "127.0.1.1")
        host.knows(host.name, "203.0.113.9")
        assert taken(host)["gloo"] == ("lo", "127.0.0.1")
    finally:
        host.knows(host.name, host.address)


def test_a_bridge_that_each_machine_has_is_no_matter_of_firewalls(hosts: Hosts) -> None:
    """All have the same address on it, so that whoever connects reaches itself."""
    told = Job(hosts, env=lambda _: {"NCCL_SOCKET_IFNAME": "docker0"}).ended()[0]
    (said,) = told.titles("nccl.interface")
    assert told.ids == {"nccl.interface"}
    assert "172.17.0.1 of docker0" in said
    assert said.endswith("172.17.0.1 leads from there to their own docker0")
