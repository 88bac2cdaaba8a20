"""The PCI bus of a simulated machine: GPUs, NVSwitches, RDMA adapters, and the bridges and switches above them."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sim.files import Files

SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""PCIe generation to GT/s."""

BUS = "/sys/bus/pci/devices"
_ACS = 0x000D
_GPU_3D, _GPU_VGA, _BRIDGE, _SWITCH_FABRIC, _INFINIBAND, _ETHERNET = (
    0x030200,
    0x030000,
    0x060400,
    0x068000,
    0x020700,
    0x020000,
)


_SWITCH_DATA = b"\x82\x10\0NVIDIA Switch\0\0\0\x90\x0c\0V0\x09SW_MNG\0\0\0\x78"
"""Product data by which a port that manages an NVSwitch is known."""


@dataclass(frozen=True, slots=True)
class Device:
    """`link`: PCIe generation and lanes, now and at most (speed, speed_max, width, width_max), and bar1 in bytes."""

    address: str
    vendor: int
    device: int
    kind: int
    link: Mapping[str, Any] = field(default_factory=dict)
    node: int = 0
    driver: str | None = None


def plug(files: Files, machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> None:
    """Everything on the bus, each at its place below the bridges that the scenario's ``bridges`` tells."""
    files.folder(BUS).folder("/sys/class/iommu")
    if machine["iommu"]:
        files.folder("/sys/class/iommu/dmar0" if machine["arch"] == "x86_64" else "/sys/class/iommu/smmu3.0")
    bound = machine["bound"] or ("nvidia" if machine["driver"] and machine["loaded"] else None)
    cards = _gpus(machine, gpus, bound)
    above = _bridges(files, machine, [card.address for card in cards])
    for card in cards:
        _put(files, machine, card, above[card.address])
    for address in _addresses(machine["nvswitches"], "0000:{:02x}:00.0", 5):
        switch = Device(address, 0x10DE, int(machine["nvswitch_id"], 16), _SWITCH_FABRIC, driver=bound)
        _put(files, machine, switch, _own_port(address))
    for address, vendor, device, kind in _others(machine):
        _put(files, machine, Device(address, vendor, device, kind), "/sys/devices/pci0000:00")
    _adapters(files, machine, cards, above)


def _gpus(machine: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], bound: str | None) -> list[Device]:
    """The GPUs that the driver shows, and those of the same kind that it does not show here."""
    kind = _GPU_VGA if machine["display_class"] else _GPU_3D
    cards = [
        Device(gpu["address"], gpu["id"] & 0xFFFF, gpu["id"] >> 16, kind, gpu, gpu.get("numa", 0), bound)
        for gpu in gpus
    ]
    shown = {card.address for card in cards}
    for at, address in enumerate(machine["unseen"]):
        if address not in shown:
            node = at * machine["numa"] // len(machine["unseen"])
            cards.append(Device(address, cards[0].vendor, cards[0].device, kind, gpus[0], node, bound))
    return sorted(cards, key=lambda card: card.address)


def _others(machine: Mapping[str, Any]) -> list[tuple[str, int, int, int]]:
    """The chipset's bridge to slow devices, and the processor's own GPU."""
    found = [("0000:00:1f.0", 0x8086, 0x7A04, 0x060100)]
    if machine["integrated"]:
        vendor, _, device = machine["integrated"].partition(":")
        found.append(("0000:00:02.0", int(vendor, 16), int(device, 16), _GPU_VGA))
    return found


def _addresses(told: int | list[str], form: str, first: int, step: int = 1) -> list[str]:
    """Addresses as given, or so many of them from bus `first` on."""
    return told if isinstance(told, list) else [form.format(first + step * at) for at in range(told)]


def _own_port(address: str) -> str:
    """The folder of a root port on a host bridge of its own; on bus 0 the host bridge itself."""
    domain, bus = address.split(":")[:2]
    if not int(bus, 16):
        return f"/sys/devices/pci{domain}:00"
    before = f"{domain}:{int(bus, 16) - 1:02x}"
    return f"/sys/devices/pci{before}/{before}:01.0"


