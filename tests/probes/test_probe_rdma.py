"""RDMA ports as sysfs shows them, and whether this session may use them."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import rdma
from tests.probes.buses import card, rdma_port, shown
from tests.probes.trees import Tree, refused, said, values

PATH = "pci0000:15/0000:15:01.0/0000:16:00.0"
FOLDER = f"/sys/devices/{PATH}/infiniband/mlx5_0"


def machine(root: Path, state: str = "4: ACTIVE", layer: str = "InfiniBand") -> Tree:
    return rdma_port(card(Tree(root).linux(), PATH, "mlx5_0"), "mlx5_0", state, layer)


def row(tree: Tree) -> dict[str, Any]:
    (found,) = shown(said(rdma, tree.target())["rdma"])
    return found


def test_a_port_of_a_card(tmp_path: Path) -> None:
    tree = machine(tmp_path).file(f"{FOLDER}/fw_ver", "28.42.1000\n").file(f"{FOLDER}/board_id", "MT_0000000838\n")
    tree.file(f"{FOLDER}/hca_type", "MT4129\n").folder(f"/sys/devices/{PATH}/net/ibp22s0")
    found = row(tree)
    expected = {
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec (4X NDR)",
        "rate_gbps": 400.0,
        "gids": 1,
        "roce_v2": Absent,
        "address": "0000:16:00.0",
        "netdev": ("ibp22s0",),
        "firmware": "28.42.1000",
        "board": "MT_0000000838",
        "model": "MT4129",
        "numa_node": 0,
        "virtual": False,
        "link_downed": 1,
        "receive_errors": 3,
        "timeouts": Absent,
    }
    assert {name: found[name] for name in expected} == expected
    assert set(found) == {spec.name.removeprefix("rdma.") for spec in rdma.FACTS if spec.group}


@pytest.mark.parametrize(("kind", "found"), [("IB/RoCE v1", False), ("RoCE v2", True), ("", Unread)])
def test_the_kinds_of_roce_addresses(tmp_path: Path, kind: str, found: object) -> None:
    """An empty entry's type cannot be read, and is not asked for."""
    tree = machine(tmp_path, layer="Ethernet")
    if kind:
        tree.file(f"{FOLDER}/ports/1/gid_attrs/types/0", f"{kind}\n")
    assert row(tree)["roce_v2"] == found


def test_a_table_without_addresses_of_a_port_that_is_down(tmp_path: Path) -> None:
    tree = machine(tmp_path, "1: DOWN", "Ethernet")
    tree.file(f"{FOLDER}/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0000\n")
    assert (row(tree)["gids"], row(tree)["roce_v2"], row(tree)["state"]) == (0, False, "DOWN")


def test_no_card_is_absent_and_no_sysfs_is_unread(tmp_path: Path) -> None:
    facts = values(rdma, Tree(tmp_path).linux().target())
    assert facts["rdma"] is facts["rdma.nodes_missing"] is Absent
    assert facts["rdma.verbs_loaded"] is False
    bare = values(rdma, Tree(tmp_path / "bare").folder("/proc").target())
    assert bare["rdma"] is bare["rdma.nodes_denied"] is bare["rdma.verbs_loaded"] is Unread


def test_device_files_that_a_container_was_not_given(tmp_path: Path) -> None:
    tree = machine(tmp_path).folder("/sys/class/infiniband_verbs/uverbs0").file("/sys/class/infiniband_verbs/abi")
    assert values(rdma, tree.target())["rdma.nodes_missing"] == ("/dev/infiniband/uverbs0",)
    tree.file("/dev/infiniband/uverbs0", mode=0o666)
    facts = values(rdma, tree.target())
    assert facts["rdma.nodes_missing"] == facts["rdma.nodes_denied"] == ()


def test_device_files_that_are_shut() -> None:
    with refused() as tree:
        rdma_port(card(tree.linux(), PATH, "mlx5_0"), "mlx5_0")
        tree.folder("/sys/class/infiniband_verbs/uverbs0").file("/dev/infiniband/uverbs0", mode=0o600)
        (tree.root / "dev/infiniband/uverbs0").chmod(0)
        assert values(rdma, tree.close())["rdma.nodes_denied"] == ("/dev/infiniband/uverbs0",)


@pytest.mark.parametrize(
    ("line", "found"), [("000001ffffffffff", True), ("0000000000004000", True), ("0000000000000000", False)]
)
def test_the_right_to_lock_memory(tmp_path: Path, line: str, found: bool) -> None:
    tree = Tree(tmp_path).linux().file("/proc/self/status", f"Name:\tx\nCapEff:\t{line}\n")
    assert values(rdma, tree.target())["rdma.may_lock"] is found
    assert values(rdma, Tree(tmp_path / "silent").linux().target())["rdma.may_lock"] is Unread


def test_counters_that_rise_are_told_apart_from_those_that_stand(tmp_path: Path) -> None:
    """A real second look: one port's counter rises all the time, one has counted before, one is reset."""
    tree = machine(tmp_path)
    place = tree.root / f"{FOLDER}/ports/1/counters".lstrip("/")
    tree.file(f"{FOLDER}/ports/1/counters/symbol_error", "65535\n")
    standing = row(tree)
    assert (standing["errors_gained"], standing["downs_gained"]) == (0, 0)
    assert standing["watched_s"] >= 1
    begun, ended = threading.Event(), threading.Event()

    def count() -> None:
        """Let the symbol errors rise, and reset those of receiving, until the look is over."""
        for number in itertools.count(1):
            for name, count in (("symbol_error", number * 100), ("port_rcv_errors", max(0, 5 - number))):
                (place / "new").write_text(f"{count}\n")  # a reader sees the old count or the new one
                (place / "new").replace(place / name)
            begun.set()
            if ended.wait(0.01):
                return

    counting = threading.Thread(target=count)
    counting.start()
    try:
        assert begun.wait(600)
        risen = row(tree)
    finally:
        ended.set()
        counting.join()
    assert risen["errors_gained"] > 0
    assert risen["downs_gained"] == 0


def test_where_nothing_was_counted_there_is_no_second_look(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    for name in ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors"):
        tree.file(f"{FOLDER}/ports/1/counters/{name}", "0\n")
    found = row(tree)
    assert (found["errors_gained"], found["downs_gained"], found["watched_s"]) == (0, 0, Absent)
