"""Lays out the network of a machine as sysfs and /proc/net show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from tests.probes.trees import Tree

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
