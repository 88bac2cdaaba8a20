"""Where GPUs, network cards and disks hang on PCIe, ACS there, and RDMA ports, as sysfs shows them."""

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import rdma, topology
from tests.probes.buses import ACS, ATS, REDIRECT, card, config, device, rdma_port, shown, switched
from tests.probes.trees import Tree, refused, said, values

PORT = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"


def machine(root: Path, nodes: str = "0-1") -> Tree:
    return Tree(root).linux().file("/sys/devices/system/node/online", f"{nodes}\n")


def rows(tree: Tree, group: str) -> list[dict[str, Any]]:
    return shown(said(topology, tree.target())[group])


def test_two_switches_on_two_sockets(tmp_path: Path) -> None:
    """GPUs of one switch are PIX, of two sockets SYS; each GPU is nearest to the card of its own switch."""
    tree = machine(tmp_path)
    switched(tree, "15", 0x16)
    switched(tree, "85", 0x86, node=1)
    card(tree, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/0000:1a:00.0", "mlx5_0")
    card(tree, "pci0000:85/0000:85:01.0/0000:86:00.0/0000:87:04.0/0000:8a:00.0", "mlx5_1", node=1)
    card(tree, "pci0000:15/0000:15:03.0/0000:20:00.0", "nvme0", "nvme")
    paths = rows(tree, "gpu_path")
    assert [(row["address"], row["nics"], row["nic_path"]) for row in paths] == [
        ("0000:18:00.0", ("mlx5_0",), "PIX"),
        ("0000:19:00.0", ("mlx5_0",), "PIX"),
        ("0000:88:00.0", ("mlx5_1",), "PIX"),
        ("0000:89:00.0", ("mlx5_1",), "PIX"),
    ]
    assert [(row["disks"], row["disk_path"]) for row in paths] == [(("nvme0",), "PHB")] * 2 + [(("nvme0",), "SYS")] * 2
    assert paths[0]["bridges"] == ("0000:17:00.0", "0000:16:00.0", "0000:15:01.0")
    assert (paths[0]["root"], paths[0]["switch"]) == ("pci0000:15", "0000:16:00.0")
    assert [row["path"] for row in rows(tree, "gpu_pair")] == ["PIX", "SYS", "SYS", "SYS", "SYS", "PIX"]
    facts = values(topology, tree.target())
    assert (facts["topology.switches"], facts["topology.numa_nodes"]) == (2, 2)
    for group in ("gpu_path", "gpu_pair"):
        columns = {spec.name.partition(".")[2] for spec in topology.FACTS if spec.name.startswith(f"{group}.")}
        assert set(rows(tree, group)[0]) == columns


@pytest.mark.parametrize(
    ("one", "other", "node", "path"),
    [
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:02.0/0000:02:00.0", 0, "PHB"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0", 0, "NODE"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0", 1, "SYS"),
        ("pci0000:00/0000:00:05.0", "pci0000:00/0000:00:06.0", 0, "PHB"),
        (
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0/0000:05:00.0/0000:06:00.0",
            0,
            "PXB",
        ),
        ("pci0009:00/0009:00:00.0/0009:01:00.0", "pci0019:00/0019:00:00.0/0019:01:00.0", 1, "SYS"),
    ],
)
def test_paths_in_the_words_of_nvidia_smi(tmp_path: Path, one: str, other: str, node: int, path: str) -> None:
    tree = device(device(machine(tmp_path), one), other, node=node)
    assert [row["path"] for row in rows(tree, "gpu_pair")] == [path]


def test_nodes_that_nobody_names_leave_the_path_open_unless_there_is_only_one(tmp_path: Path) -> None:
    for nodes, path in (("0-1", Unread), ("0", "NODE")):
        tree = device(machine(tmp_path / nodes, nodes), "pci0000:00/0000:00:01.0/0000:01:00.0", node=-1)
        device(tree, "pci0000:40/0000:40:01.0/0000:41:00.0", node=-1)
        assert rows(tree, "gpu_pair")[0]["path"] == path


@pytest.mark.parametrize(("control", "redirects"), [(REDIRECT, True), (0b0000001, False)], ids=["redirect", "validate"])
def test_acs_inside_a_switch(tmp_path: Path, control: int, redirects: bool) -> None:
    """Only to check who sends redirects nothing."""
    tree = machine(tmp_path)
    switched(tree, "15", 0x16)
    tree.file(f"{PORT}/config", config({ACS: control}))
    assert [row["acs"] for row in rows(tree, "gpu_path")] == [redirects, False]
    assert rows(tree, "gpu_pair")[0]["acs"] is redirects
    assert values(topology, tree.target())["topology.acs_bridges"] == (("0000:17:00.0",) if redirects else ())


def test_acs_at_root_ports_is_not_inside_a_switch(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    for bus in (1, 2):
        device(tree, f"pci0000:00/0000:00:0{bus}.0/0000:0{bus}:00.0")
        tree.file(f"/sys/devices/pci0000:00/0000:00:0{bus}.0/config", config({ACS: REDIRECT}))
    assert [row["acs"] for row in rows(tree, "gpu_path")] == [True, True]
    assert rows(tree, "gpu_pair")[0]["acs"] is Absent
    assert values(topology, tree.target())["topology.acs_bridges"] == ()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (config(size=64), "only root may read more than its first 64 bytes"),
        (config(size=256), "no access to extended configuration space"),
        (b"\xff" * 4096, "all ones"),
        (bytes(0x100) + (1 | 1 << 16 | 0x100 << 20).to_bytes(4, "little").ljust(0xF00, b"\0"), ""),
    ],
)
def test_what_cannot_be_read_of_a_bridge_is_unread(tmp_path: Path, space: bytes, words: str) -> None:
    """The last one's capabilities go round in a circle."""
    tree = machine(tmp_path)
    switched(tree, "15", 0x16)
    tree.file(f"{PORT}/config", space)
    facts = said(topology, tree.target())
    acs = facts["gpu_path"][0]["acs"]
    assert isinstance(acs, Unread)
    assert words in acs.why
    assert facts["topology.acs_bridges"] == facts["gpu_pair"][0]["acs"] == acs


