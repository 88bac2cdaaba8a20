"""PCIe trees, RDMA cards, processes and networks, laid out on a `Tree` as sysfs and procfs show them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

from gpudoctor.core.fact import Known
from tests.probes.trees import Tree

ACS, ATS, AER = 0x000D, 0x000F, 0x0001
REDIRECT = 0b0011101
"""Source validation, request and completion redirect, upstream forwarding: what Linux sets for an IOMMU."""


def config(capabilities: dict[int, int] | None = None, size: int = 4096) -> bytes:
    """Configuration space with extended capabilities in a chain from 0x100 on: id to control register."""
    entries = {AER: 0, **(capabilities or {})}
    space = bytearray(4096)
    struct.pack_into("<HH", space, 0, 0x10DE, 0x2330)
    for index, (kind, control) in enumerate(entries.items()):
        offset = 0x100 + 0x40 * index
        following = offset + 0x40 if index + 1 < len(entries) else 0
        struct.pack_into("<IHH", space, offset, kind | 1 << 16 | following << 20, 0x001F, control)
    return bytes(space[:size])


def device(
    tree: Tree, path: str, vendor: int = 0x10DE, kind: int = 0x030200, node: int = 0, space: bytes | None = None
) -> Tree:
    """A device at ``pci0000:15/0000:15:01.0/.../0000:19:00.0``, and the bridges on the way that are not there yet."""
    parts = path.split("/")
    for depth in range(2, len(parts) + 1):
        folder, address = "/sys/devices/" + "/".join(parts[:depth]), parts[depth - 1]
        if (tree.root / folder.lstrip("/") / "vendor").exists():
            continue
        last = depth == len(parts)
        tree.file(f"{folder}/vendor", f"0x{vendor if last else 0x1000:04x}\n")
        tree.file(f"{folder}/class", f"0x{kind if last else 0x060400:06x}\n").file(f"{folder}/numa_node", f"{node}\n")
        tree.file(f"{folder}/config", (space if last else None) or config()).file(f"{folder}/power_state", "D0\n")
        tree.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/{'/'.join(parts[:depth])}")
    return tree


def switched(tree: Tree, root: str, first: int, devices: int = 2, node: int = 0) -> list[str]:
    """A root port, a switch, and GPUs at its downstream ports; their paths under /sys/devices."""
    paths = []
    for number in range(devices):
        upstream = f"pci0000:{root}/0000:{root}:01.0/0000:{first:02x}:00.0"
        paths.append(f"{upstream}/0000:{first + 1:02x}:{number:02x}.0/0000:{first + 2 + number:02x}:00.0")
        device(tree, paths[-1], node=node)
    return paths


def card(tree: Tree, path: str, name: str, folder: str = "infiniband", node: int = 0) -> Tree:
    """A network card or disk at that path, known to the class `folder` by its name."""
    device(tree, path, vendor=0x15B3, kind=0x020700, node=node)
    tree.folder(f"/sys/devices/{path}/{folder}/{name}")
    tree.link(f"/sys/devices/{path}/{folder}/{name}/device", f"/sys/devices/{path}")
    return tree.link(f"/sys/class/{folder}/{name}", f"/sys/devices/{path}/{folder}/{name}")


def rdma_port(tree: Tree, name: str, state: str = "4: ACTIVE", layer: str = "InfiniBand", number: int = 1) -> Tree:
    """A port of an RDMA device whose class folder `card` has made."""
    place = str((tree.root / f"sys/class/infiniband/{name}").readlink()) + f"/ports/{number}"
    physical = "5: LinkUp" if state.startswith(("4", "2")) else "2: Polling"
    tree.file(f"{place}/state", f"{state}\n").file(f"{place}/phys_state", f"{physical}\n")
    tree.file(f"{place}/link_layer", f"{layer}\n").file(f"{place}/rate", "400 Gb/sec (4X NDR)\n")
    tree.file(f"{place}/gids/0", "fe80:0000:0000:0000:b859:9f03:00a1:b2c4\n")
    tree.file(f"{place}/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
    for counter, count in (("link_downed", 1), ("symbol_error", 0), ("port_rcv_errors", 3)):
        tree.file(f"{place}/counters/{counter}", f"{count}\n")
    return tree


def process(tree: Tree, pid: int, name: str, state: str = "S", wchan: str = "0", opened: str = "") -> Tree:
    """A process that started ten seconds after the machine; `opened` is what its file descriptor 3 is."""
    rest = " ".join(["1"] * 18) + " 1000 " + " ".join(["0"] * 30)
    folder = f"/proc/{pid}"
    tree.file(f"{folder}/stat", f"{pid} ({name}) {state} {rest}\n").file(f"{folder}/cmdline", f"{name}\0-L\0")
    tree.file(f"{folder}/status", "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n")
    tree.file(f"{folder}/wchan", wchan)
    return tree.link(f"{folder}/fd/3", opened) if opened else tree


def shown(rows: Any) -> list[dict[str, Any]]:
    """Rows with the known values, and the types of what is not known."""
    return [{name: f.value if isinstance(f, Known) else type(f) for name, f in row.items()} for row in rows]


_HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
_LOCAL = "           |-- {}\n              /32 host LOCAL\n"


class Network:
    """Interfaces are numbered as they are added; `done` writes the tables and gives the tree back."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._number = 0
        self._own: list[str] = []
        self._routes: list[str] = []
        self._six: list[str] = []
        self.add("lo", "127.0.0.1/8", "::1/128", kind=772, state="unknown", card=False)

    def add(self, name: str, *addresses: str, kind: int = 1, state: str = "up", card: bool = True) -> Network:
        """An interface; a `card` hangs on the PCI bus."""
        self._number += 1
        folder = f"/sys/class/net/{name}"
        values: Mapping[str, object] = {
            "ifindex": self._number,
            "type": kind,
            "operstate": state,
            "flags": "0x1003",
            "mtu": 65536 if name == "lo" else 1500,
        }
        for key, value in values.items():
            self.tree.file(f"{folder}/{key}", f"{value}\n")
        if card:
            self.tree.file(f"{folder}/device/numa_node", "1\n").file(f"{folder}/speed", "100000\n")
        for address in map(ip_interface, addresses):
            self._hold(name, address)
        return self

    def _hold(self, name: str, address: IPv4Interface | IPv6Interface) -> None:
        if isinstance(address, IPv6Interface):
            scope = "20" if address.is_link_local else "00"
            self._six.append(f"{address.ip.packed.hex()} {self._number:02x} 40 {scope} 80 {name:>8}\n")
            return
        self._own.append(str(address.ip))
        if name != "lo" and address.network.prefixlen < 32:
            self.route(name, str(address.network))

    def route(self, name: str, network: str, gateway: str = "0.0.0.0", metric: int = 0) -> Network:
        """A route, straight or by a gateway."""
        goal = ip_interface(network).network
        numbers = [_little(str(goal.network_address)), _little(gateway)]
        flags = "0003" if gateway != "0.0.0.0" else "0001"
        words: Sequence[object] = (name, *numbers, flags, 0, 0, metric, _little(str(goal.netmask)), 0, 0, 0)
        self._routes.append("\t".join(map(str, words)) + "\n")
        return self

    def bridge(self, name: str, *ports: str) -> Network:
        """Make it a bridge with these ports."""
        self.tree.folder(f"/sys/class/net/{name}/bridge").folder(f"/sys/class/net/{name}/brif")
        for port in ports:
            self.tree.file(f"/sys/class/net/{name}/brif/{port}")
            self.tree.link(f"/sys/class/net/{port}/master", f"/sys/class/net/{name}")
        return self

    def done(self) -> Tree:
        """The tree, its tables written."""
        trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n" + "".join(map(_LOCAL.format, self._own))
        self.tree.file("/proc/net/fib_trie", trie + trie.replace("Main", "Local"))
        self.tree.file("/proc/net/route", _HEAD + "".join(self._routes))
        return self.tree.file("/proc/net/if_inet6", "".join(self._six))


def _little(address: str) -> str:
    return bytes(map(int, reversed(address.split(".")))).hex().upper()
