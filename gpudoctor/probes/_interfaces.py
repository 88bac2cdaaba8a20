"""The network interfaces of a machine as sysfs shows them, and their addresses from /proc/net alone.

IPv6 addresses are listed with their interface (`if_inet6`). Of IPv4 the kernel lists its own addresses in the routing
trie, without one; the interface is that of the narrowest connected network around the address. An address alone in its
network (/32, as clouds and pods have) belongs to the only interface that is up and would otherwise have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known, number_of, value_of
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._reading import line, names, number, path_exists, resolve_path, text
from gpudoctor.target import Target
from gpudoctor.target.network import Address

INTERFACES = "/sys/class/net"

_MOST_INTERFACES = 256
"""Interfaces after which we stop: a node with hundreds of pods has as many veth."""

_TYPES = {32: "infiniband", 772: "loopback", 768: "tunnel", 776: "tunnel", 778: "tunnel", 65534: "tunnel"}
"""ARPHRD numbers of ``linux/if_arp.h``."""

_GUESTS = pattern(r"(?:lo|docker\d*|virbr\d*(?:-nic)?|br-[0-9a-f]{12}|(?:veth|cali|lxc|vnet|tap).*|cni\d+|podman\d+)")
"""Names of interfaces that lead to containers and guests of this machine, and nowhere else."""


@frozen
class Interface:
    """One network interface.

    `kind` is loopback, physical, infiniband, wireless, bond, bridge, vlan, tunnel or virtual; empty if unknown.
    `up`: administratively up, with a carrier where it can tell; None if it cannot be read.
    `inner`: leads to this machine's own containers and guests only.
    """

    name: str
    index: int
    kind: str
    up: bool | None
    inner: bool


def interfaces(target: Target) -> list[Interface] | Absent | Unread:
    """At most 256 network interfaces, in the kernel's order (by index); absent or unread as /sys/class/net is."""
    found = names(target, INTERFACES)
    if not isinstance(found, list):
        return found
    listed = [_interface(target, name) for name in found[:_MOST_INTERFACES] if name != "bonding_masters"]
    return sorted(listed, key=lambda one: (one.index, one.name))


def _interface(target: Target, name: str) -> Interface:
    """The interface of that name as sysfs shows it, whether it is there or not; one without a readable index gets the
    index 1 << 30, and so comes last.
    """
    folder = f"{INTERFACES}/{name}"
    index, kind = value_of(number(target, f"{folder}/ifindex")), _kind(target, name)
    state = known(line(target, f"{folder}/operstate"))
    up = state.value in ("up", "unknown") and _is_admin_up(target, name) if state else None
    return Interface(name, index if isinstance(index, int) else 1 << 30, kind, up, _leads_inside(target, name, kind))


def _is_admin_up(target: Target, name: str) -> bool:
    """True if the interface's flag IFF_UP is set, or its flags cannot be read."""
    flags = known(line(target, f"{INTERFACES}/{name}/flags"))
    try:
        return not flags or bool(int(str(flags.value), 16) & 1)
    except ValueError:
        return True


def _kind(target: Target, name: str) -> str:
    """The interface's `Interface.kind`: loopback, physical, bond, vlan or another; empty if unknown."""
    folder = f"{INTERFACES}/{name}"
    for mark, kind in (("bridge", "bridge"), ("bonding", "bond"), ("wireless", "wireless"), ("tun_flags", "tunnel")):
        if path_exists(target, f"{folder}/{mark}") is True:
            return kind
    if path_exists(target, f"/proc/net/vlan/{name}") is True:
        return "vlan"
    code = known(number(target, f"{folder}/type"))
    kind = _TYPES.get(int(str(code.value)), "") if code else ""
    if kind or path_exists(target, f"{folder}/device") is True:
        return kind or "physical"
    return "loopback" if name == "lo" else "virtual" if code else ""


