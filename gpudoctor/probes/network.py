"""Network interfaces of this machine, and which of them and of its RDMA devices NCCL and Gloo were told to use."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, text_of
from gpudoctor.probes._interfaces import INTERFACES, Addresses, Interface, addresses_of, interface_rows, interfaces
from gpudoctor.probes._net_choice import choice_facts, choice_of_nccl, settings_of
from gpudoctor.probes._reading import as_unread, line, names
from gpudoctor.target import Target
from gpudoctor.target.network import selected_names

ONLY = "linux"
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
    """Yields the ``net`` facts and the group ``interface``, from sysfs, /proc/net and settings; nothing is sent."""
    found = interfaces(target)
    yield from _interface_facts(target, found)
    interface_names = [one.name for one in found] if isinstance(found, list) else found
    yield "net.unmatched", _unmatched(target, interface_names)
    selection = _selected_hcas(target, names(target, _DEVICES))
    yield "net.hca_unmatched", _hca_unmatched(selection)
    yield "net.hca_inactive", _hca_inactive(target, selection)


def _interface_facts(target: Target, listed: list[Interface] | Absent | Unread) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields net.interfaces (names), the group ``interface``, net.default_interface, and NCCL's choice (net.nccl_*).

    All absent or unread as the interfaces are.
    """
    if not isinstance(listed, list):
        yield "net.interfaces", listed
        yield "interface", listed
        yield "net.default_interface", listed
        yield from choice_facts("nccl", listed, [], _RULES)
        return
    yield "net.interfaces", Known(tuple(sorted(interface.name for interface in listed)), INTERFACES)
    addresses = addresses_of(target, listed)
    yield "interface", tuple(interface_rows(target, listed, addresses))
    yield "net.default_interface", _default_interface(addresses)
    chosen = addresses if isinstance(addresses, Unread) else choice_of_nccl(target, listed, addresses)
    yield from choice_facts("nccl", chosen, listed, _RULES)


def _default_interface(addresses: Addresses | Unread) -> Fact:
    """The interface of the IPv4 default route; absent if there is none, unread as the addresses are."""
    if isinstance(addresses, Unread):
        return addresses
    return (
        Known(addresses.default, "/proc/net/route") if addresses.default else Absent("no IPv4 route to everywhere else")
    )


def _unmatched(target: Target, present: list[str] | Absent | Unread) -> Fact:
    """Settings, ``NCCL_SOCKET_IFNAME=eno1``, that match none of the `present` interfaces.

    Absent or unread as these are. NCCL takes prefixes and ignores a single character; each of Gloo's names must be an
    interface.
    """
    if not isinstance(present, list):
        return present
    wrong = []
    wanted = settings_of(target)["NCCL_SOCKET_IFNAME"] or ""
    if len(wanted) > 1 and not selected_names(wanted, present):
        wrong.append(f"NCCL_SOCKET_IFNAME={wanted}")
    gloo_names = target.environ.get("GLOO_SOCKET_IFNAME")
    if gloo_names and not set(gloo_names.split(",")) <= set(present):
        wrong.append(f"GLOO_SOCKET_IFNAME={gloo_names}")
    return Known(tuple(wrong), f"the settings against {INTERFACES}")


def _selected_hcas(target: Target, devices: list[str] | Absent | Unread) -> tuple[str, list[str]] | Absent | Unread:
    """(value of NCCL_IB_HCA, RDMA devices that it selects); absent if not set, else absent or unread as `devices`."""
    wanted = settings_of(target)["NCCL_IB_HCA"]
    if not wanted:
        return Absent("NCCL_IB_HCA is not set")
    return (wanted, selected_names(wanted, devices)) if isinstance(devices, list) else devices


def _hca_unmatched(selection: tuple[str, list[str]] | Absent | Unread) -> Fact:
    """NCCL_IB_HCA's value if it selects none of the RDMA devices; absent if it selects some, else as `selection` is."""
    if not isinstance(selection, tuple):
        return selection
    wanted, selected = selection
    if selected:
        return Absent(f"NCCL_IB_HCA={wanted} selects RDMA devices")
    return Known(wanted, f"the settings against {_DEVICES}")


def _hca_inactive(target: Target, selection: tuple[str, list[str]] | Absent | Unread) -> Fact:
    """NCCL_IB_HCA's value if no port of the devices that it selects is active; absent if one is, or without a port.

    Unread if a state cannot be read; else as `selection` is.
    """
    if not isinstance(selection, tuple):
        return selection
    wanted, selected = selection
    states = [
        line(target, f"{_DEVICES}/{device}/ports/{port}/state")
        for device in selected
        for port in target.listing(f"{_DEVICES}/{device}/ports")
    ]
    if any("ACTIVE" in text_of(state) for state in states):
        return Absent(f"NCCL_IB_HCA={wanted} selects a device with an active port")
    unreadable = next((state for state in states if isinstance(state, (Absent, Unread))), None)
    if unreadable or not states:
        return as_unread(unreadable) if unreadable else Absent(f"NCCL_IB_HCA={wanted} selects no port")
    return Known(wanted, f"the settings against the ports in {_DEVICES}")
