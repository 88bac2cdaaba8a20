"""How GPUs, network cards and NVMe disks hang together on PCIe: switches, distances, ACS.

From sysfs alone, so that it holds where NVML does not answer. In a virtual machine it is what the hypervisor shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._bus.config import BUS, acs_redirects, ats_enabled
from gpudoctor.probes._bus.tree import ORDER, Place, between, place
from gpudoctor.probes._marks import bus_reason, pci_hidden
from gpudoctor.probes._reading import line, names, real, text, there
from gpudoctor.target import Target

FACTS = (
    fact("topology.nvswitches", "int", "NVSwitches on the PCI bus; those of NVL72 racks are elsewhere"),
    fact("topology.switches", "int", "PCIe switches that GPUs hang behind"),
    fact("topology.numa_nodes", "int", "NUMA nodes of the machine"),
    fact(
        "topology.acs_bridges",
        "list",
        "switch ports between GPUs where ACS sends copies from one to the other up to the processor first",
    ),
    column("gpu_path.address", "text", "PCI address of an NVIDIA GPU"),
    column("gpu_path.bridges", "list", "PCI addresses of the bridges above it, the nearest first, the root port last"),
    column("gpu_path.root", "text", "the host bridge it is under, such as pci0000:15"),
    column("gpu_path.switch", "text", "upstream port of the PCIe switch it hangs behind; absent where none"),
    column("gpu_path.iommu_group", "int", "its IOMMU group; absent where no IOMMU is on"),
    column("gpu_path.acs", "bool", "whether ACS redirects at a bridge above it, the root port included"),
    column("gpu_path.ats", "bool", "whether it translates addresses with the IOMMU itself; absent where it cannot"),
    column("gpu_path.nics", "list", "the nearest RDMA devices, or network interfaces where there are none"),
    column("gpu_path.nic_path", "text", "how far these are, as nvidia-smi topo says: PIX, PXB, PHB, NODE, SYS"),
    column("gpu_path.disks", "list", "the nearest NVMe disks, such as nvme0"),
    column("gpu_path.disk_path", "text", "how far these are: PIX, PXB, PHB, NODE, SYS"),
    column("gpu_pair.a", "text", "PCI address of one GPU"),
    column("gpu_pair.b", "text", "PCI address of another"),
    column("gpu_pair.path", "text", "the PCIe path between them: PIX, PXB, PHB, NODE, SYS; NVLink not considered"),
    column("gpu_pair.acs", "bool", "whether ACS redirects in the switch between them; absent where none is"),
)

_GPU_CLASSES = ("0x0300", "0x0302", "0x0380")
_MOST_GPUS = 64
_VIRTUAL = re.compile(r"veth|cali|lxc|docker|br-|virbr|cni|flannel|cilium|tap|tun|lo$")
"""Interfaces that a node with many containers has by the hundred."""

Places = Mapping[str, Place]


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """One row per NVIDIA GPU, one per pair of them."""
    nodes = _numa_nodes(target)
    yield "topology.numa_nodes", nodes
    addresses = names(target, BUS)
    hidden = pci_hidden(target)
    if hidden or not isinstance(addresses, list):
        why = hidden or getattr(addresses, "why", "") + bus_reason(target)
        for name in ("topology.nvswitches", "topology.switches", "topology.acs_bridges", "gpu_path", "gpu_pair"):
            yield name, Unread(why)
        return
    kinds = {at: kind for at in addresses if (kind := _nvidia(target, at))}
    yield "topology.nvswitches", Known(sum(kind.startswith("0x0680") for kind in kinds.values()), f"{BUS}, class 0680")
    single = isinstance(nodes, Known) and nodes.value == 1
    found = [place(target, f"{BUS}/{at}", single) for at, kind in kinds.items() if _is_gpu(target, at, kind)]
    gpus = [gpu for gpu in found if gpu][:_MOST_GPUS]
    yield "topology.switches", Known(len({gpu.switch for gpu in gpus} - {None}), f"paths under {BUS}")
    acs = _Acs(target)
    yield from _pairs(gpus, acs)
    yield "gpu_path", tuple(_rows(target, gpus, acs, single))


def _numa_nodes(target: Target) -> Fact:
    """``0-1,4``"""
    path = "/sys/devices/system/node/online"
    found = line(target, path)
    if isinstance(found, Absent) and there(target, "/sys/devices/system") is True:
        return Known(1, f"no {path}")
    if not isinstance(found, Known):
        return Unread(found.why)
    spans = [span.partition("-") for span in str(found.value).split(",")]
    try:
        return Known(sum(int(last or first) - int(first) + 1 for first, _, last in spans), path)
    except ValueError:
        return Unread(f"{path} says {str(found.value)[:20]!r}")


def _nvidia(target: Target, address: str) -> str:
    """The class, ``0x030200``, of a device of NVIDIA; empty for all others."""
    if text(target, f"{BUS}/{address}/vendor", 16) != "0x10de":
        return ""
    kind = text(target, f"{BUS}/{address}/class", 16)
    return kind if isinstance(kind, str) else ""


def _is_gpu(target: Target, address: str, kind: str) -> bool:
    """A whole GPU; the virtual functions of one are not."""
    return kind.startswith(_GPU_CLASSES) and there(target, f"{BUS}/{address}/physfn") is not True


class _Acs:
    """What each bridge says of ACS, asked once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[str, Fact] = {}

    def redirects(self, bridge: str) -> Fact:
        if bridge not in self._known:
            self._known[bridge] = acs_redirects(self._target, bridge)
        return self._known[bridge]

    def any_of(self, bridges: Sequence[str]) -> Fact:
        """Whether one of them redirects; unread where none is known to and one could not be asked."""
        said = [self.redirects(bridge) for bridge in bridges]
        yes = next((one for one in said if isinstance(one, Known) and one.value), None)
        return yes or next((one for one in said if isinstance(one, Unread)), None) or Known(False, "bridges' config")