def _leads_inside(target: Target, name: str, kind: str) -> bool:
    """True if the interface leads only to this machine's containers and guests, by its name and kind.

    A bridge does unless a network card is among its ports.
    """
    if kind == "bridge":
        ports = target.listing(f"{INTERFACES}/{name}/brif")
        return not any(path_exists(target, f"{INTERFACES}/{port}/device") is True for port in ports)
    return kind == "loopback" or _GUESTS.fullmatch(name) is not None


def interface_rows(target: Target, listed: list[Interface], addresses: Addresses | Unread) -> Iterator[Row]:
    """Yields the row of the group ``interface`` of each of `listed`.

    Columns: name, index, kind, virtual, up, mtu, speed_mbps, addresses, default_route, part_of and numa_node.
    """
    for interface in listed:
        folder = f"{INTERFACES}/{interface.name}"
        yield {
            "name": Known(interface.name, INTERFACES),
            "index": Known(interface.index, folder) if interface.index < 1 << 30 else Unread(f"no {folder}/ifindex"),
            "kind": Known(interface.kind, folder) if interface.kind else Unread(f"{folder} does not say"),
            "virtual": Known(interface.inner, folder),
            "up": Unread(f"no {folder}/operstate")
            if interface.up is None
            else Known(interface.up, f"{folder}/operstate"),
            "mtu": number(target, f"{folder}/mtu"),
            "speed_mbps": _speed(target, interface),
            "addresses": _own_addresses(interface.name, addresses),
            "default_route": addresses
            if isinstance(addresses, Unread)
            else Known(addresses.default == interface.name, "/proc/net/route"),
            "part_of": _part_of(target, interface.name),
            "numa_node": _numa_node(target, interface.name),
        }


def _speed(target: Target, interface: Interface) -> Fact:
    """The interface's speed in Mbit/s; absent if not positive or not readable, and always for a loopback, bridge,
    tunnel or virtual one.
    """
    if interface.kind in ("loopback", "bridge", "tunnel", "virtual"):
        return Absent(f"a {interface.kind} interface has no speed of its own")
    speed = number(target, f"{INTERFACES}/{interface.name}/speed")
    if (number_of(speed) or 0) > 0:
        return speed
    return Absent(f"{INTERFACES}/{interface.name} tells no speed")


def _own_addresses(name: str, addresses: Addresses | Unread) -> Fact:
    """The interface's addresses, maybe none; unread if it has none but some address belongs to no known interface."""
    if isinstance(addresses, Unread):
        return addresses
    own = tuple(one.text for one in addresses.by_interface.get(name, ()))
    if not own and addresses.stray:
        return Unread(f"of {', '.join(addresses.stray)} the interface cannot be told")
    return Known(own, "/proc/net")


def _part_of(target: Target, name: str) -> Fact:
    """Name of the bond or bridge that the interface is a port of; absent if none."""
    path = f"{INTERFACES}/{name}/master"
    above = resolve_path(target, path).rpartition("/")[2] if path_exists(target, path) is True else ""
    return Known(above, path) if above else Absent(f"no {path}")


def _numa_node(target: Target, name: str) -> Fact:
    """The NUMA node of the interface's card; absent if it has none, or the machine has no NUMA nodes."""
    node = number(target, f"{INTERFACES}/{name}/device/numa_node")
    if (number_of(node) or 0) < 0:
        return Absent("the machine has no NUMA nodes, or does not say which")
    return node


# ---- Addresses ----

_TRIE = "/proc/net/fib_trie"
_ROUTES = "/proc/net/route"
_IPV6 = "/proc/net/if_inet6"
_LOCAL = pattern(r"\|-- ([\d.]+)\n\s+/32 host LOCAL\b")
_LINK_SCOPE = "20"
_GATEWAY = 2
"""The flag of a route that leads through a gateway."""


@frozen
class Route:
    """One IPv4 route: over `interface` to `network`, by a gateway or straight (`connected`)."""

    interface: str
    network: IPv4Network
    connected: bool
    metric: int


