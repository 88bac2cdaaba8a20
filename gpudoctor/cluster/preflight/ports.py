"""The network ports of this machine that are measured one by one: which they are, and what a rank does at them.

Which ports are measured is what the job itself would send by: RDMA ports of the highest rate (those of NCCL_IB_HCA,
where it is set); without any, the interfaces that NCCL_SOCKET_IFNAME names. One port alone is no rail.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpudoctor.cluster.links.server import Server
from gpudoctor.cluster.preflight.results import Port
from gpudoctor.cluster.preflight.wire import Message
from gpudoctor.core.fact import number_of, text_of, value_of
from gpudoctor.probes._pci_bus import link_speed
from gpudoctor.probes._reading import names_in, resolve_path
from gpudoctor.probes._reading import number as number_in
from gpudoctor.probes.rdma import DEVICES, port_rows
from gpudoctor.target import Target
from gpudoctor.target.child import run_child
from gpudoctor.target.network import Interface, nccl_choice, selected_names

_SPEED_OF_GEN3 = 8.0
"""GT/s from which 128 of 130 bits are data, of 8 of 10 before (PCI Express Base Specification 3.0)."""


_GPUS = "/sys/bus/pci/drivers/nvidia"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BELOW_ROOT = 3
"""Slashes of ``/sys/devices/pci0000:15``, a root complex."""


def own_ports(target: Target, settings: Mapping[str, str], among: Sequence[Interface]) -> list[Port]:
    """Ports to be measured one by one: RDMA ports of the highest rate, else the interfaces of NCCL_SOCKET_IFNAME; none
    if fewer than two. They have no listener yet. `settings` are NCCL's (environment and nccl.conf), `among` the
    machine's interfaces.
    """
    up = {one.name: one for one in among if one.running}
    # NCCL takes an empty value of a number for one that is not set (src/misc/param.cc).
    ports = list(_rdma_ports(target, settings, up)) if (settings.get("NCCL_IB_DISABLE") or "0") == "0" else []
    named = settings.get("NCCL_SOCKET_IFNAME", "")
    if named and not named.startswith("^") and not ports:
        choice = nccl_choice(among, settings)
        names = [name for name in (choice.interface, *choice.also) if name in up]
        ports = [Port(name, name, gbps=_interface_rate(target, name)) for name in names]
    if len(ports) < 2:
        return []
    interfaces = [up[port.interface] for port in ports if port.interface]
    return [_with_address(port, up[port.interface], interfaces) if port.interface else port for port in ports]


def _rdma_ports(target: Target, settings: Mapping[str, str], up: Mapping[str, Interface]) -> Iterator[Port]:
    """Active RDMA ports that NCCL may use (NCCL_IB_HCA), of the highest rate: slower ones are for storage."""
    names = selected_names(settings.get("NCCL_IB_HCA", ""), names_in(target, DEVICES))
    rows = list(port_rows(target, names))
    active = [row for row in rows if text_of(row["state"]) == "ACTIVE" and number_of(row["rate_gbps"])]
    highest = max((number_of(row["rate_gbps"]) or 0.0 for row in active), default=0.0)
    from_gpus = bool(active) and _BY_ADDRESS in _perftest_help()
    devices = [text_of(row["device"]) for row in rows]
    for row in active:
        device, number = text_of(row["device"]), int(number_of(row["port"]) or 0)
        if number_of(row["rate_gbps"]) == highest:
            candidates = value_of(row["netdev"])
            interfaces = [str(name) for name in candidates] if isinstance(candidates, tuple) else []
            interface = next((name for name in interfaces if name in up and up[name].addresses), "")
            name = f"{device}:{number}" if devices.count(device) > 1 else device
            ours = shutil.which(PERFTEST) is not None
            why = "no interface of it is up with an IP address"
            pcie, gpu = _pcie_rate(target, device), _nearest_gpu(target, device) if from_gpus else ""
            yield Port(name, interface, "", 0, highest, pcie, number, ours, gpu, because=why)


def _pcie_rate(target: Target, device: str) -> float | None:
    """Gbit/s each way of the PCIe link of an RDMA device as it is now, encoding taken off; None where unknown."""
    folder = f"{DEVICES}/{device}/device"
    speed = number_of(link_speed(target, f"{folder}/current_link_speed"))
    lanes = number_of(number_in(target, f"{folder}/current_link_width"))
    return speed * lanes * (0.8 if speed < _SPEED_OF_GEN3 else 128 / 130) if speed and lanes else None


def _nearest_gpu(target: Target, device: str) -> str:
    """PCI address of the NVIDIA GPU that shares most of the way to the processor with an RDMA device; empty if none is
    below the same root complex: NCCL does not send from a GPU's memory by a card further away, either.
    """
    card = resolve_path(target, f"{DEVICES}/{device}/device")
    shared: dict[str, int] = {}
    for address in names_in(target, _GPUS) if card else ():
        gpu = resolve_path(target, f"{_GPUS}/{address}")
        if gpu and _PCI_ADDRESS.fullmatch(address):
            shared[address] = os.path.commonpath([card, gpu]).count("/")
    nearest = max(shared, key=shared.__getitem__, default="")
    return nearest if shared.get(nearest, 0) >= _BELOW_ROOT else ""


def _with_address(port: Port, interface: Interface, others: Sequence[Interface]) -> Port:
    """The port with the address by which it is measured: the interface's first; if another interface is in the same
    IPv4 network, where Linux may answer by either (arp_ignore), a link-local IPv6 one. Without one, the port with the
    reason in `because`.
    """
    first, *_ = interface.addresses
    shared = first.version == 4 and any(
        first.in_same_network(address.text) or address.in_same_network(first.text)
        for other in others
        if other.name != interface.name
        for address in other.addresses
        if address.version == 4
    )
    usable = [address for address in interface.addresses if not shared or address.text.startswith("fe80:")]
    if usable:
        return replace(port, address=usable[0].text.partition("%")[0])
    return replace(port, because="another port is in the same network, and it has no link-local IPv6 address")


def _interface_rate(target: Target, name: str) -> float | None:
    """Rate of an Ethernet interface in Gbit/s; None if the driver reports none."""
    try:
        speed = int(target.read(f"/sys/class/net/{name}/speed", 32))
    except (OSError, ValueError):
        return None
    return speed / 1000 if speed > 0 else None


_COUNTERS: Mapping[bool, Mapping[str, Sequence[str]]] = {
    True: {
        "errors": (
            *("counters/symbol_error", "counters/port_rcv_errors", "counters/local_link_integrity_errors"),
            *("hw_counters/retrans_timeout_events", "hw_counters/unresponsive_remote_events"),
        ),
        "discards": ("counters/port_xmit_discards", "hw_counters/rx_drops"),
    },
    False: {
        "errors": ("statistics/rx_errors", "statistics/tx_errors"),
        "discards": ("statistics/rx_missed_errors", "statistics/tx_aborted_errors"),
    },
}
"""Files of what goes wrong at a port, of RDMA devices and of other interfaces, whose driver counts less.
Linux, Documentation/ABI/stable/sysfs-class-infiniband, testing/sysfs-class-net-statistics; of Amazon's EFA, which has
hw_counters alone, drivers/infiniband/hw/efa/efa.h (read 2026-11).
"""


def read_counters(target: Target, ports: Sequence[Mapping[str, Any]]) -> Message:
    """Task ``counters``: sums of error counters that can be read now, as
    ``{"counters": {"mlx5_3": {"errors": 12, "discards": 0}}}``.
    """
    counts: dict[str, dict[str, int]] = {}
    for port in ports:
        device, number = str(port["rail"]).partition(":")[0], port["number"]
        folder = f"{DEVICES}/{device}/ports/{number}" if number else f"/sys/class/net/{device}"
        for kind, files in _COUNTERS[bool(number)].items():
            read = [value_of(number_in(target, f"{folder}/{file}")) for file in files]
            if known := [value for value in read if isinstance(value, int)]:
                counts.setdefault(str(port["rail"]), {})[kind] = sum(known)
    return {"counters": counts}


def listen_at(port: Port, key: str, host: str) -> tuple[Port, Server | None]:
    """(port with the TCP port of the server now listening at its address, server). (port with the reason in `because`,
    None) if listening fails; (port unchanged, None) without an address.
    """
    if not port.address:
        return port, None
    try:
        server = Server(port.place, key, name=host, alone=True)
    except OSError as error:
        why = f"cannot listen on {port.address} by {port.interface} alone: {error.strerror or error}"
        return replace(port, because=why), None
    return replace(port, port=server.port), server


# ---- RDMA by one port, with perftest ----
# github.com/linux-rdma/perftest, 4.5 (Debian 12) to 26.04: one side listens and the other writes to its memory, so that
# two runs give the two directions. -q 4 and messages of 1 MiB fill a port of 400 Gb/s, as its maintainers advise.

PERFTEST = "ib_write_bw"
_PERFTEST_PORT = 18515
"""TCP port by which its two sides find each other: perftest's own."""
_RATE = re.compile(r"BW average\[Gb/sec\][^\n]*\n\s*\d+\s+\d+\s+[\d.]+\s+(\d+\.\d+)")
_NOBODY = "Couldn't connect to"
_RETRY_SECONDS = 0.2
"""Seconds until the writing side tries again whether the other one listens."""