def _pairs(gpus: Sequence[Place], acs: _Acs) -> Iterator[tuple[str, Fact | Rows]]:
    rows: list[Row] = []
    inside: dict[str, None] = {}
    for a, b in combinations(gpus, 2):
        path, bridges = between(a, b)
        switched = path in ("PIX", "PXB")
        inside.update(dict.fromkeys(bridges if switched else ()))
        rows.append(
            {
                "a": Known(a.address, BUS),
                "b": Known(b.address, BUS),
                "path": _path(path),
                "acs": acs.any_of(bridges) if switched else Absent("no PCIe switch between them"),
            }
        )
    yield "gpu_pair", tuple(rows)
    said = {bridge: acs.redirects(bridge) for bridge in inside}
    blind = next((one for one in said.values() if isinstance(one, Unread)), None)
    on = tuple(sorted(bridge for bridge, one in said.items() if isinstance(one, Known) and one.value))
    yield "topology.acs_bridges", blind or Known(on, "bridges' config")


def _path(path: str | None) -> Fact:
    return Known(path, f"paths under {BUS}") if path else Unread("the NUMA nodes of the two are not known")


def _rows(target: Target, gpus: Sequence[Place], acs: _Acs, single: bool) -> Iterator[Row]:
    cards = _cards(target, "/sys/class/infiniband", single) or _cards(target, "/sys/class/net", single)
    disks = _cards(target, "/sys/class/nvme", single)
    for gpu in gpus:
        nics, nic_path = _nearest(gpu, cards, "network card")
        nvme, disk_path = _nearest(gpu, disks, "NVMe disk")
        yield {
            "address": Known(gpu.address, BUS),
            "bridges": Known(gpu.above[::-1], f"path of {BUS}/{gpu.address}"),
            "root": Known(gpu.root, f"path of {BUS}/{gpu.address}"),
            "switch": Known(gpu.switch, f"path of {BUS}/{gpu.address}") if gpu.switch else Absent("no switch above it"),
            "iommu_group": _group(target, gpu.address),
            "acs": acs.any_of(gpu.above),
            "ats": ats_enabled(target, gpu.address),
            "nics": nics,
            "nic_path": nic_path,
            "disks": nvme,
            "disk_path": disk_path,
        }


def _cards(target: Target, folder: str, single: bool) -> Places:
    """Devices of a class by name, where they are on PCI; virtual ones (bridges, veth) have no ``device``."""
    found = names(target, folder)
    listed = [name for name in found if not _VIRTUAL.match(name)] if isinstance(found, list) else []
    places = {name: place(target, f"{folder}/{name}/device", single) for name in listed}
    return {name: where for name, where in places.items() if where}


def _nearest(gpu: Place, cards: Places, what: str) -> tuple[Fact, Fact]:
    if not cards:
        none = Absent(f"no {what} on the PCI bus")
        return none, none
    ranked = [(ORDER.index(path), name) for name, card in cards.items() if (path := between(gpu, card)[0])]
    if not ranked:
        unknown = Unread("the NUMA nodes of the two are not known")
        return unknown, unknown
    nearest = min(ranked)[0]
    source = f"paths under {BUS}"
    return Known(tuple(sorted(name for rank, name in ranked if rank == nearest)), source), Known(ORDER[nearest], source)


def _group(target: Target, address: str) -> Fact:
    path = f"{BUS}/{address}/iommu_group"
    here = there(target, path)
    if here is not True:
        return here if isinstance(here, Unread) else Absent(f"no {path}")
    last = real(target, path).rpartition("/")[2]
    return Known(int(last), path) if last.isdigit() else Unread(f"{path} leads to no numbered group")
