"""Where GPUs, network cards and disks hang on PCIe; what ACS does there; and what cannot be told without root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import topology
from tests.probes.buses import ACS, ATS, REDIRECT, card, config, device, shown, switched
from tests.probes.trees import Tree, said, values

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
    device(tree, "pci0000:00/0000:00:02.0/0000:07:00.0", vendor=0x1000, kind=0x068000)
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
