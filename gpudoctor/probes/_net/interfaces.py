"""The network interfaces of a machine as sysfs shows them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._net.addresses import Addresses
from gpudoctor.probes._reading import line, names, number, real, there
from gpudoctor.target import Target

FOLDER = "/sys/class/net"

_MOST = 256
"""Interfaces after which we stop: a node with hundreds of pods has as many veth."""

_TYPES = {32: "infiniband", 772: "loopback", 768: "tunnel", 776: "tunnel", 778: "tunnel", 65534: "tunnel"}
"""ARPHRD numbers of ``linux/if_arp.h``."""

_GUESTS = pattern(r"(?:lo|docker\d*|virbr\d*(?:-nic)?|br-[0-9a-f]{12}|(?:veth|cali|lxc|vnet|tap).*|cni\d+|podman\d+)")
"""Names of interfaces that lead to containers and guests of this machine, and nowhere else."""


@frozen
class Interface:
    """`kind` is loopback, physical, infiniband, wireless, bond, bridge, vlan, tunnel or virtual; empty where unknown.

    `up` is what the kernel calls running: switched on, with a carrier where it can tell; None where it cannot be read.
    `inner` leads to this machine's own containers and guests only.
    """

    name: str
    index: int
    kind: str
    up: bool | None
    inner: bool


def interfaces(target: Target) -> list[Interface] | Absent | Unread:
    """All of them in the kernel's order, by number."""
    found = names(target, FOLDER)
    if not isinstance(found, list):
        return found
    listed = [_interface(target, name) for name in found[:_MOST] if name != "bonding_masters"]
    return sorted(listed, key=lambda one: (one.index, one.name))


def _interface(target: Target, name: str) -> Interface:
    folder = f"{FOLDER}/{name}"
    index, kind = number(target, f"{folder}/ifindex"), _kind(target, name)
    state = line(target, f"{folder}/operstate")
    up = str(state.value) in ("up", "unknown") and _switched_on(target, name) if isinstance(state, Known) else None
    place = int(str(index.value)) if isinstance(index, Known) else 1 << 30
    return Interface(name, place, kind, up, _leads_inside(target, name, kind))


def _switched_on(target: Target, name: str) -> bool:
    flags = line(target, f"{FOLDER}/{name}/flags")
    try:
        return not isinstance(flags, Known) or bool(int(str(flags.value), 16) & 1)
    except ValueError:
        return True


def _kind(target: Target, name: str) -> str:
    folder = f"{FOLDER}/{name}"
    for mark, kind in (("bridge", "bridge"), ("bonding", "bond"), ("wireless", "wireless"), ("tun_flags", "tunnel")):
        if there(target, f"{folder}/{mark}") is True:
            return kind
    if there(target, f"/proc/net/vlan/{name}") is True:
        return "vlan"
    said = number(target, f"{folder}/type")
    kind = _TYPES.get(int(str(said.value)), "") if isinstance(said, Known) else ""
    if kind or there(target, f"{folder}/device") is True:
        return kind or "physical"
    return "loopback" if name == "lo" else "virtual" if isinstance(said, Known) else ""


def _leads_inside(target: Target, name: str, kind: str) -> bool:
    """A bridge with a card among its ports leads outside, whatever its name."""
    if kind == "bridge":
        ports = target.listing(f"{FOLDER}/{name}/brif")
        return not any(there(target, f"{FOLDER}/{port}/device") is True for port in ports)
    return kind == "loopback" or _GUESTS.fullmatch(name) is not None


def rows(target: Target, found: list[Interface], held: Addresses | Unread) -> Iterator[Row]:
    """One row for each."""
    for one in found:
        folder = f"{FOLDER}/{one.name}"
        yield {
            "name": Known(one.name, FOLDER),
            "index": Known(one.index, folder) if one.index < 1 << 30 else Unread(f"no {folder}/ifindex"),
            "kind": Known(one.kind, folder) if one.kind else Unread(f"{folder} does not say"),
            "virtual": Known(one.inner, folder),
            "up": Unread(f"no {folder}/operstate") if one.up is None else Known(one.up, f"{folder}/operstate"),
            "mtu": number(target, f"{folder}/mtu"),
            "speed_mbps": _speed(target, one),
            "addresses": _addresses(one.name, held),
            "default_route": held if isinstance(held, Unread) else Known(held.default == one.name, "/proc/net/route"),
            "part_of": _part_of(target, one.name),
            "numa_node": _node(target, one.name),
        }


def _speed(target: Target, one: Interface) -> Fact:
    """-1, or an error on reading, where the link is down or has no speed."""
    if one.kind in ("loopback", "bridge", "tunnel", "virtual"):
        return Absent(f"a {one.kind} interface has no speed of its own")
    said = number(target, f"{FOLDER}/{one.name}/speed")
    if isinstance(said, Known) and int(str(said.value)) > 0:
        return said
    return Absent(f"{FOLDER}/{one.name} tells no speed")


def _addresses(name: str, held: Addresses | Unread) -> Fact:
    if isinstance(held, Unread):
        return held
    own = tuple(one.text for one in held.by_interface.get(name, ()))
    if not own and held.stray:
        return Unread(f"of {', '.join(held.stray)} the interface cannot be told")
    return Known(own, "/proc/net")


def _part_of(target: Target, name: str) -> Fact:
    """The bond or bridge that it is a port of."""
    path = f"{FOLDER}/{name}/master"
    above = real(target, path).rpartition("/")[2] if there(target, path) is True else ""
    return Known(above, path) if above else Absent(f"no {path}")


def _node(target: Target, name: str) -> Fact:
    said = number(target, f"{FOLDER}/{name}/device/numa_node")
    if isinstance(said, Known) and int(str(said.value)) < 0:
        return Absent("the machine has no NUMA nodes, or does not say which")
    return said
