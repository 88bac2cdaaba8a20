"""RDMA devices (InfiniBand, RoCE, EFA): ports, addresses, error counters, and whether this session may use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._reading import line, names, number, real, text, there, usable
from gpudoctor.target import Target

FACTS = (
    fact("rdma.verbs_loaded", "bool", "whether the kernel module ib_uverbs is there, through which programs use RDMA"),
    fact("rdma.nodes_missing", "list", "device files of RDMA devices that are not there: /dev/infiniband/uverbs0"),
    fact("rdma.nodes_denied", "list", "device files of RDMA devices that this user may not open"),
    fact("rdma.may_lock", "bool", "whether this process may lock memory whatever its limit says (CAP_IPC_LOCK)"),
    column("rdma.device", "text", "RDMA device by its kernel name, such as mlx5_0"),
    column("rdma.port", "int", "its port, from 1"),
    column("rdma.state", "text", "ACTIVE, INIT, ARMED or DOWN"),
    column("rdma.physical_state", "text", "LinkUp, Polling, Disabled, Sleep: what the cable's end says"),
    column("rdma.link_layer", "text", "InfiniBand or Ethernet (RoCE)"),
    column("rdma.rate", "text", "its rate as the kernel prints it, such as 400 Gb/sec (4X NDR)"),
    column("rdma.rate_gbps", "float", "that rate as a number", "Gb/s"),
    column("rdma.gids", "int", "addresses (GIDs) among the first 16 of the port's table"),
    column("rdma.roce_v2", "bool", "whether one of these is of RoCE v2; absent on InfiniBand"),
    column("rdma.address", "text", "PCI address of the device"),
    column("rdma.netdev", "list", "network interfaces of the device"),
    column("rdma.firmware", "text", "version of its firmware"),
    column("rdma.board", "text", "its board id (PSID), such as MT_0000000838"),
    column("rdma.model", "text", "its type: MT4129 is ConnectX-7"),
    column("rdma.numa_node", "int", "NUMA node it is attached to; absent on machines without nodes"),
    column("rdma.virtual", "bool", "whether it is a virtual function of a card"),
    column("rdma.link_downed", "int", "times that the link failed and went down, since the driver loaded"),
    column("rdma.link_recoveries", "int", "times that the link recovered from an error"),
    column("rdma.symbol_errors", "int", "minor errors on the physical lanes"),
    column("rdma.receive_errors", "int", "packets that arrived damaged"),
    column("rdma.integrity_errors", "int", "times that errors on the link passed its threshold"),
    column("rdma.timeouts", "int", "times that a peer's acknowledgement did not come in time"),
)

_DEVICES = "/sys/class/infiniband"
_VERBS = "/sys/class/infiniband_verbs"
_NODES = "/dev/infiniband"
_MOST_GIDS = 16
_NO_GID = re.compile(r"(fe80:(0000:){3})?[0:]+")
"""An empty entry; a prefix without the rest is one as well."""

_COUNTERS = {
    "link_downed": "counters/link_downed",
    "link_recoveries": "counters/link_error_recovery",
    "symbol_errors": "counters/symbol_error",
    "receive_errors": "counters/port_rcv_errors",
    "integrity_errors": "counters/local_link_integrity_errors",
    "timeouts": "hw_counters/local_ack_timeout_err",
}


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From sysfs: one row per port."""
    devices = names(target, _DEVICES)
    yield "rdma", tuple(_ports(target, devices)) if isinstance(devices, list) else _without(target, devices)
    yield "rdma.verbs_loaded", _verbs(target)
    yield from _nodes(target, devices)
    yield "rdma.may_lock", _may_lock(target)


def _without(target: Target, devices: Absent | Unread) -> Absent | Unread:
    """Without /sys nothing is known."""
    if isinstance(devices, Absent) and there(target, "/sys") is not True:
        return Unread(f"{devices.why}; /sys may not be mounted")
    return devices


def _ports(target: Target, devices: Sequence[str]) -> Iterator[Row]:
    for device in devices:
        folder = f"{_DEVICES}/{device}"
        ports = names(target, f"{folder}/ports")
        card = _card(target, device) if isinstance(ports, list) else {}
        for port in ports if isinstance(ports, list) else ():
            yield {**card, **_port(target, f"{folder}/ports/{port}")}