@frozen
class Addresses:
    """Addresses by interface, IPv4 first, as getifaddrs gives them; `stray`: those whose interface is not known."""

    by_interface: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    stray: tuple[str, ...] = ()
    default: str = ""
    """The interface of the IPv4 route to everywhere else; empty where there is none."""

    def holder(self, address: str) -> str | None:
        """Name of the interface that has the address; None if none has. All of 127.0.0.0/8 is the loopback's."""
        if is_loopback(address):
            return "lo"
        return next((name for name, own in self.by_interface.items() if address in [one.text for one in own]), None)


def is_loopback(address: str) -> bool:
    """True for 127.0.0.0/8 and ::1."""
    return address.startswith("127.") or address == "::1"


def addresses_of(target: Target, listed: Sequence[Interface]) -> Addresses | Unread:
    """The addresses of all interfaces, from /proc/net; unread if IPv4's cannot be read.

    `listed`: the interfaces in the kernel's order.
    """
    trie, routes = (text(target, path) for path in (_TRIE, _ROUTES))
    if not isinstance(trie, str) or not isinstance(routes, str):
        why = next(one.why for one in (trie, routes) if isinstance(one, (Absent, Unread)))
        return Unread(f"addresses cannot be read: {why}")
    known = sorted(_routes(routes), key=lambda route: (-route.network.prefixlen, route.metric))
    found: dict[str, list[Address]] = {}
    stray: list[str] = []
    for own in dict.fromkeys(_LOCAL.findall(trie)):
        name, prefix = _interface_towards(IPv4Address(own), known)
        found.setdefault(name, []).append(Address(own, prefix)) if name else stray.append(own)
    up = [one.name for one in listed if one.up is not False]
    empty = [name for name in up if name not in found and name != "lo"]
    if stray and len(empty) == 1:
        found[empty[0]], stray = [Address(one, 32) for one in stray], []
    for name, six in _ipv6_addresses(target):
        found.setdefault(name, []).append(six)
    default = next((route.interface for route in known if route.network.prefixlen == 0), "")
    return Addresses({name: tuple(own) for name, own in found.items()}, tuple(stray), default)


def _interface_towards(address: IPv4Address, routes: Sequence[Route]) -> tuple[str, int]:
    """Interface on whose connected network the address is, and the network's prefix length; ``("", 32)`` if none.

    `routes`: the narrowest network first.
    """
    if address.is_loopback:
        return "lo", 8
    connected = (route for route in routes if route.connected and 0 < route.network.prefixlen < 32)
    return next(
        ((route.interface, route.network.prefixlen) for route in connected if address in route.network), ("", 32)
    )


def _routes(listed: str) -> Iterator[Route]:
    """Yields the IPv4 routes in the text of /proc/net/route; lines that cannot be parsed are skipped.

    Lines hold interface, destination, gateway, flags, ..., metric, mask; numbers as the CPU has them: every machine
    that runs CUDA is little-endian, so that ``000200C0`` is 192.0.2.0.
    """
    for fields in map(str.split, listed.splitlines()[1:]):
        try:
            destination, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
            network = IPv4Network((destination, mask.bit_count()), strict=False)
            yield Route(fields[0], network, not int(fields[3], 16) & _GATEWAY, int(fields[6]))
        except (IndexError, ValueError):
            continue


def _ipv6_addresses(target: Target) -> Iterator[tuple[str, Address]]:
    """Yields (interface, address) from /proc/net/if_inet6, global ones before link-local; nothing if it is unreadable.

    Lines read ``fd000000000000000000000000000002 03 40 00 80 eth0``.
    """
    listed = text(target, _IPV6)
    lines = (
        [fields for line in listed.splitlines() if len(fields := line.split()) == 6] if isinstance(listed, str) else []
    )
    for fields in sorted(lines, key=lambda fields: fields[3] == _LINK_SCOPE):
        try:
            yield fields[5], Address(str(IPv6Address(bytes.fromhex(fields[0]))), int(fields[2], 16))
        except ValueError:
            continue
