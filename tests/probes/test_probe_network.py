"""Which interfaces and RDMA devices there are, and which of them NCCL and Gloo would take."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import network
from gpudoctor.target.local import Local
from tests.probes.networks import Network
from tests.probes.nvml_machine import rows
from tests.probes.nvml_machine import values as columns
from tests.probes.trees import Tree, values


def machine(root: Path) -> Tree:
    tree = Tree(root).folder("/sys/class/net/lo").folder("/sys/class/net/eth0").file("/sys/class/net/bonding_masters")
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    tree.file(f"{port}/state", "4: ACTIVE\n").file(f"{port}/link_layer", "Ethernet\n")
    return tree.file(f"{port}/rate", "400 Gb/sec (4X NDR)\n")


def test_this_machine_lists_what_the_kernel_lists() -> None:
    facts = values(network, Local("quick"))
    assert set(facts["net.interfaces"]) == {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize(
    "environ",
    [{}, {"NCCL_SOCKET_IFNAME": "^lo", "GLOO_SOCKET_IFNAME": "eth0,lo", "NCCL_IB_HCA": "mlx5"}],
    ids=["nothing set", "what is there"],
)
def test_variables_that_name_what_is_there(tmp_path: Path, environ: dict[str, str]) -> None:
    facts = values(network, machine(tmp_path).target(**environ))
    assert (facts["net.interfaces"], facts["net.unmatched"]) == (("eth0", "lo"), ())
    assert facts["net.hca_unmatched"] is Absent


def test_variables_that_name_nothing_here(tmp_path: Path) -> None:
    target = machine(tmp_path).target(NCCL_SOCKET_IFNAME="eno1", GLOO_SOCKET_IFNAME="eth0,^lo", NCCL_IB_HCA="=mlx5_1")
    facts = values(network, target)
    assert facts["net.unmatched"] == ("NCCL_SOCKET_IFNAME=eno1", "GLOO_SOCKET_IFNAME=eth0,^lo")
    assert facts["net.hca_unmatched"] == "=mlx5_1"


@pytest.mark.parametrize(
    ("wanted", "state", "found"),
    [
        ("mlx5", "4: ACTIVE", Absent),
        ("mlx5", "1: DOWN", "mlx5"),
        ("=mlx5_0:1", "2: INIT", "=mlx5_0:1"),
        ("mlx5_9", "1: DOWN", Absent),
    ],
)
def test_cards_that_are_named_and_have_no_active_port(tmp_path: Path, wanted: str, state: str, found: object) -> None:
    tree = machine(tmp_path).file("/sys/class/infiniband/mlx5_0/ports/1/state", f"{state}\n")
    assert values(network, tree.target(NCCL_IB_HCA=wanted))["net.hca_inactive"] == found


def test_without_rdma_and_at_a_port_that_does_not_say_its_state_nothing_is_inactive(tmp_path: Path) -> None:
    tree = machine(tmp_path).without("/sys/class/infiniband/mlx5_0/ports/1/state")
    assert values(network, tree.target(NCCL_IB_HCA="mlx5"))["net.hca_inactive"] is Unread
    facts = values(network, Tree(tmp_path / "none").linux().target(NCCL_IB_HCA="mlx5"))
    for name in ("hca_inactive", "hca_unmatched", "interfaces"):
        assert facts[f"net.{name}"] is Absent


def plain(tmp_path: Path) -> Network:
    """Loopback, docker's bridge, a card with two addresses, a card without."""
    net = Network(Tree(tmp_path)).add("docker0", "172.17.0.1/16", card=False).bridge("docker0")
    net.add("eth0", "10.1.2.3/24", "10.1.2.4/24", "fd00::3/64", "fe80::1/64").route("eth0", "0.0.0.0/0", "10.1.2.1")
    return net.add("eth1", state="down")


def row(facts: dict[str, Any], name: str) -> dict[str, object]:
    """The known columns of one interface."""
    return next(told for one in rows(facts, "interface") if (told := columns(one))["name"] == name)