def _bridges(files: Files, machine: Mapping[str, Any], cards: Sequence[str]) -> dict[str, str]:
    """The folder that each GPU is in, by address; the bridges on the way are written."""
    if machine["bridges"] == "ports":
        return {
            address: f"/sys/devices/pci0000:00/0000:00:01.{at}" if address[5:7] != "00" else "/sys/devices/pci0000:00"
            for at, address in enumerate(cards)
        }
    if machine["bridges"] == "own":
        return {address: _own_port(address) for address in cards}
    above: dict[str, str] = {}
    for first in range(0, len(cards), machine["per_switch"]):
        group = cards[first : first + machine["per_switch"]]
        upstream, downstream = _switch(group[0])
        for at, address in enumerate(group):
            above[address] = f"{upstream}/{downstream}:{4 * at + 4:02x}.0"
    return above


def _switch(address: str) -> tuple[str, str]:
    """Upstream port and downstream bus of the switch whose first GPU is at `address`.

    The four buses before the GPU's own are the host bridge's, the switch's two, and that of the adapter beside it.
    """
    domain, number = address.split(":")[0], int(address.split(":")[1], 16)
    root = f"{domain}:{number - 4:02x}"
    return f"/sys/devices/pci{root}/{root}:01.0/{domain}:{number - 3:02x}:00.0", f"{domain}:{number - 2:02x}"


def _put(files: Files, machine: Mapping[str, Any], device: Device, above: str) -> None:
    """A device below `above`, whose bridges can do as much as it; what is already there stays."""
    folder = f"{above}/{device.address}"
    fastest, widest = device.link.get("speed_max", 4), device.link.get("width_max", 16)
    parts = above.split("/")[4:]
    for depth, bridge in enumerate(parts, 1):
        place = "/".join(above.split("/")[: 4 + depth])
        if f"{place}/config" not in files.files:
            _write(files, machine, Device(bridge, 0x8086, 0x352A, _BRIDGE, device.link, device.node, "pcieport"), place)
    _write(files, machine, device, folder)
    window = device.link.get("bar1", 256 << 20)
    regions = [(0xA0000000, 0xA0FFFFFF), (0x2000000000, 0x2000000000 + window - 1)]
    lines = [f"0x{start:016x} 0x{end:016x} 0x{0x40200:016x}\n" for start, end in regions]
    files.add(f"{folder}/resource", "".join(lines) + (" ".join(["0x" + "0" * 16] * 3) + "\n") * 11)
    files.add(f"{folder}/current_link_speed", f"{SPEEDS[device.link.get('speed', fastest)]} GT/s PCIe\n")
    files.add(f"{folder}/current_link_width", f"{device.link.get('width', widest)}\n")


def _write(files: Files, machine: Mapping[str, Any], device: Device, folder: str) -> None:
    """The files that any device has: identity, configuration space, the fastest link, node, driver."""
    fastest, widest = SPEEDS[device.link.get("speed_max", 4)], device.link.get("width_max", 16)
    for name, value in {
        "vendor": f"0x{device.vendor:04x}",
        "device": f"0x{device.device:04x}",
        "class": f"0x{device.kind:06x}",
        "current_link_speed": f"{fastest} GT/s PCIe",
        "current_link_width": widest,
        "max_link_speed": f"{fastest} GT/s PCIe",
        "max_link_width": widest,
        "numa_node": device.node if machine["numa"] > 1 else -1,
        "power_state": "D0",
    }.items():
        files.add(f"{folder}/{name}", f"{value}\n")
    files.add(f"{folder}/config", _config(device, machine["virtual"]))
    files.link(f"{BUS}/{device.address}", folder)
    if machine["iommu"]:
        group = f"/sys/kernel/iommu_groups/{sum(path.endswith('/iommu_group') for path in files.links)}"
        files.add(f"{group}/type", f"{machine['iommu']}\n").link(f"{folder}/iommu_group", group)
    if device.driver:
        files.folder(f"/sys/bus/pci/drivers/{device.driver}")
        files.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{device.driver}")


def _config(device: Device, virtual: bool) -> bytes:
    """Configuration space: a header; behind it, where no hypervisor hides it, Access Control Services, switched off."""
    kind = device.kind
    ids = (device.vendor, device.device, 0x406, 0x10, 0xA1, kind & 0xFF, kind >> 8 & 0xFF, kind >> 16)
    header = struct.pack("<HHHHBBBB", *ids).ljust(256, b"\0")
    if virtual:
        return header
    chain = struct.pack("<IHH", _ACS | 1 << 16, 0x5F, 0) if kind == _BRIDGE else struct.pack("<IHH", 1 | 1 << 16, 0, 0)
    return (header + chain).ljust(4096, b"\0")


