"""RDMA devices (InfiniBand, RoCE, EFA): ports, addresses, error counters, and whether this session may use them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, text_of, value_of
from gpudoctor.probes._reading import as_unread, line, names, number, path_exists, resolve_path, text, usable
from gpudoctor.target import Target

ONLY = "linux"
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
    column("rdma.retransmit_timeouts", "int", "times that an EFA device gave up a path and sent again by another one"),
    column("rdma.unresponsive_peers", "int", "times that a peer of an EFA device did not answer"),
    column("rdma.impaired_peers", "int", "times that a connection of an EFA device was held to a lower rate"),
    column("rdma.errors_gained", "int", "what symbol, receive, integrity and EFA's errors rose by while watched"),
    column("rdma.downs_gained", "int", "times that the link recovered or went down meanwhile"),
    column("rdma.watched_s", "float", "time between two looks at these; absent where nothing was counted before", "s"),
)

DEVICES = "/sys/class/infiniband"
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
    "retransmit_timeouts": "hw_counters/retrans_timeout_events",
    "unresponsive_peers": "hw_counters/unresponsive_remote_events",
    "impaired_peers": "hw_counters/impaired_remote_conn_events",
}
"""EFA has no other ones (drivers/infiniband/hw/efa/efa_verbs.c; AWS's monitoring guide for what they mean, 2026-11)."""


_ERRORS = (
    *("symbol_errors", "receive_errors", "integrity_errors"),
    *("retransmit_timeouts", "unresponsive_peers", "impaired_peers"),
)
_DOWNS = ("link_recoveries", "link_downed")
_RECHECK_SECONDS = 1.0
"""Seconds between two looks at counters that are not zero: a standing count says nothing of the link as it is now."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``rdma`` facts and group, one row per port, from sysfs; looks twice if a port has counted errors."""
    devices, began = names(target, DEVICES), time.monotonic()
    rows = tuple(port_rows(target, devices)) if isinstance(devices, list) else ()
    yield "rdma", _with_gains(target, rows, began) if isinstance(devices, list) else _absence(target, devices)
    yield "rdma.verbs_loaded", _verbs_loaded(target)
    yield from _node_facts(target, devices)
    yield "rdma.may_lock", _may_lock(target)


def _with_gains(target: Target, rows: Sequence[Row], began: float) -> tuple[Row, ...]:
    """The ports' rows with the columns errors_gained, downs_gained and watched_s added.

    If a counter of `_ERRORS` or `_DOWNS` is not zero, waits until `_RECHECK_SECONDS` after `began` (`time.monotonic`)
    and reads these of all ports again. Else gains are 0 and watched_s is
    absent.
    """
    counting = any(value_of(row[name]) for row in rows for name in (*_ERRORS, *_DOWNS))
    if counting:
        time.sleep(max(0.0, _RECHECK_SECONDS - (time.monotonic() - began)))
    watched: Fact = Absent("no port had counted an error")
    if counting:
        watched = Known(round(time.monotonic() - began, 2), f"two looks at {DEVICES}")
    return tuple(
        {
            **row,
            "errors_gained": _gained(target, row, _ERRORS, counting),
            "downs_gained": _gained(target, row, _DOWNS, counting),
            "watched_s": watched,
        }
        for row in rows
    )


def _gained(target: Target, row: Row, counters: Sequence[str], again: bool) -> Fact:
    """What the port's counters of these names rose by since the row was read, of those that can be read again.

    0 if not `again`, absent or unread as they are; unread if none can be read again. A counter that was reset gained
    nothing.
    """
    folder = f"{DEVICES}/{text_of(row['device'])}/ports/{text_of(row['port'])}"
    read = {name: count for name in counters if isinstance(count := value_of(row[name]), int)}
    if not read:
        return row[counters[0]]
    later = {name: value_of(number(target, f"{folder}/{_COUNTERS[name]}")) for name in (read if again else ())}
    gains = [count - read[name] for name, count in later.items() if isinstance(count, int)]
    if again and not gains:
        return Unread(f"{folder}/counters could not be read again")
    return Known(sum(max(0, gain) for gain in gains), f"{folder}/counters")


def _absence(target: Target, devices: Absent | Unread) -> Absent | Unread:
    """The devices' state; unread instead of absent if there is no /sys, so that nothing can be seen."""
    if isinstance(devices, Absent) and path_exists(target, "/sys") is not True:
        return Unread(f"{devices.why}; /sys may not be mounted")
    return devices


def port_rows(target: Target, devices: Sequence[str]) -> Iterator[Row]:
    """Yields a row of the group ``rdma`` per port, without the columns that `probe` adds by a second look."""
    for device in devices:
        folder = f"{DEVICES}/{device}"
        ports = names(target, f"{folder}/ports")
        card = _device_columns(target, device) if isinstance(ports, list) else {}
        for port in ports if isinstance(ports, list) else ():
            yield {**card, **_port_columns(target, f"{folder}/ports/{port}")}


def _device_columns(target: Target, device: str) -> Row:
    """The columns that all ports of an RDMA device share.

    device, address (PCI), netdev, firmware, board, model, numa_node and virtual.
    """
    folder = f"{DEVICES}/{device}"
    place = resolve_path(target, f"{folder}/device")
    address = place.rpartition("/")[2]
    on_pci = re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)
    interfaces = names(target, f"{folder}/device/net")
    node = number(target, f"{folder}/device/numa_node")
    virtual = path_exists(target, f"{folder}/device/physfn")
    return {
        "device": Known(device, DEVICES),
        "address": Known(address, f"{folder}/device") if on_pci else Absent(f"{folder} is on no PCI bus"),
        "netdev": Known(tuple(interfaces), f"{folder}/device/net") if isinstance(interfaces, list) else interfaces,
        "firmware": line(target, f"{folder}/fw_ver"),
        "board": line(target, f"{folder}/board_id"),
        "model": line(target, f"{folder}/hca_type"),
        "numa_node": Absent(f"{folder}/device/numa_node says -1") if value_of(node) == -1 else node,
        "virtual": virtual if isinstance(virtual, Unread) else Known(virtual, f"{folder}/device/physfn"),
    }


