"""Two hosts measure the link between them, and take one interface for NCCL and Gloo, by the kernel and by files."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.net.faults import Way
from tests.cluster.net.hosts import Host, Hosts, Job

pytestmark = pytest.mark.full

PORT = 29400
LISTEN = f"""
import sys, time
from gpudoctor.cluster.links.server import Server
servers = [Server(address, "the job", {PORT}) for address in sys.argv[1:]]
print("ready", flush=True)
time.sleep(3600)
"""
ASK = f"""
import dataclasses, json, sys
from gpudoctor.cluster.links.flow import measure
flow = measure(sys.argv[1], {PORT}, "the job", source=sys.argv[2] if len(sys.argv) > 2 else "")
print(json.dumps(dataclasses.asdict(flow)))
"""
TRY = """
import dataclasses, json, sys
from gpudoctor.cluster.links.tcp import connect
print(json.dumps(dataclasses.asdict(connect(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
"""


def said(host: Host, program: str, *words: str, env: dict[str, str] | None = None) -> Any:
    done = host.run([sys.executable, "-c", program, *words], env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listening(host: Host, *addresses: str) -> None:
    process = host.start([sys.executable, "-c", LISTEN, *(addresses or [host.address])])
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        for host in made:
            listening(host, host.address, host.address6, f"{host.link_local}%eth0")
        yield made


def ways(flow: dict[str, Any], what: str) -> dict[str, Any]:
    """A figure of the flow on its way out and on its way back."""
    return {"out": flow[f"{what}_out"], "back": flow[f"{what}_in"]}


def asked(hosts: Hosts, source: int = 0, target: int = 1) -> dict[str, Any]:
    flow: dict[str, Any] = said(hosts[source], ASK, hosts[target].address)
    return flow


def quickest(hosts: Hosts, target: int, below_ms: float) -> dict[str, Any]:
    """The flow from the first host, once that was measured in a moment in which the machine was not too busy for it."""
    for _ in range(200):
        if (flow := asked(hosts, 0, target))["ms"] < below_ms and abs(flow["clock_offset_ms"]) < 10:
            break
    return flow


def test_a_delay_is_in_the_round_trip_and_not_in_the_clock(hosts: Hosts) -> None:
    with hosts[1].delay(20):
        flow, aside = quickest(hosts, 1, 60), quickest(hosts, 2, 40 / 3)
    assert 40 <= flow["ms"] < 60
    assert aside["ms"] < 40 / 3
    assert abs(flow["clock_offset_ms"]) < 10
    assert flow["outcome"] == "connected"
    assert flow["stalled_above"] is None


@pytest.mark.parametrize(("way", "stalled", "sound"), [("to", "out", "back"), ("from", "back", "out")])
def test_a_hole_is_found_on_its_way_with_its_size(hosts: Hosts, way: Way, stalled: str, sound: str) -> None:
    with hosts[1].hole(1333, way):
        flow = said(hosts[0], ASK, hosts[1].name)
    assert (flow["outcome"], flow["stalled_above"]) == ("connected", 1333)
    rates = ways(flow, "gbps")
    assert rates[stalled] == 0
    assert rates[sound] > 0
    assert ways(flow, "retransmitted")[stalled] is None


def test_how_a_firewall_and_a_missing_host_end_an_attempt(hosts: Hosts) -> None:
    with hosts[1].refuse(PORT):
        assert asked(hosts)["outcome"] == "refused"
    with hosts[1].unroutable(PORT):
        assert asked(hosts)["outcome"] == "unroutable"
    with hosts[1].drop(PORT):
        assert asked(hosts)["outcome"] == "filtered"
        dropped = said(hosts[0], TRY, hosts[1].address, str(PORT), "1")
        assert (dropped["outcome"], dropped["answers"]) == ("filtered", True)
    with hosts[1].only(29500):
        silent = said(hosts[0], TRY, hosts[1].address, str(PORT), "1")
        assert (silent["outcome"], silent["answers"]) == ("filtered", False)
        assert said(hosts[0], TRY, hosts[1].address, "29500", "1")["outcome"] == "refused", "nothing listens there"
    assert said(hosts[0], TRY, "10.88.1.1", str(PORT), "1")["outcome"] == "unroutable"
    assert said(hosts[0], TRY, "10.77.0.200", str(PORT), "5")["outcome"] == "unroutable", "nobody has the address"


def test_a_lost_first_packet_is_no_firewall(hosts: Hosts) -> None:
    with hosts[1].first(4, PORT):
        assert said(hosts[0], TRY, hosts[1].address, str(PORT), "2")["outcome"] == "connected"


def test_a_name_that_one_host_does_not_know(hosts: Hosts) -> None:
    hosts[0].knows("node1", None)
    assert said(hosts[0], TRY, "node1", str(PORT), "1")["outcome"] == "unresolved"
    assert said(hosts[2], TRY, "node1", str(PORT), "1")["outcome"] == "connected"
    hosts[0].knows("node1", hosts[1].address)
    assert said(hosts[0], TRY, "node1", str(PORT), "1")["outcome"] == "connected"


def test_a_resolver_that_does_not_answer_is_left_behind(hosts: Hosts) -> None:
    (hosts[0].etc / "resolv.conf").write_text(f"nameserver {hosts[2].address}\n")
    with hosts[2].drop(53, protocol="udp"):
        reached = said(hosts[0], TRY, "node77.example", str(PORT), "1")
    (hosts[0].etc / "resolv.conf").write_text("")
    assert reached["outcome"] == "unresolved"
    assert "did not answer within 1 s" in reached["words"]


def test_ipv6_and_the_address_to_ask_from(hosts: Hosts) -> None:
    for target, source in (
        (hosts[1].address6, hosts[0].address6),
        (f"{hosts[1].link_local}%eth0", f"{hosts[0].link_local}%eth0"),
        (hosts[1].address, hosts[0].address),
    ):
        flow = said(hosts[0], ASK, target, source)
        assert (flow["outcome"], flow["stalled_above"]) == ("connected", None), target
    assert said(hosts[0], ASK, hosts[1].address, "10.88.0.1")["outcome"] in ("filtered", "unroutable")


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
def docked() -> Iterator[Hosts]:
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
def host(docked: Hosts) -> Host:
    return docked[1]


def taken(host: Host, **environ: str) -> dict[str, tuple[str, str]]:
    """Interface and address for NCCL and for Gloo, after both roads gave the same."""
    done = host.run([sys.executable, "-c", BOTH], environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, str]] = {}
    for user, (by_files, live) in json.loads(done.stdout).items():
        assert by_files[:2] == live[:2]
        found[user] = by_files[0], by_files[1]
    return found


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


def test_a_bridge_that_each_machine_has_is_no_matter_of_firewalls(docked: Hosts) -> None:
    """All have the same address on it, so that whoever connects reaches itself."""
    told = Job(docked, env=lambda _: {"NCCL_SOCKET_IFNAME": "docker0"}).ended()[0]
    (said,) = told.titles("nccl.interface")
    assert told.ids == {"nccl.interface"}
    assert "172.17.0.1 of docker0" in said
    assert said.endswith("172.17.0.1 leads from there to their own docker0")