_BY_ADDRESS, _DMA_BUF = "--use_cuda_bus_id", "--use_cuda_dmabuf"
"""In this order (src/perftest_parameters.c): the second one where nvidia-peermem is not loaded. Builds without CUDA, as
Debian's 4.5, list neither in their help and refuse them."""
_HELP_TAKES = 5.0


def perftest_command(device: str, number: int, server: str = "", gpu: Sequence[str] = ()) -> list[str]:
    """Command of ib_write_bw that measures by that port of an RDMA device for a second: writes to the host `server`, or
    listens if that is "". `gpu` are its options for GPU memory.
    """
    words = [PERFTEST, "-d", device, "-i", str(number), "-p", str(_PERFTEST_PORT), "-s", str(1 << 20), "-q", "4"]
    return [*words, "-D", "1", "-f", "0", "-F", "--report_gbits", *gpu, *([server] if server else [])]


@lru_cache(maxsize=1)
def _perftest_help() -> str:
    """What ib_write_bw prints of its options; empty where there is none."""
    try:
        answer = run_child([PERFTEST, "--help"], _HELP_TAKES, os.environ)
    except OSError:
        return ""
    return answer.out + answer.err


def _gpu_words(address: str) -> list[str]:
    """Options of ib_write_bw for the memory of the GPU at that PCI address; none for anything else."""
    if not _PCI_ADDRESS.fullmatch(address):
        return []
    peermem = any(os.path.isdir(f"/sys/module/{module}") for module in ("nvidia_peermem", "nv_peer_mem"))  # noqa: PTH112
    by_dma_buf = not peermem and _DMA_BUF in _perftest_help()
    return [f"{_BY_ADDRESS}={address}", *([_DMA_BUF] if by_dma_buf else [])]


def perftest_rate(printed: str) -> float | None:
    """Average rate in Gbit/s that ib_write_bw printed; None if it printed none."""
    match = _RATE.search(printed)
    return float(match[1]) if match else None


def run_perftest(message: Mapping[str, Any]) -> Message:
    """Task ``perftest``: measure by one RDMA port. ``{"gbps": rate}`` (None for the side that listens, or if the peer
    did not come), ``{"why": words}`` if ib_write_bw failed here.
    """
    gpu = _gpu_words(str(message.get("gpu", "")))
    argv = perftest_command(str(message["device"]), int(message["number"]), str(message["server"]), gpu)
    until = time.monotonic() + float(message["seconds"])
    while True:
        try:
            answer = run_child(argv, max(0.0, until - time.monotonic()), os.environ)
        except OSError as error:
            return {"why": str(error)}
        waits = _NOBODY in answer.err
        if answer.ok or answer.status is None or (waits and time.monotonic() + _RETRY_SECONDS > until):
            return {"gbps": perftest_rate(answer.out)}
        if not waits:
            return {"why": (answer.err.strip() or answer.how).splitlines()[-1].strip()}
        time.sleep(_RETRY_SECONDS)
