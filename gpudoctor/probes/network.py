"""Network interfaces of this machine, and which of them and of its RDMA devices NCCL and Gloo were told to use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._reading import line, names
from gpudoctor.target import Target

FACTS = (
    fact("net.interfaces", "list", "network interfaces by name, loopback included"),
    fact("net.unmatched", "list", "settings that name no interface there is: NCCL_SOCKET_IFNAME=eno1"),
    fact("net.hca_unmatched", "text", "NCCL_IB_HCA where it selects none of the RDMA devices; absent where it does"),
    fact(
        "net.hca_inactive",
        "text",
        "NCCL_IB_HCA where it selects RDMA devices of which no port is active; absent where one is",
    ),
)

_INTERFACES = "/sys/class/net"
_DEVICES = "/sys/class/infiniband"


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From sysfs and the environment; nothing is sent to anyone."""
    interfaces = names(target, _INTERFACES)
    if isinstance(interfaces, list):
        interfaces = [name for name in interfaces if name != "bonding_masters"]
    yield "net.interfaces", _listed(interfaces, _INTERFACES)
    yield "net.unmatched", _unmatched(target, interfaces)
    devices = names(target, _DEVICES)
    yield "net.hca_unmatched", _hca_unmatched(target, devices)
    yield "net.hca_inactive", _hca_inactive(target, devices)


def _listed(found: list[str] | Absent | Unread, source: str) -> Fact:
    return Known(tuple(found), source) if isinstance(found, list) else found


def _unmatched(target: Target, interfaces: list[str] | Absent | Unread) -> Fact:
    """NCCL takes prefixes; Gloo knows none, so that every one of its names must be an interface."""
    if not isinstance(interfaces, list):
        return interfaces
    wrong = []
    wanted = target.environ.get("NCCL_SOCKET_IFNAME")
    if wanted and not selected(wanted, interfaces):
        wrong.append(f"NCCL_SOCKET_IFNAME={wanted}")
    plain = target.environ.get("GLOO_SOCKET_IFNAME")
    if plain and not set(plain.split(",")) <= set(interfaces):
        wrong.append(f"GLOO_SOCKET_IFNAME={plain}")
    return Known(tuple(wrong), f"the environment against {_INTERFACES}")


def _hca_unmatched(target: Target, devices: list[str] | Absent | Unread) -> Fact:
    wanted = target.environ.get("NCCL_IB_HCA")
    if not wanted:
        return Absent("NCCL_IB_HCA is not set")
    if not isinstance(devices, list):
        return devices
    if selected(wanted, devices):
        return Absent(f"NCCL_IB_HCA={wanted} selects RDMA devices")
    return Known(wanted, f"the environment against {_DEVICES}")


def _hca_inactive(target: Target, devices: list[str] | Absent | Unread) -> Fact:
    wanted = target.environ.get("NCCL_IB_HCA")
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
    return Known(wanted, f"the environment against the ports in {_DEVICES}")


def selected(wanted: str, there: Sequence[str]) -> list[str]:
    """The names of `there` that NCCL takes for `wanted`: a list of prefixes, ``=`` exact names, ``^`` all but these."""
    invert = wanted.startswith("^")
    exact = wanted[invert:].startswith("=")
    parts = [part.partition(":")[0] for part in wanted[invert + exact :].split(",") if part]
    if not parts:
        return list(there)
    return [
        name for name in there if any(name == part if exact else name.startswith(part) for part in parts) is not invert
    ]
