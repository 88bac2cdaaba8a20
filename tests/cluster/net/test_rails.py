"""Each network port of a machine alone: 8 hosts with 4 rails, of which one port is slow, one dead, one lossy, and the
cables of two exchanged; machines that differ in their ports; a port that goes away while it is measured.
"""

import itertools
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.net.hosts import Hosts, Job
from tests.processes import Ran, until

pytestmark = pytest.mark.full

RAILS = {"NCCL_SOCKET_IFNAME": "rail", "GLOO_SOCKET_IFNAME": "eth0"}
"""What a site with four ports for NCCL sets."""


@pytest.fixture(scope="module")
def eight() -> Iterator[Hosts]:
    with Hosts(8, rails=4) as hosts:
        yield hosts


def checked(hosts: Hosts, **more: str) -> Ran:
    """What rank 0 says, with more in the environment of each rank."""
    ended = Job(hosts, env=lambda _: {**RAILS, **more}).ended()
    assert len({one.code for one in ended.values()}) == 1, ended
    return ended[0]


def test_slow_dead_lossy_and_exchanged_ports_are_named_by_host_port_and_direction(eight: Hosts) -> None:
    with ExitStack() as faults:
        faults.enter_context(eight[2].rails[0].slow(10, "from"))
        faults.enter_context(eight[3].rails[1].loss(1.0, "both"))
        faults.enter_context(eight[4].rails[2].loss(0.05, "to"))
        for rail, switch in ((1, 3), (3, 1)):
            eight[5].rails[rail].plug_into(switch)
            faults.callback(eight[5].rails[rail].plug_into, rail)
        said = checked(eight)
    assert said.ids == {"nccl.slow", "nccl.packet-loss", "nccl.rail-unreachable"}
    (slow,) = said.titles("nccl.slow")
    assert slow.startswith("Too slow: rail0 on node2 sends at 0.0"), slow
    (lossy,) = said.titles("nccl.packet-loss")
    assert re.match(r"Packets are lost: rail2 on node4 receives with \d", lossy), lossy
    assert [re.sub(r" \(\d pairs\)$", "", title) for title in sorted(said.titles("nccl.rail-unreachable"))] == [
        "Unreachable: rail1 on node3 neither reaches nor is reached by hosts that reach each other",
        "Wrong cable: rail1 on node5 reaches the other hosts' rail3, and none of their rail1",
        "Wrong cable: rail3 on node5 reaches the other hosts' rail1, and none of their rail3",
    ]
    assert {host for drain in said.document["fleet"]["drain"] for host in drain["hosts"]} == {
        "node2",
        "node3",
        "node4",
        "node5",
    }
    rounds = {row["round"]["value"] for row in said.document["facts"]["rail"]}
    assert max(rounds) + 1 <= 6  # and one in which ports that reach nobody try those of other rails


def test_sound_ports_are_a_go_and_each_has_its_rates() -> None:
    """On hosts of its own: what was plugged into another switch a second ago may still be looked for there."""
    with Hosts(8, rails=4) as hosts:
        ports = {(rail.device, host.name) for host in hosts for rail in host.rails}
        said = checked(hosts)
    worse = [finding["title"] for finding in said.document["findings"] if finding["severity"] != "info"]
    assert worse == [], worse
    assert said.document["verdict"] == "sound", said.document["unjudged"]
    rows = said.document["facts"]["rail"]
    assert {(row["rail"]["value"], row["host"]["value"]) for row in rows} == ports
    rates = [row[way]["value"] for row in rows for way in ("sends_gbps", "receives_gbps") if "value" in row[way]]
    assert len(rates) > len(rows)
    assert min(rates) > 0
    assert not said.titles("nccl.rail-unmeasured")


def test_ports_in_one_network_are_told_apart_by_link_local_addresses() -> None:
    """Linux answers for an IPv4 address by each of them, so that one would be measured for another."""
    with Hosts(3, rails=2) as hosts:
        for host in hosts:
            for number, rail in enumerate(host.rails):
                address = f"10.80.0.{10 * (number + 1) + host.number}/24"
                host.namespace.ip(f"addr flush dev {rail.device} scope global", f"addr add {address} dev {rail.device}")
        said = checked(hosts)
        assert (said.ids, said.document["verdict"]) == (set(), "sound")
        assert all(row["address"]["value"].startswith("fe80:") for row in said.document["facts"]["rail"])
        with hosts[1].rails[1].loss(1.0, "both"):
            said = checked(hosts)
    (title,) = said.titles("nccl.rail-unreachable")
    assert title.startswith("Unreachable: rail1 on node1 neither reaches")


def test_ports_that_only_some_hosts_have_are_told_and_nothing_is_said_of_them() -> None:
    with Hosts(3, rails=3) as hosts:
        hosts[1].namespace.ip("link set rail2 down")
        hosts[2].namespace.ip("link set rail0 down", "link set rail1 down")
        said = checked(hosts, NCCL_SOCKET_IFNAME="eth0,rail")
    assert (said.ids, said.document["verdict"]) == (set(), "sound")
    (title,) = said.titles("nccl.rail-unmeasured")
    assert "rail2 on node1: none that is up (2 of 3 machines have)" in title
    rows = {(row["rail"]["value"], row["host"]["value"]): row["sends_gbps"] for row in said.document["facts"]["rail"]}
    nothing = {("rail2", "node1"), ("rail0", "node2"), ("rail1", "node2")}
    assert {port for port, sends in rows.items() if "that is up" in sends.get("unread", "")} == nothing


def test_a_port_that_goes_away_while_it_is_measured_is_not_judged() -> None:
    with Hosts(4, rails=2) as hosts:
        job = Job(hosts, env=lambda _: RAILS)
        assert until(lambda: "10.81.0.3" in hosts[0].run(["ss", "-Htn"]).stdout)
        hosts[2].namespace.ip("link del rail1")
        ended = job.ended()
    assert {one.code for one in ended.values()} == {0}, ended[0].document["findings"]
    assert (ended[0].ids, ended[0].document["verdict"]) == (set(), "sound")
    assert ended[0].titles("nccl.rail-unmeasured") == ["Not measured: rail1 of node2 went away while it was measured"]


def test_a_port_that_counts_errors_while_it_is_measured_is_named(tmp_path: Path) -> None:
    """What the other one counted before stands still."""
    counters = [tmp_path / host for host in ("node0", "node1")]
    for counter in counters:
        counter.write_text("0000070000\n")
    with Hosts(2, rails=2) as hosts, ThreadPoolExecutor() as pool:
        for host, counter in zip(hosts, counters, strict=True):
            host.bind(counter, "/sys/class/net/rail0/statistics/rx_errors")
        ending = pool.submit(Job(hosts, env=lambda _: RAILS).ended)
        with counters[1].open("r+") as file:
            for count in itertools.takewhile(lambda _: not ending.done(), itertools.count(70_000, 1000)):
                file.seek(0)
                file.write(f"{count:010}\n")
                file.flush()
                time.sleep(0.02)
        said = ending.result()[0]
    assert said.ids == {"nccl.rail-errors"}
    (title,) = said.titles("nccl.rail-errors")
    assert title.startswith("rail0 on node1 made "), title
    assert said.document["fleet"]["verdict"] == "go"
