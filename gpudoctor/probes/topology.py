"""How GPUs, network cards and NVMe disks hang together on PCIe: switches, distances, ACS.

From sysfs alone, so that it holds where NVML does not answer. In a virtual machine it is what the hypervisor shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, value_of
from gpudoctor.probes._machine_kind import no_bus_hint, pci_hidden
from gpudoctor.probes._pci_bus import (
    BUS,
    PATH_KINDS,
    PciPlace,
    acs_redirects,
    ats_enabled,
    is_nvswitch,
    path_between,
    place_of,
)
from gpudoctor.probes._reading import as_unread, line, list_length, names, names_in, path_exists, resolve_path, text
from gpudoctor.target import Target

NOT_YET = "windows"
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

Places = Mapping[str, PciPlace]
Redirects = Callable[[str], Fact]
"""Whether ACS at a bridge, by its PCI address, sends peer-to-peer traffic upstream; read once for each."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``topology`` facts, one row per NVIDIA GPU and one per pair of them."""
    nodes = _numa_nodes(target)
    yield "topology.numa_nodes", nodes
    addresses = names(target, BUS)
    hidden = pci_hidden(target)
    if hidden or not isinstance(addresses, list):
        why = hidden or getattr(addresses, "why", "") + no_bus_hint(target)
        for name in ("topology.nvswitches", "topology.switches", "topology.acs_bridges", "gpu_path", "gpu_pair"):
            yield name, Unread(why)
        return
    kinds = {at: kind for at in addresses if (kind := _nvidia_class(target, at))}
    switches = sum(kind.startswith("0x0680") and _is_nvswitch(target, at, kind) for at, kind in kinds.items())
    yield "topology.nvswitches", Known(switches, f"{BUS}, class 0680")
    single = value_of(nodes) == 1
    found = [place_of(target, f"{BUS}/{at}", single) for at, kind in kinds.items() if _is_gpu(target, at, kind)]
    gpus = [gpu for gpu in found if gpu][:_MOST_GPUS]
    yield "topology.switches", Known(len({gpu.switch for gpu in gpus} - {None}), f"paths under {BUS}")
    redirects = cache(partial(acs_redirects, target))
    yield from _pair_facts(gpus, redirects)
    yield "gpu_path", tuple(_gpu_rows(target, gpus, redirects, single))


def _numa_nodes(target: Target) -> Fact:
    """The number of NUMA nodes, from a list such as ``0-1,4``; 1 without such a file, unread without /sys."""
    path = "/sys/devices/system/node/online"
    found = line(target, path)
    if isinstance(found, Absent) and path_exists(target, "/sys/devices/system") is True:
        return Known(1, f"no {path}")
    if isinstance(found, (Absent, Unread)):
        return as_unread(found)
    try:
        return Known(list_length(str(found.value)), path)
    except ValueError:
        return Unread(f"{path} says {str(found.value)[:20]!r}")


def _nvidia_class(target: Target, address: str) -> str:
    """The PCI class of an NVIDIA device, such as ``0x030200``; empty for other vendors, or if it cannot be read."""
    if text(target, f"{BUS}/{address}/vendor", 16) != "0x10de":
        return ""
    kind = text(target, f"{BUS}/{address}/class", 16)
    return kind if isinstance(kind, str) else ""


def _is_nvswitch(target: Target, address: str, kind: str) -> bool:
    """True if the NVIDIA device of class `kind` (``0x068000``) is an NVSwitch."""
    device = text(target, f"{BUS}/{address}/device", 16)
    return is_nvswitch("10de", device.removeprefix("0x") if isinstance(device, str) else "", kind.removeprefix("0x"))


def _is_gpu(target: Target, address: str, kind: str) -> bool:
    """True if the class `kind` (``0x030200``) is a GPU's and the device is no virtual function of a GPU."""
    return kind.startswith(_GPU_CLASSES) and path_exists(target, f"{BUS}/{address}/physfn") is not True


def _any_redirects(redirects: Redirects, bridges: Sequence[str]) -> Fact:
    """Whether ACS redirects at one of the bridges (addresses); unread if none is known to and one is unread."""
    facts = [redirects(bridge) for bridge in bridges]
    yes = next((fact for fact in facts if value_of(fact)), None)
    unread = next((fact for fact in facts if isinstance(fact, Unread)), None)
    return yes or unread or Known(False, "bridges' config")