def _port_columns(target: Target, folder: str) -> Row:
    """port, state, physical_state, link_layer, rate, rate_gbps, gids, roce_v2 and error counters of a port's folder."""
    port = folder.rpartition("/")[2]
    layer = line(target, f"{folder}/link_layer")
    rate = line(target, f"{folder}/rate")
    speed = re.match(r"\d+(\.\d+)?", text_of(rate))
    return {
        "port": Known(int(port), folder) if port.isdigit() else Unread(f"{folder} is no port"),
        "state": _state_name(line(target, f"{folder}/state")),
        "physical_state": _state_name(line(target, f"{folder}/phys_state")),
        "link_layer": layer,
        "rate": rate,
        "rate_gbps": Known(float(speed[0]), f"{folder}/rate") if speed else Unread(f"{folder}/rate is no number"),
        **_gids(target, folder, layer),
        **{column: number(target, f"{folder}/{place}") for column, place in _COUNTERS.items()},
    }


def _state_name(raw: Fact) -> Fact:
    """The name in a state such as ``4: ACTIVE``; absent or unread as `raw` is."""
    return Known(str(raw.value).rpartition(":")[2].strip(), raw.source) if isinstance(raw, Known) else raw


def _gids(target: Target, folder: str, layer: Fact) -> Row:
    """The columns gids, number of addresses in the port's first 16 entries, and roce_v2, whether one is RoCE v2.

    The second is absent on InfiniBand; both unread if the table cannot be read. The table is filled from its start; the
    type of an empty entry cannot be read.
    """
    listed = names(target, f"{folder}/gids")
    if not isinstance(listed, list):
        return {"gids": as_unread(listed), "roce_v2": as_unread(listed)}
    filled = []
    for entry in sorted((name for name in listed if name.isdigit()), key=int)[:_MOST_GIDS]:
        gid = text(target, f"{folder}/gids/{entry}", 64)
        if isinstance(gid, str) and not _NO_GID.fullmatch(gid):
            filled.append(entry)
    count = Known(len(filled), f"{folder}/gids")
    if value_of(layer) == "InfiniBand":
        return {"gids": count, "roce_v2": Absent("the port is InfiniBand")}
    kinds = [text(target, f"{folder}/gid_attrs/types/{entry}", 64) for entry in filled]
    unreadable = next((kind for kind in kinds if not isinstance(kind, str)), None)
    if "RoCE v2" in kinds or not unreadable:
        return {"gids": count, "roce_v2": Known("RoCE v2" in kinds, f"{folder}/gid_attrs/types")}
    return {"gids": count, "roce_v2": as_unread(unreadable)}


def _verbs_loaded(target: Target) -> Fact:
    """Whether the kernel module ib_uverbs is loaded; unread without /sys/module."""
    path = "/sys/module/ib_uverbs"
    here = path_exists(target, path)
    if isinstance(here, Unread):
        return here
    if not here and path_exists(target, "/sys/module") is not True:
        return Unread("no /sys/module")
    return Known(here, path if here else f"no {path}")


def _node_facts(target: Target, devices: list[str] | Absent | Unread) -> Iterator[tuple[str, Fact]]:
    """Yields rdma.nodes_missing and nodes_denied: files such as /dev/infiniband/uverbs0 not there, or not usable.

    Those of /sys/class/infiniband_verbs are looked for; absent or unread as `devices` is.
    """
    verbs = names(target, _VERBS) if isinstance(devices, list) else devices
    if not isinstance(verbs, list):
        why = _absence(target, verbs)
        yield "rdma.nodes_missing", why
        yield "rdma.nodes_denied", why
        return
    wanted = [f"{_NODES}/{name}" for name in verbs if re.fullmatch(r"uverbs\d+", name)]
    present = {path: path_exists(target, path) for path in wanted}
    unreadable = next((here for here in present.values() if isinstance(here, Unread)), None)
    missing = tuple(path for path, here in present.items() if here is False)
    denied = tuple(path for path, here in present.items() if here is True and not usable(target, path))
    yield "rdma.nodes_missing", unreadable or Known(missing, _NODES)
    yield "rdma.nodes_denied", unreadable or Known(denied, _NODES)


def _may_lock(target: Target) -> Fact:
    """Whether the process has CAP_IPC_LOCK, bit 14 of the effective capabilities; unread if /proc does not say."""
    path = "/proc/self/status"
    found = text(target, path, 1 << 16)
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", found, re.M) if isinstance(found, str) else None
    if not match:
        return Unread(f"{path} does not say" if isinstance(found, str) else found.why)
    return Known(bool(int(match[1], 16) >> 14 & 1), f"{path}: CapEff")
