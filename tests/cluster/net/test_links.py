"""Two hosts measure the link between them: each fault gives its outcome, on the right way, and only there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cluster.net.faults import Way
from tests.cluster.net.hosts import Host, Hosts

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


class Ways(NamedTuple):
    """Rates of a flow in Gbit/s, or retransmitted shares."""

    out: float
    back: float


def rates(flow: dict[str, Any]) -> Ways:
    return Ways(flow["gbps_out"], flow["gbps_in"])


def losses(flow: dict[str, Any]) -> Ways:
    return Ways(flow["retransmitted_out"], flow["retransmitted_in"])


def asked(hosts: Hosts, source: int = 0, target: int = 1) -> dict[str, Any]:
    flow: dict[str, Any] = said(hosts[source], ASK, hosts[target].address)
    return flow


def test_a_healthy_link_has_nothing_to_show(hosts: Hosts) -> None:
    flow = asked(hosts)
    assert (flow["outcome"], flow["stalled_above"], flow["mtu"]) == ("connected", None, 1500)
    assert min(rates(flow)) > 0
    assert max(losses(flow)) < 0.03
    assert abs(flow["clock_offset_ms"]) <= flow["ms"]


@pytest.mark.parametrize(("way", "slower"), [("to", "out"), ("from", "back")])
def test_a_slow_way_is_slow_and_the_other_is_not(hosts: Hosts, way: Way, slower: str) -> None:
    with hosts[1].slow(50, way):
        flow, aside = asked(hosts), asked(hosts, 0, 2)
    slow = rates(flow)._asdict().pop(slower)
    others = [*(rate for one, rate in rates(flow)._asdict().items() if one != slower), *rates(aside)]
    assert 0.01 < slow < 0.1
    assert min(others) > 3 * slow


@pytest.mark.parametrize(("way", "lossy", "sound"), [("to", "out", "back"), ("from", "back", "out")])
def test_lost_packets_are_counted_on_their_way(hosts: Hosts, way: Way, lossy: str, sound: str) -> None:
    with hosts[1].loss(0.05, way):
        shares = losses(asked(hosts))._asdict()
    assert 0.02 < shares[lossy] < 0.12
    assert shares[lossy] > 3 * shares[sound]


def test_a_delay_is_in_the_round_trip_and_not_in_the_clock(hosts: Hosts) -> None:
    with hosts[1].delay(20):
        flow, aside = asked(hosts), asked(hosts, 0, 2)
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
    both = rates(flow)._asdict()
    assert both[stalled] == 0
    assert both[sound] > 0
    assert losses(flow)._asdict()[stalled] is None


def test_jumbo_frames_over_a_switch_that_drops_them() -> None:
    with Hosts(2, mtu=9000) as hosts:
        listening(hosts[1])
        assert asked(hosts)["stalled_above"] is None
        with hosts[1].hole(1500):
            flow = asked(hosts)
    assert (flow["stalled_above"], flow["mtu"], rates(flow)) == (1500, 9000, (0, 0))


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