def test_a_sleeping_device_is_left_asleep(tmp_path: Path) -> None:
    tree = device(machine(tmp_path), "pci0000:00/0000:00:01.0/0000:01:00.0")
    tree.file("/sys/devices/pci0000:00/0000:00:01.0/power_state", "D3cold\n")
    acs = said(topology, tree.target())["gpu_path"][0]["acs"]
    assert isinstance(acs, Unread)
    assert "asleep" in acs.why


def test_ats_and_iommu_groups(tmp_path: Path) -> None:
    tree = device(machine(tmp_path), "pci0009:00/0009:00:00.0/0009:01:00.0", space=config({ATS: 0x8000}))
    device(tree, "pci0019:00/0019:00:00.0/0019:01:00.0")
    tree.folder("/sys/kernel/iommu_groups/14")
    tree.link("/sys/devices/pci0009:00/0009:00:00.0/0009:01:00.0/iommu_group", "/sys/kernel/iommu_groups/14")
    first, second = rows(tree, "gpu_path")
    assert (first["ats"], first["iommu_group"]) == (True, 14)
    assert (second["ats"], second["iommu_group"]) == (Absent, Absent)


def test_nvswitches_are_counted_and_other_bridges_are_not(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    for bus in ("05", "06"):
        device(tree, f"pci0000:00/0000:00:01.0/0000:{bus}:00.0", kind=0x068000)
        tree.file(f"/sys/devices/pci0000:00/0000:00:01.0/0000:{bus}:00.0/device", "0x22a3\n")
    device(tree, "pci0000:00/0000:00:02.0/0000:07:00.0", vendor=0x1000, kind=0x068000)
    device(tree, "pci0000:00/0000:00:14.0", kind=0x068000).file("/sys/devices/pci0000:00/0000:00:14.0/device", "0x0269")
    facts = values(topology, tree.target())
    assert facts["topology.nvswitches"] == 2
    assert facts["gpu_path"] == ()


def test_interfaces_stand_in_where_no_card_does_rdma(tmp_path: Path) -> None:
    tree = device(machine(tmp_path), "pci0000:00/0000:00:01.0/0000:01:00.0")
    card(tree, "pci0000:00/0000:00:1f.6", "eno1", "net").folder("/sys/class/net/lo")
    assert rows(tree, "gpu_path")[0]["nics"] == ("eno1",)
    alone = device(machine(tmp_path / "alone"), "pci0000:00/0000:00:01.0/0000:01:00.0")
    assert rows(alone, "gpu_path")[0]["nic_path"] is Absent


def test_a_bus_out_of_sight_is_unread(tmp_path: Path) -> None:
    hidden = said(topology, Tree(tmp_path).folder("/sys").file("/.dockerenv").target())
    assert hidden["gpu_path"] == Unread("no /sys/bus/pci/devices; the container (docker) may hide it")
    windows = machine(tmp_path / "wsl").file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert isinstance(said(topology, windows.target())["topology.nvswitches"], Unread)


PATH = "pci0000:15/0000:15:01.0/0000:16:00.0"
FOLDER = f"/sys/devices/{PATH}/infiniband/mlx5_0"


def with_port(root: Path, state: str = "4: ACTIVE", layer: str = "InfiniBand") -> Tree:
    return rdma_port(card(Tree(root).linux(), PATH, "mlx5_0"), "mlx5_0", state, layer)


def port(tree: Tree) -> dict[str, Any]:
    (found,) = shown(said(rdma, tree.target())["rdma"])
    return found


def test_a_port_of_a_card(tmp_path: Path) -> None:
    tree = with_port(tmp_path).file(f"{FOLDER}/fw_ver", "28.42.1000\n").file(f"{FOLDER}/board_id", "MT_0000000838\n")
    tree.file(f"{FOLDER}/hca_type", "MT4129\n").folder(f"/sys/devices/{PATH}/net/ibp22s0")
    found = port(tree)
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
    tree = with_port(tmp_path, layer="Ethernet")
    if kind:
        tree.file(f"{FOLDER}/ports/1/gid_attrs/types/0", f"{kind}\n")
    assert port(tree)["roce_v2"] == found


def test_a_table_without_addresses_of_a_port_that_is_down(tmp_path: Path) -> None:
    tree = with_port(tmp_path, "1: DOWN", "Ethernet")
    tree.file(f"{FOLDER}/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0000\n")
    assert (port(tree)["gids"], port(tree)["roce_v2"], port(tree)["state"]) == (0, False, "DOWN")


def test_no_card_is_absent_and_no_sysfs_is_unread(tmp_path: Path) -> None:
    facts = values(rdma, Tree(tmp_path).linux().target())
    assert facts["rdma"] is facts["rdma.nodes_missing"] is Absent
    assert facts["rdma.verbs_loaded"] is False
    bare = values(rdma, Tree(tmp_path / "bare").folder("/proc").target())
    assert bare["rdma"] is bare["rdma.nodes_denied"] is bare["rdma.verbs_loaded"] is Unread


def test_rdma_device_files_that_are_missing_or_shut(tmp_path: Path) -> None:
    tree = with_port(tmp_path).folder("/sys/class/infiniband_verbs/uverbs0").file("/sys/class/infiniband_verbs/abi")
    assert values(rdma, tree.target())["rdma.nodes_missing"] == ("/dev/infiniband/uverbs0",)
    tree.file("/dev/infiniband/uverbs0", mode=0o666)
    facts = values(rdma, tree.target())
    assert facts["rdma.nodes_missing"] == facts["rdma.nodes_denied"] == ()
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


@pytest.mark.parametrize(("later", "gained"), [("51", 9), ("42", 0), ("", Unread)])
def test_what_an_efa_device_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str, gained: object) -> None:
    """It has hw_counters alone, by the names of drivers/infiniband/hw/efa/efa.h."""
    folder = f"/sys/devices/{PATH}/infiniband/rdmap22s0/ports/1"
    tree = card(Tree(tmp_path).linux(), PATH, "rdmap22s0")
    tree.file(f"{folder}/state", "4: ACTIVE\n").file(f"{folder}/phys_state", "5: LinkUp\n")
    for name, count in (("retrans_timeout_events", 42), ("unresponsive_remote_events", 0)):
        tree.file(f"{folder}/hw_counters/{name}", f"{count}\n")
    target = tree.target()

    def rise(_: float) -> None:
        for name in ("retrans_timeout_events", *(() if later else ("unresponsive_remote_events",))):
            tree.file(f"{folder}/hw_counters/{name}", f"{later}\n")

    monkeypatch.setattr("gpudoctor.probes.rdma.time.sleep", rise)
    (found,) = shown(said(rdma, target)["rdma"])
    assert (found["retransmit_timeouts"], found["unresponsive_peers"], found["symbol_errors"]) == (42, 0, Absent)
    assert found["errors_gained"] == gained


def test_counters_that_rise_are_told_apart_from_those_that_stand(tmp_path: Path) -> None:
    """A real second look: one port's counter rises all the time, one has counted before, one is reset."""
    tree = with_port(tmp_path)
    place = tree.root / f"{FOLDER}/ports/1/counters".lstrip("/")
    tree.file(f"{FOLDER}/ports/1/counters/symbol_error", "65535\n")
    standing = port(tree)
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
        risen = port(tree)
    finally:
        ended.set()
        counting.join()
    assert risen["errors_gained"] > 0
    assert risen["downs_gained"] == 0


def test_where_nothing_was_counted_there_is_no_second_look(tmp_path: Path) -> None:
    tree = with_port(tmp_path)
    for name in ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors"):
        tree.file(f"{FOLDER}/ports/1/counters/{name}", "0\n")
    found = port(tree)
    assert (found["errors_gained"], found["downs_gained"], found["watched_s"]) == (0, 0, Absent)