def test_every_column_of_an_interface(tmp_path: Path) -> None:
    facts = values(network, plain(tmp_path).done().target())
    assert row(facts, "eth0") == {
        "name": "eth0",
        "index": 3,
        "kind": "physical",
        "virtual": False,
        "up": True,
        "mtu": 1500,
        "speed_mbps": 100000,
        "addresses": ("10.1.2.3", "10.1.2.4", "fd00::3", "fe80::1"),
        "default_route": True,
        "numa_node": 1,
    }
    assert row(facts, "docker0")["virtual"] is True
    assert row(facts, "docker0")["kind"] == "bridge"
    assert row(facts, "lo")["addresses"] == ("127.0.0.1", "::1")
    assert row(facts, "eth1")["up"] is False
    assert facts["net.default_interface"] == "eth0"


def test_a_bridge_with_a_card_leads_outside(tmp_path: Path) -> None:
    net = Network(Tree(tmp_path)).add("eno1").add("br0", "10.0.0.2/24", card=False).bridge("br0", "eno1")
    facts = values(network, net.done().target())
    assert row(facts, "br0")["virtual"] is False
    assert row(facts, "eno1")["part_of"] == "br0"
    assert facts["net.nccl_inner"] is False


def test_an_address_alone_in_its_network_is_the_only_other_interfaces(tmp_path: Path) -> None:
    """Google's machines and Calico's pods."""
    net = Network(Tree(tmp_path)).add("eth0", "10.128.0.2/32").route("eth0", "0.0.0.0/0", "10.128.0.1")
    facts = values(network, net.done().target())
    assert row(facts, "eth0")["addresses"] == ("10.128.0.2",)
    assert facts["net.nccl_address"] == "10.128.0.2"


def test_where_two_may_have_it_nobody_is_named_and_without_proc_no_address_is_known(tmp_path: Path) -> None:
    net = Network(Tree(tmp_path)).add("eth0", "10.128.0.2/32").add("eth1", "10.128.0.3/32")
    group = values(network, net.done().target())["interface"]
    assert group[1]["addresses"] == Unread("of 10.128.0.2, 10.128.0.3 the interface cannot be told")
    facts = values(network, Tree(tmp_path / "bare").file("/sys/class/net/eth0/operstate", "up\n").target())
    assert facts["net.nccl_interface"] is Unread
    assert facts["interface"][0]["addresses"] == Unread("addresses cannot be read: no /proc/net/fib_trie")


@pytest.mark.parametrize(
    ("environ", "interface", "address"),
    [
        ({}, "eth0", "10.1.2.3"),
        ({"NCCL_SOCKET_IFNAME": "docker"}, "docker0", "172.17.0.1"),
        ({"NCCL_SOCKET_IFNAME": "^docker,eth"}, "lo", "127.0.0.1"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, Absent, Absent),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, Absent, Absent),
        ({"NCCL_SOCKET_FAMILY": "AF_INET6"}, "eth0", "fd00::3"),
        ({"NCCL_COMM_ID": "[fd00::9]:29500"}, "eth0", "fd00::3"),
        ({"NCCL_COMM_ID": "172.17.3.4:29500"}, "docker0", "172.17.0.1"),
        ({"NCCL_COMM_ID": "node1:29500"}, Unread, Unread),
    ],
)
def test_what_nccl_would_announce(tmp_path: Path, environ: dict[str, str], interface: object, address: object) -> None:
    facts = values(network, plain(tmp_path).done().target(**environ))
    assert (facts["net.nccl_interface"], facts["net.nccl_address"]) == (interface, address)


def test_nccl_takes_ip_over_infiniband_first_and_bridges_last(tmp_path: Path) -> None:
    net = plain(tmp_path).add("ib0", "192.168.9.1/24", kind=32)
    assert values(network, net.done().target())["net.nccl_interface"] == "ib0"
    only = Network(Tree(tmp_path / "second")).add("docker0", "172.17.0.1/16", card=False).bridge("docker0")
    facts = values(network, only.done().target())
    assert (facts["net.nccl_interface"], facts["net.nccl_inner"]) == ("docker0", True)
