"""The PCI bus: what is there, what drives it, whether it still answers; and when the bus says nothing."""

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import pci
from tests.probes.trees import DEAD, Tree, refused, said, values

IDS = """# comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t2330  Not ours
10de  NVIDIA Corporation
\t2204  GA102 [GeForce RTX 3090]
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  HGX
8086  Intel Corporation
\t2331  Not ours either
"""


def row(tree: Tree, index: int = 0) -> dict[str, Any]:
    """The row's values, or the types of what is not known."""
    rows = said(pci, tree.target())["pci"]
    return {name: fact.value if isinstance(fact, Known) else type(fact) for name, fact in rows[index].items()}


def test_two_gpus_and_the_machines_own_display(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").gpu("nouveau", width=8)
    tree.pci("0000:04:00.0", 0x1A03, 0x2000, 0x030000, "ast").pci("0000:05:00.0", 0x8086, 0x1572, 0x020000, "i40e")
    facts = values(pci, tree.target())
    assert facts["pci.nvidia_count"] == 2
    assert facts["pci.gpu_vendors"] == ("other", "nvidia")
    assert facts["pci.nvidia_drivers"] == ("nvidia", "nouveau")
    assert len(facts["pci"]) == 3
    second = row(tree, 2)
    assert (second["address"], second["device_id"], second["driver"]) == ("0000:2a:00.0", "10de:2330", "nouveau")
    assert (second["link_width"], second["link_width_max"], second["slot_width_max"]) == (8, 16, 16)
    assert (second["link_speed"], second["slot_speed_max"]) == (32.0, 32.0)
    assert second["bar1_mib"] == 128 * 1024
    assert set(second) == {spec.name.removeprefix("pci.") for spec in pci.FACTS if spec.group}


def test_a_gpu_without_a_driver_on_a_root_port(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu()
    found = row(tree)
    assert found["driver"] is found["uplink"] is found["uplink_width"] is Absent
    assert values(pci, tree.target())["pci.nvidia_drivers"] == ()


def test_a_gpu_that_fell_off_the_bus_keeps_its_ids_and_what_its_link_says_is_no_number(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").gpu("nvidia", config=DEAD)
    assert [row(tree, index)["alive"] for index in (0, 1)] == [True, False]
    assert row(tree, 1)["device_id"] == "10de:2330"
    assert values(pci, tree.target())["pci.nvidia_count"] == 2
    tree = Tree(tmp_path / "link").linux().pci("0000:1a:00.0", 0x10DE, 0x2330, 0x030200, speed="Unknown", width=63)
    assert row(tree)["link_speed"] is Unread
    assert row(tree)["link_width"] is Unread
    assert row(Tree(tmp_path / "link" / "cut").linux().gpu(config=b"\xff\xff"))["alive"] is Unread


_GPU = "/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0"


@pytest.mark.parametrize(
    ("status", "state", "asleep"),
    [
        ("suspended", "D3cold", True),
        ("suspended", "D0", True),
        ("suspending", "D0", True),
        ("unsupported", "D3hot", True),
        (None, "D3cold", True),
        ("active", "D0", False),
        ("active", "D3cold", False),
        ("resuming", "D0", False),
        ("error", "D0", False),
        (None, "D0", False),
    ],
)
def test_a_sleeping_gpu_is_named_and_not_read(tmp_path: Path, status: str | None, state: str, asleep: bool) -> None:
    """Its port sleeps with it, or not; a status of active means that reading resumes nothing."""
    tree = Tree(tmp_path).linux().gpu("nvidia").file(f"{_GPU}/power_state", f"{state}\n")
    if status:
        tree.file(f"{_GPU}/power/runtime_status", f"{status}\n")
    seen = said(pci, tree.target())["pci"][0]
    for name in ("alive", "link_speed", "link_speed_max", "link_width", "link_width_max"):
        if asleep:
            assert isinstance(seen[name], Unread)
            assert "0000:1a:00.0 is asleep" in seen[name].why
        else:
            assert isinstance(seen[name], Known)
    assert (seen["device_id"].value, seen["driver"].value) == ("10de:2330", "nvidia")
    assert (seen["power_state"].value, seen["slot_width_max"].value) == (state, 16)


def test_a_sleeping_port_is_not_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia")
    tree.file(f"{_GPU.rpartition('/')[0]}/power/runtime_status", "suspended\n")
    assert (row(tree)["slot_width_max"], row(tree)["slot_speed_max"], row(tree)["link_width"]) == (Unread, Unread, 16)


def test_regions_without_an_address(tmp_path: Path) -> None:
    regions = ((0xA0000000, 0xA0FFFFFF), (0x0, 0x1FFFFFFFFF), (0, 0), (0xB0000000, 0xB1FFFFFF))
    tree = Tree(tmp_path).linux().pci("0000:1a:00.0", 0x10DE, 0x2330, 0x030200, regions=regions)
    assert row(tree)["bars_unassigned"] == (1,)
    tree.file("/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/resource", "garbage\n")
    assert row(tree)["bars_unassigned"] is Unread


@pytest.mark.parametrize(
    ("vendor", "kind", "name", "counted"),
    [
        (0x10DE, 0x030000, "nvidia", True),
        (0x10DE, 0x038000, "nvidia", True),
        (0x1002, 0x038000, "amd", True),
        (0x8086, 0x030000, "intel", True),
        (0x10DE, 0x040300, "nvidia", False),
        (0x10DE, 0x0C0330, "nvidia", False),
    ],
)
def test_only_display_and_3d_devices_are_gpus(tmp_path: Path, vendor: int, kind: int, name: str, counted: bool) -> None:
    facts = values(pci, Tree(tmp_path).linux().pci("0000:01:00.0", vendor, 0x1234, kind).target())
    assert facts["pci.gpu_vendors"] == ((name,) if counted else ())
    assert facts["pci.nvidia_count"] == int(counted and name == "nvidia")


def test_what_else_hangs_on_the_bus_is_no_gpu(tmp_path: Path) -> None:
    empty = values(pci, Tree(tmp_path / "empty").linux().target())
    assert (empty["pci.nvidia_count"], empty["pci.nvidia_drivers"], empty["driver.nvswitch"]) == (0, Absent, False)
    old = Tree(tmp_path / "nforce").linux().gpu("nvidia")
    for function, device in enumerate((0x0269, 0x0373, 0x03EF, 0x0760, 0x0AB0, 0x0D7D)):
        old.pci(f"0000:00:14.{function}", 0x10DE, device, 0x068000, "forcedeth")
    assert values(pci, old.target())["driver.nvswitch"] is False, "MCP51 to MCP89: Ethernet of a chipset"
    tree = Tree(tmp_path).linux().gpu("nvidia").pci("0000:c1:00.0", 0x10DE, 0x22A3, 0x068000, "nvidia-nvswitch")
    facts = values(pci, tree.target())
    assert (facts["pci.nvidia_count"], facts["driver.nvswitch"], len(facts["pci"])) == (1, True, 1)
    tree.pci("0000:1a:00.4", 0x10DE, 0x2330, 0x030200, "nvidia")
    tree.link("/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.4/physfn", "../0000:1a:00.0")
    facts = values(pci, tree.target())
    assert (facts["pci.nvidia_count"], len(facts["pci"])) == (1, 2)


def test_names_come_from_the_driver_else_from_pci_ids(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu()
    assert row(tree)["name"] is Unread
    tree.file("/usr/share/misc/pci.ids", IDS)
    assert row(tree)["name"] == "GH100 [H100 SXM5 80GB]"
    tree.driver("580.95.05")
    assert row(tree)["name"] == "NVIDIA H100 80GB HBM3"
    tree = Tree(tmp_path / "other").linux().file("/usr/share/hwdata/pci.ids", IDS).gpu(device=0x2331)
    assert row(tree)["name"] is Unread


def test_a_bus_that_cannot_be_read_is_not_zero_gpus(tmp_path: Path) -> None:
    facts = said(pci, Tree(tmp_path).folder("/sys").target())
    assert facts["pci"] == facts["pci.nvidia_count"] == Unread("no /sys/bus/pci/devices")
    inside = said(pci, Tree(tmp_path / "inside").folder("/sys").file("/.dockerenv").target())
    assert inside["pci.nvidia_count"] == Unread("no /sys/bus/pci/devices; the container (docker) may hide it")
    tree = Tree(tmp_path / "ids").linux().gpu().without("/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/class")
    count = said(pci, tree.target())["pci.nvidia_count"]
    assert count == Unread("/sys/bus/pci/devices/0000:1a:00.0 cannot be read")


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2", "WSL 2 hands the GPU over"),
        ("/proc/device-tree/model", "NVIDIA Jetson Orin Nano", "part of the chip"),
    ],
)
def test_a_gpu_off_the_bus_by_design_is_not_zero(tmp_path: Path, path: str, content: str, words: str) -> None:
    tree = Tree(tmp_path).linux().pci("0000:00:01.0", 0x1414, 0x8E, 0x030200, "dxgkrnl").file(path, content)
    count = said(pci, tree.target())["pci.nvidia_count"]
    assert isinstance(count, Unread)
    assert words in count.why


def test_a_bus_that_refuses_is_named() -> None:
    with refused("/sys/bus/pci/devices") as tree:
        tree.linux().gpu("nvidia")
        facts = said(pci, tree.close())
    assert facts["pci"] == facts["pci.nvidia_count"] == Unread("/sys/bus/pci/devices: Permission denied")