def _adapters(files: Files, machine: Mapping[str, Any], cards: Sequence[Device], above: Mapping[str, str]) -> None:
    """RDMA adapters: each beside its GPU where there are switches, else on a root port of its own."""
    told = machine["hcas"]
    count = len(told) if isinstance(told, list) else told
    total = count + machine["switch_ports"]
    kind = _INFINIBAND if machine["link_layer"] == "InfiniBand" else _ETHERNET
    for number in range(total):
        node = number * machine["numa"] // count if number < count else 0
        if number >= count:
            address = f"0000:{0xF4 + number - count:02x}:00.0"
            place = _own_port(address)
        elif isinstance(told, list):
            address, place = told[number], _own_port(told[number])
        elif machine["bridges"] == "switch":
            card = cards[number * len(cards) // count]
            bus = int(card.address[5:7], 16)
            address, place = f"{card.address[:5]}{bus - 1:02x}:00.0", _beside(above[card.address])
            node = card.node
        else:
            address = f"0000:{0x8A + 2 * number:02x}:00.0"
            place = _own_port(address)
        link = {"speed_max": 5}
        _put(files, machine, Device(address, 0x15B3, 0x1021, kind, link, node, "mlx5_core"), place)
        up = not count - machine["hcas_down"] <= number < count
        _port(files, machine, number, _place_of(files, address), up)
        if number >= count:
            files.add(f"{_place_of(files, address)}/vpd", _SWITCH_DATA)


def _beside(port: str) -> str:
    """The downstream port next to a GPU's."""
    switch, _, own = port.rpartition("/")
    return f"{switch}/{own[:-4]}{int(own[-4:-2], 16) - 4:02x}.0" if own.endswith("04.0") else f"{switch}/{own[:-2]}.1"


def _place_of(files: Files, address: str) -> str:
    """The folder of a device that is on the bus."""
    return files.links[f"{BUS}/{address}"]


def _port(files: Files, machine: Mapping[str, Any], number: int, device: str, up: bool) -> None:
    """An RDMA device of one port, its address table, its counters, and the files that programs use it through."""
    folder, layer = f"/sys/class/infiniband/mlx5_{number}", machine["link_layer"]
    port = f"{folder}/ports/1"
    state = ("4: ACTIVE", "5: LinkUp") if up else ("1: DOWN", "3: Disabled")
    words = {"state": state[0], "phys_state": state[1], "rate": machine["rate"], "link_layer": layer}
    for name, value in words.items():
        files.add(f"{port}/{name}", f"{value}\n")
    for name, value in {"fw_ver": "28.43.2026", "board_id": "MT_0000000838", "hca_type": "MT4129"}.items():
        files.add(f"{folder}/{name}", f"{value}\n")
    files.add(f"{port}/gids/0", f"fe80:0000:0000:0000:a088:c203:00b1:{number:04x}\n")
    if layer == "Ethernet":
        files.add(f"{port}/gid_attrs/types/0", "RoCE v2\n")
    net = f"ib{number}" if layer == "InfiniBand" else f"enp1s0f{number}np{number}"
    files.add(f"{device}/net/{net}/operstate", "up\n" if up else "down\n")
    files.link(f"/sys/class/net/{net}", f"{device}/net/{net}")
    counters = "link_downed link_error_recovery symbol_error port_rcv_errors local_link_integrity_errors"
    for name in counters.split():
        files.add(f"{port}/counters/{name}", "0\n")
    files.add(f"{port}/hw_counters/local_ack_timeout_err", "0\n")
    files.link(f"{folder}/device", device)
    files.folder(f"/sys/class/infiniband_verbs/uverbs{number}")
    files.device(f"/dev/infiniband/uverbs{number}", f"231:{192 + number} 0666")
    for module in ("ib_uverbs", "ib_umad", "mlx5_core", "mlx5_ib"):
        files.folder(f"/sys/module/{module}/holders")
