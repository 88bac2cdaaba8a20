"""Which interfaces and RDMA devices there are, and which of them NCCL and Gloo would take."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpudoctor.model.fact import Absent, Unread
from gpudoctor.probes import network
from gpudoctor.target.local import Local
from tests.unit.trees import Tree, values

NAMES = ["docker0", "eth0", "eth1", "eth10", "ib0", "lo"]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth0,ib0", ["eth0", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["docker0", "eth0", "eth10", "ib0", "lo"]),
        ("eno1", []),
        ("eth1:1", ["eth1", "eth10"]),
        ("^", NAMES),
    ],
)
def test_names_are_prefixes_unless_an_equals_sign_says_otherwise(wanted: str, taken: list[str]) -> None:
    assert network.selected(wanted, NAMES) == taken


def machine(root: Path) -> Tree:
    tree = Tree(root).folder("/sys/class/net/lo").folder("/sys/class/net/eth0").file("/sys/class/net/bonding_masters")
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    tree.file(f"{port}/state", "4: ACTIVE\n").file(f"{port}/link_layer", "Ethernet\n")
    return tree.file(f"{port}/rate", "400 Gb/sec (4X NDR)\n")


def test_this_machine_lists_what_the_kernel_lists() -> None:
    facts = values(network, Local("quick"))
    assert set(facts["net.interfaces"]) == {name for _, name in socket.if_nameindex()}


def test_nothing_set_is_nothing_wrong(tmp_path: Path) -> None:
    facts = values(network, machine(tmp_path).target())
    assert facts["net.interfaces"] == ("eth0", "lo")
    assert facts["net.unmatched"] == ()
    assert facts["net.hca_unmatched"] is Absent


def test_variables_that_name_nothing_here(tmp_path: Path) -> None:
    target = machine(tmp_path).target(NCCL_SOCKET_IFNAME="eno1", GLOO_SOCKET_IFNAME="eth0,^lo", NCCL_IB_HCA="=mlx5_1")
    facts = values(network, target)
    assert facts["net.unmatched"] == ("NCCL_SOCKET_IFNAME=eno1", "GLOO_SOCKET_IFNAME=eth0,^lo")
    assert facts["net.hca_unmatched"] == "=mlx5_1"


def test_variables_that_name_what_is_there(tmp_path: Path) -> None:
    target = machine(tmp_path).target(NCCL_SOCKET_IFNAME="^lo", GLOO_SOCKET_IFNAME="eth0,lo", NCCL_IB_HCA="mlx5")
    facts = values(network, target)
    assert facts["net.unmatched"] == ()
    assert facts["net.hca_unmatched"] is Absent


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


def test_a_port_that_does_not_say_its_state_proves_nothing(tmp_path: Path) -> None:
    tree = machine(tmp_path).without("/sys/class/infiniband/mlx5_0/ports/1/state")
    assert values(network, tree.target(NCCL_IB_HCA="mlx5"))["net.hca_inactive"] is Unread


def test_a_machine_without_rdma(tmp_path: Path) -> None:
    facts = values(network, Tree(tmp_path).linux().target(NCCL_IB_HCA="mlx5"))
    assert facts["net.hca_inactive"] is Absent
    assert facts["net.hca_unmatched"] is Absent
    assert facts["net.interfaces"] is Absent
