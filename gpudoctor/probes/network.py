"""Network interfaces of this machine, and which of them and of its RDMA devices NCCL and Gloo were told to use."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.links.choice import selected
from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._net import choice
from gpudoctor.probes._net import interfaces as sysfs
from gpudoctor.probes._net.addresses import Addresses, addresses_of
from gpudoctor.probes._net.interfaces import Interface
from gpudoctor.probes._net.settings import settings_of
from gpudoctor.probes._reading import line, names
from gpudoctor.target import Target

FACTS = (
    fact("net.interfaces", "list", "network interfaces by name, loopback included"),
    fact("net.unmatched", "list", "settings that name no interface there is, such as NCCL_SOCKET_IFNAME=eno1"),
    fact("net.hca_unmatched", "text", "NCCL_IB_HCA where it selects none of the RDMA devices; absent where it does"),
    fact(
        "net.hca_inactive",
        "text",
        "NCCL_IB_HCA where it selects RDMA devices of which no port is active; absent where one is",
    ),
    fact("net.default_interface", "text", "interface of the IPv4 route to everywhere else; absent where there is none"),
    fact("net.nccl_interface", "text", "interface whose address NCCL would announce, worked out as NCCL does it"),
    fact("net.nccl_address", "text", "that address"),
    fact("net.nccl_why", "text", "why NCCL would take this one"),
    fact("net.nccl_inner", "bool", "whether no other machine can reach it: the loopback, or a bridge to containers"),
    column("interface.name", "text", "network interface, such as eth0"),
    column("interface.index", "int", "the kernel's number for it; NCCL looks at interfaces in this order"),
    column(
        "interface.kind",
        "text",
        "loopback, physical, infiniband, wireless, bond, bridge, vlan, tunnel, or virtual (a pod's own eth0, too)",
    ),
    column(
        "interface.virtual",
        "bool",
        "whether it leads only to this machine's containers and guests, such as docker0, veth",
    ),
    column("interface.up", "bool", "whether it runs: switched on, with a carrier where it can tell"),
    column("interface.mtu", "int", "largest packet it sends", "B"),
    column("interface.speed_mbps", "int", "speed of its link; absent where it has none or is down", "Mb/s"),
    column("interface.addresses", "list", "its IP addresses, IPv4 first"),
    column("interface.default_route", "bool", "whether the IPv4 route to everywhere else goes over it"),
    column("interface.part_of", "text", "the bond or bridge that it is a port of; absent where of none"),
    column("interface.numa_node", "int", "NUMA node it is attached to"),
)

_DEVICES = "/sys/class/infiniband"
_RULES = "the interfaces, by NCCL's rules"


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From sysfs, /proc/net and the settings; nothing is sent to anyone."""
    found = sysfs.interfaces(target)
    yield from _interfaces(target, found)
    names_ = [one.name for one in found] if isinstance(found, list) else found
    yield "net.unmatched", _unmatched(target, names_)
    devices = names(target, _DEVICES)
    yield "net.hca_unmatched", _hca_unmatched(target, devices)
    yield "net.hca_inactive", _hca_inactive(target, devices)


def _interfaces(target: Target, found: list[Interface] | Absent | Unread) -> Iterator[tuple[str, Fact | Rows]]:
    if not isinstance(found, list):
        yield "net.interfaces", found
        yield "interface", found
        yield "net.default_interface", found
        yield from choice.facts("nccl", found, [], _RULES)
        return
    yield "net.interfaces", Known(tuple(sorted(one.name for one in found)), sysfs.FOLDER)
    held = addresses_of(target, [one.name for one in found if one.up is not False])
    yield "interface", tuple(sysfs.rows(target, found, held))
    yield "net.default_interface", _default(held)
    chosen = held if isinstance(held, Unread) else choice.nccl(target, found, held)
    yield from choice.facts("nccl", chosen, found, _RULES)


def _default(held: Addresses | Unread) -> Fact:
    if isinstance(held, Unread):
        return held
    return Known(held.default, "/proc/net/route") if held.default else Absent("no IPv4 route to everywhere else")


def _unmatched(target: Target, interfaces: list[str] | Absent | Unread) -> Fact:
    """NCCL takes prefixes, and no heed of a single character; Gloo's names must each be an interface."""
    if not isinstance(interfaces, list):
        return interfaces
    wrong = []
    wanted = settings_of(target)["NCCL_SOCKET_IFNAME"] or ""
    if len(wanted) > 1 and not selected(wanted, interfaces):
        wrong.append(f"NCCL_SOCKET_IFNAME={wanted}")
    plain = target.environ.get("GLOO_SOCKET_IFNAME")
    if plain and not set(plain.split(",")) <= set(interfaces):
        wrong.append(f"GLOO_SOCKET_IFNAME={plain}")
    return Known(tuple(wrong), f"the settings against {sysfs.FOLDER}")


def _hca_unmatched(target: Target, devices: list[str] | Absent | Unread) -> Fact:
    wanted = settings_of(target)["NCCL_IB_HCA"]
    if not wanted:
        return Absent("NCCL_IB_HCA is not set")
    if not isinstance(devices, list):
        return devices
    if selected(wanted, devices):
        return Absent(f"NCCL_IB_HCA={wanted} selects RDMA devices")
    return Known(wanted, f"the settings against {_DEVICES}")


def _hca_inactive(target: Target, devices: list[str] | Absent | Unread) -> Fact:
    wanted = settings_of(target)["NCCL_IB_HCA"]
    if not wanted:
        return Absent("NCCL_IB_HCA is not set")
    if not isinstance(devices, list):
        return devices
    states = [
        line(target, f"{_DEVICES}/{device}/ports/{port}/state")
        for device in selected(wanted, devices)
        for port in target.listing(f"{_DEVICES}/{device}/ports")
    ]
    if any(isinstance(state, Known) and "ACTIVE" in str(state.value) for state in states):
        return Absent(f"NCCL_IB_HCA={wanted} selects a device with an active port")
    blind = next((state for state in states if not isinstance(state, Known)), None)
    if blind or not states:
        return Unread(blind.why) if blind else Absent(f"NCCL_IB_HCA={wanted} selects no port")
    return Known(wanted, f"the settings against the ports in {_DEVICES}")