def _pair_facts(gpus: Sequence[PciPlace], redirects: Redirects) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the group ``gpu_pair`` (a, b, path, acs) and topology.acs_bridges, ports between GPUs where ACS redirects.

    The column acs is absent without a switch between the two, path unread if their NUMA nodes are not known.
    """
    rows: list[Row] = []
    between_gpus: dict[str, None] = {}
    for a, b in combinations(gpus, 2):
        path, bridges = path_between(a, b)
        switched = path in ("PIX", "PXB")
        between_gpus.update(dict.fromkeys(bridges if switched else ()))
        rows.append(
            {
                "a": Known(a.address, BUS),
                "b": Known(b.address, BUS),
                "path": (
                    Known(path, f"paths under {BUS}") if path else Unread("the NUMA nodes of the two are not known")
                ),
                "acs": _any_redirects(redirects, bridges) if switched else Absent("no PCIe switch between them"),
            }
        )
    yield "gpu_pair", tuple(rows)
    blind = next((fact for fact in map(redirects, between_gpus) if isinstance(fact, Unread)), None)
    on = tuple(sorted(bridge for bridge in between_gpus if value_of(redirects(bridge))))
    yield "topology.acs_bridges", blind or Known(on, "bridges' config")


def _gpu_rows(target: Target, gpus: Sequence[PciPlace], redirects: Redirects, single: bool) -> Iterator[Row]:
    """Yields the row of the group ``gpu_path`` of each GPU, with the nearest network cards and NVMe disks.

    Columns: address, bridges, root, switch, iommu_group, acs, ats, nics, nic_path, disks, disk_path. `single`: the
    machine has one NUMA node.
    """
    cards = _class_devices(target, "/sys/class/infiniband", single) or _class_devices(target, "/sys/class/net", single)
    disks = _class_devices(target, "/sys/class/nvme", single)
    for gpu in gpus:
        nics, nic_path = _nearest(gpu, cards, "network card")
        nvme, disk_path = _nearest(gpu, disks, "NVMe disk")
        yield {
            "address": Known(gpu.address, BUS),
            "bridges": Known(gpu.above[::-1], f"path of {BUS}/{gpu.address}"),
            "root": Known(gpu.root, f"path of {BUS}/{gpu.address}"),
            "switch": Known(gpu.switch, f"path of {BUS}/{gpu.address}") if gpu.switch else Absent("no switch above it"),
            "iommu_group": _iommu_group(target, gpu.address),
            "acs": _any_redirects(redirects, gpu.above),
            "ats": ats_enabled(target, gpu.address),
            "nics": nics,
            "nic_path": nic_path,
            "disks": nvme,
            "disk_path": disk_path,
        }


def _class_devices(target: Target, folder: str, single: bool) -> Places:
    """PCI place by name of the devices of a sysfs class; virtual ones (bridges, veth) are left out.

    `single`: the machine has one NUMA node.
    """
    listed = [name for name in names_in(target, folder) if not _VIRTUAL.match(name)]
    places = {name: place_of(target, f"{folder}/{name}/device", single) for name in listed}
    return {name: where for name, where in places.items() if where}


def _nearest(gpu: PciPlace, cards: Places, what: str) -> tuple[Fact, Fact]:
    """Names of those of `cards` nearest to the GPU, and the path kind to them: PIX, PXB, PHB, NODE or SYS.

    Both absent without cards, unread if NUMA nodes are not known. `what`: what cards are, for the reason.
    """
    if not cards:
        none = Absent(f"no {what} on the PCI bus")
        return none, none
    paths = {name: path_between(gpu, card)[0] for name, card in cards.items()}
    ranked = [(PATH_KINDS.index(path), name) for name, path in paths.items() if path]
    if not ranked:
        unknown = Unread("the NUMA nodes of the two are not known")
        return unknown, unknown
    nearest = min(ranked)[0]
    source = f"paths under {BUS}"
    named = tuple(sorted(name for rank, name in ranked if rank == nearest))
    return Known(named, source), Known(PATH_KINDS[nearest], source)


def _iommu_group(target: Target, address: str) -> Fact:
    """The number of the device's IOMMU group; absent if it has none."""
    path = f"{BUS}/{address}/iommu_group"
    here = path_exists(target, path)
    if here is not True:
        return here if isinstance(here, Unread) else Absent(f"no {path}")
    last = resolve_path(target, path).rpartition("/")[2]
    return Known(int(last), path) if last.isdigit() else Unread(f"{path} leads to no numbered group")