def _card(target: Target, device: str) -> Row:
    folder = f"{_DEVICES}/{device}"
    place = real(target, f"{folder}/device")
    address = place.rpartition("/")[2]
    on_pci = re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
    interfaces = names(target, f"{folder}/device/net")
    node = number(target, f"{folder}/device/numa_node")
    virtual = there(target, f"{folder}/device/physfn")
    return {
        "device": Known(device, _DEVICES),
        "address": Known(address, f"{folder}/device") if on_pci else Absent(f"{folder} is on no PCI bus"),
        "netdev": Known(tuple(interfaces), f"{folder}/device/net") if isinstance(interfaces, list) else interfaces,
        "firmware": line(target, f"{folder}/fw_ver"),
        "board": line(target, f"{folder}/board_id"),
        "model": line(target, f"{folder}/hca_type"),
        "numa_node": Absent(f"{node.source} says -1") if isinstance(node, Known) and node.value == -1 else node,
        "virtual": virtual if isinstance(virtual, Unread) else Known(virtual, f"{folder}/device/physfn"),
    }


def _port(target: Target, folder: str) -> Row:
    number_ = folder.rpartition("/")[2]
    layer = line(target, f"{folder}/link_layer")
    rate = line(target, f"{folder}/rate")
    speed = re.match(r"\d+(\.\d+)?", str(rate.value)) if isinstance(rate, Known) else None
    return {
        "port": Known(int(number_), folder) if number_.isdigit() else Unread(f"{folder} is no port"),
        "state": _state(line(target, f"{folder}/state")),
        "physical_state": _state(line(target, f"{folder}/phys_state")),
        "link_layer": layer,
        "rate": rate,
        "rate_gbps": Known(float(speed[0]), f"{folder}/rate") if speed else Unread(f"{folder}/rate is no number"),
        **_gids(target, folder, layer),
        **{column: number(target, f"{folder}/{place}") for column, place in _COUNTERS.items()},
    }


def _state(raw: Fact) -> Fact:
    """``ACTIVE`` of ``4: ACTIVE``."""
    return Known(str(raw.value).rpartition(":")[2].strip(), raw.source) if isinstance(raw, Known) else raw


def _gids(target: Target, folder: str, layer: Fact) -> Row:
    """The table holds up to 256 entries, filled from its start; the type of an empty one cannot be read."""
    listed = names(target, f"{folder}/gids")
    if not isinstance(listed, list):
        return {"gids": Unread(listed.why), "roce_v2": Unread(listed.why)}
    filled = []
    for entry in sorted((name for name in listed if name.isdigit()), key=int)[:_MOST_GIDS]:
        gid = text(target, f"{folder}/gids/{entry}", 64)
        if isinstance(gid, str) and not _NO_GID.fullmatch(gid):
            filled.append(entry)
    count = Known(len(filled), f"{folder}/gids")
    if isinstance(layer, Known) and layer.value == "InfiniBand":
        return {"gids": count, "roce_v2": Absent("the port is InfiniBand")}
    kinds = [text(target, f"{folder}/gid_attrs/types/{entry}", 64) for entry in filled]
    blind = next((kind for kind in kinds if not isinstance(kind, str)), None)
    if "RoCE v2" in kinds or not blind:
        return {"gids": count, "roce_v2": Known("RoCE v2" in kinds, f"{folder}/gid_attrs/types")}
    return {"gids": count, "roce_v2": Unread(blind.why)}


def _verbs(target: Target) -> Fact:
    path = "/sys/module/ib_uverbs"
    here = there(target, path)
    if isinstance(here, Unread):
        return here
    if not here and there(target, "/sys/module") is not True:
        return Unread("no /sys/module")
    return Known(here, path if here else f"no {path}")


def _nodes(target: Target, devices: list[str] | Absent | Unread) -> Iterator[tuple[str, Fact]]:
    """/sys/class/infiniband_verbs/uverbs0 stands for /dev/infiniband/uverbs0."""
    verbs = names(target, _VERBS) if isinstance(devices, list) else devices
    if not isinstance(verbs, list):
        why = _without(target, verbs)
        yield "rdma.nodes_missing", why
        yield "rdma.nodes_denied", why
        return
    wanted = [f"{_NODES}/{name}" for name in verbs if re.fullmatch(r"uverbs\d+", name)]
    present = {path: there(target, path) for path in wanted}
    blind = next((here for here in present.values() if isinstance(here, Unread)), None)
    missing = tuple(path for path, here in present.items() if here is False)
    denied = tuple(path for path, here in present.items() if here is True and not usable(target, path))
    yield "rdma.nodes_missing", blind or Known(missing, _NODES)
    yield "rdma.nodes_denied", blind or Known(denied, _NODES)


def _may_lock(target: Target) -> Fact:
    """Bit 14 of the effective capabilities."""
    path = "/proc/self/status"
    found = text(target, path, 1 << 16)
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", found, re.M) if isinstance(found, str) else None
    if not match:
        return Unread(f"{path} does not say" if isinstance(found, str) else found.why)
    return Known(bool(int(match[1], 16) >> 14 & 1), f"{path}: CapEff")
