"""Display and 3D devices on the PCI bus, from sysfs.

A GPU that fell off the bus keeps its folder in sysfs, with its old ids; only its configuration space tells: all ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, text_of, value_of
from gpudoctor.probes._machine_kind import no_bus_hint, pci_hidden
from gpudoctor.probes._pci_bus import (
    BUS,
    VENDORS,
    is_nvswitch,
    link_speed,
    link_width,
    port_above,
    unread_if_asleep,
    uplink,
)
from gpudoctor.probes._reading import line, names, number, refusal, text
from gpudoctor.target import Target

ONLY = "linux"
FACTS = (
    fact("pci.devices", "int", "devices of any kind that the bus lists; none at all may mean that it is hidden"),
    fact("pci.nvidia_count", "int", "NVIDIA GPUs on the bus; virtual functions of a GPU not counted"),
    fact("pci.gpu_vendors", "list", "vendors of all display and 3D devices, each once: nvidia, amd, intel, other"),
    fact(
        "pci.nvidia_drivers",
        "list",
        "kernel drivers bound to the NVIDIA GPUs, each once: nvidia, nouveau, vfio-pci, nova; none where unbound",
    ),
    column("pci.address", "text", "PCI address, 0000:3b:00.0"),
    column("pci.vendor", "text", "nvidia, amd, intel or other"),
    column("pci.device_id", "text", "vendor and device id, 10de:2330"),
    column("pci.name", "text", "the product's name: the NVIDIA driver's, else by its id, where the table has it"),
    column("pci.driver", "text", "kernel driver bound to it; absent where none is"),
    column("pci.alive", "bool", "whether its configuration space answers; all ones means it fell off the bus"),
    column("pci.link_speed", "float", "current PCIe speed (idle GPUs drop to 2.5)", "GT/s per lane"),
    column("pci.link_speed_max", "float", "highest PCIe speed of the device", "GT/s per lane"),
    column("pci.link_width", "int", "current PCIe lanes"),
    column("pci.link_width_max", "int", "most PCIe lanes of the device"),
    column("pci.slot_speed_max", "float", "highest PCIe speed of the port it is plugged into", "GT/s per lane"),
    column("pci.slot_width_max", "int", "most PCIe lanes of the port it is plugged into"),
    column("pci.uplink_width", "int", "lanes of the worst link between the PCIe switches above it and the processor"),
    column("pci.uplink_width_max", "int", "most lanes that both ends of that link can have"),
    column("pci.uplink_speed", "float", "speed of that link", "GT/s per lane"),
    column("pci.uplink_speed_max", "float", "highest speed that both ends of that link can have", "GT/s per lane"),
    column("pci.uplink", "text", "PCI address of that link's lower end; absent where it hangs behind no switch"),
    column("pci.bars_unassigned", "list", "numbers of its memory regions (BARs) that got no address, such as 1"),
    column("pci.bar1_mib", "int", "size of memory region 1; as large as the GPU's memory with resizable BAR", "MiB"),
    column("pci.numa_node", "int", "NUMA node it is attached to; absent on machines without nodes"),
    column("pci.iommu", "text", "how the IOMMU treats it: DMA or DMA-FQ (translated), identity; absent without IOMMU"),
    column("pci.power_state", "text", "PCI power state, such as D0, D3hot, D3cold"),
)

_GPU_CLASSES = ("0300", "0302", "0380")
_ACCELERATOR = ("1002", "1200")
"""AMD's MI200 and MI300 call themselves processing accelerators; those of other vendors are no GPUs."""

_NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``pci`` facts and rows of display and 3D devices, and driver.nvswitch; unread without a PCI bus."""
    addresses = names(target, BUS)
    if not isinstance(addresses, list):
        yield from _all_unread(Unread(pci_hidden(target) or addresses.why + no_bus_hint(target)))
        return
    devices = [(address, *_identity(target, address)) for address in addresses]
    yield "pci.devices", Known(len(devices), BUS)
    yield "driver.nvswitch", _nvswitch_fact([identity for _, *identity in devices])
    gpus = [(address, vendor, device) for address, vendor, device, kind in devices if _is_gpu(vendor, kind)]
    unclear = [address for address, vendor, _, kind in devices if not vendor or not kind]
    known = _names_by_id(target, {(vendor, device) for _, vendor, device in gpus})
    rows = tuple(_row(target, address, vendor, device, known) for address, vendor, device in gpus)
    yield "pci", rows
    yield from _summary_facts(target, gpus, rows, unclear)


def _is_gpu(vendor: str, kind: str) -> bool:
    """True if the class (hex digits) is display or 3D, or AMD's processing accelerator; `vendor` as hex digits."""
    return kind[:4] in _GPU_CLASSES or (vendor, kind[:4]) == _ACCELERATOR


def _all_unread(why: Unread) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields every fact and group of the PCI probe, all unread for the same reason."""
    yield "pci", why
    for name in ("pci.devices", "pci.nvidia_count", "pci.gpu_vendors", "pci.nvidia_drivers", "driver.nvswitch"):
        yield name, why


def _identity(target: Target, address: str) -> tuple[str, str, str]:
    """Vendor, device and class as hexadecimal digits (``10de``, ``2330``, ``030200``); empty if they cannot be read."""
    found = [text(target, f"{BUS}/{address}/{name}", 16) for name in ("vendor", "device", "class")]
    vendor, device, kind = (entry.removeprefix("0x") if isinstance(entry, str) else "" for entry in found)
    return vendor, device, kind


def _nvswitch_fact(identities: list[list[str]]) -> Fact:
    """Fact `driver.nvswitch`: whether any of the devices (vendor, device, class) is an NVSwitch."""
    count = sum(is_nvswitch(*identity) for identity in identities)
    return Known(count > 0, f"{BUS}: {count or 'no'} NVSwitch{'es' * (count > 1)} of class 0680")


def _summary_facts(
    target: Target, gpus: list[tuple[str, str, str]], rows: tuple[Row, ...], unclear: list[str]
) -> Iterator[tuple[str, Fact]]:
    """Yields pci.nvidia_count (no virtual functions), gpu_vendors, and nvidia_drivers (absent without NVIDIA GPUs).

    `gpus`: (address, vendor, device id) of each of `rows`. `unclear`: addresses whose vendor or class cannot be read,
    which leaves a count of zero unread.
    """
    nvidia = [(address, row) for (address, vendor, _), row in zip(gpus, rows, strict=True) if vendor == "10de"]
    vendors = tuple(dict.fromkeys(VENDORS.get(vendor, "other") for _, vendor, _ in gpus))
    whole = [address for address, _ in nvidia if isinstance(text(target, f"{BUS}/{address}/physfn/vendor"), Absent)]
    count: Fact = Known(len(whole), BUS)
    vendors_fact: Fact = Known(vendors, BUS)
    hidden = pci_hidden(target)
    if not nvidia and (hidden or unclear):
        count = vendors_fact = Unread(hidden or f"{BUS}/{unclear[0]} cannot be read")
    bound = tuple(dict.fromkeys(name for _, row in nvidia if (name := text_of(row["driver"]))))
    yield "pci.nvidia_count", count
    yield "pci.gpu_vendors", vendors_fact
    yield "pci.nvidia_drivers", Known(bound, BUS) if nvidia else Absent(f"no NVIDIA GPU in {BUS}")


def _row(target: Target, address: str, vendor: str, device: str, known: dict[tuple[str, str], Fact]) -> Row:
    """The row of the group ``pci`` of one device; `known`: names by (vendor, device id).

    While it sleeps at level quick its link columns and alive are unread, as reading them would wake it, and its name is
    only looked up in `known`.
    """
    folder = f"{BUS}/{address}"
    sleeping, node = unread_if_asleep(target, folder), number(target, f"{folder}/numa_node")
    return {
        "address": Known(address, BUS),
        "vendor": Known(VENDORS.get(vendor, "other"), f"{folder}/vendor"),
        "device_id": Known(f"{vendor}:{device}", f"{folder}/device"),
        "name": _product_name(target, address, known.get((vendor, device)), sleeping),
        "driver": _bound_driver(target, folder),
        "alive": sleeping or _alive_fact(target, folder),
        "link_speed": sleeping or link_speed(target, f"{folder}/current_link_speed"),
        "link_speed_max": sleeping or link_speed(target, f"{folder}/max_link_speed"),
        "link_width": sleeping or link_width(target, f"{folder}/current_link_width"),
        "link_width_max": sleeping or link_width(target, f"{folder}/max_link_width"),
        **_slot_columns(target, folder),
        **uplink(target, folder),
        **_bar_columns(target, f"{folder}/resource"),
        "numa_node": Absent(f"{folder}/numa_node says -1") if value_of(node) == -1 else node,
        "iommu": line(target, f"{folder}/iommu_group/type"),
        "power_state": line(target, f"{folder}/power_state"),
    }


def _slot_columns(target: Target, folder: str) -> Row:
    """The columns slot_speed_max and slot_width_max of the port above the device.

    Unread if there is none, or it sleeps at level quick.
    """
    port = port_above(target, folder)
    unread = unread_if_asleep(target, port) if port else Unread(f"no port above {folder}")
    return {
        "slot_speed_max": unread or link_speed(target, f"{port}/max_link_speed"),
        "slot_width_max": unread or link_width(target, f"{port}/max_link_width"),
    }


def _bound_driver(target: Target, folder: str) -> Fact:
    """Name of the kernel driver bound to the device; absent if none is bound."""
    path = f"{folder}/driver"
    try:
        if not target.exists(path):
            return Absent(f"no {path}: no driver is bound")
        return Known(target.link(path).rpartition("/")[2], path)
    except OSError as error:
        return refusal(path, error)


def _alive_fact(target: Target, folder: str) -> Fact:
    """Whether the device's configuration space answers: its first four bytes are not all ones."""
    path = f"{folder}/config"
    try:
        first = target.read_bytes(path, 4)
    except OSError as error:
        return refusal(path, error)
    return Known(first != b"\xff\xff\xff\xff", path) if len(first) == 4 else Unread(f"{path} is cut short")


def _bar_columns(target: Target, path: str) -> dict[str, Fact]:
    """The columns bars_unassigned (numbers) and bar1_mib, from sysfs' ``resource``: lines of ``start end flags``.

    Both unread if it is no such file; the size is absent without BAR 1.
    """
    found = text(target, path, 4096)
    regions = re.findall(r"^0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)$", found, re.M) if isinstance(found, str) else []
    if len(regions) < 6:
        why = Unread(f"{path} is not a list of regions" if isinstance(found, str) else found.why)
        return {"bars_unassigned": why, "bar1_mib": why}
    bars = [(int(start, 16), int(end, 16)) for start, end, _ in regions[:6]]
    start, end = bars[1]
    return {
        "bars_unassigned": Known(tuple(i for i, (first, last) in enumerate(bars) if last and not first), path),
        "bar1_mib": Known((end - start + 1) >> 20, path) if end else Absent(f"{path}: no region 1"),
    }


def _product_name(target: Target, address: str, by_id: Fact | None, sleeping: Unread | None) -> Fact:
    """The product name that NVIDIA's driver gives, else `by_id`, else unread.

    While the device is asleep (`sleeping` says so) the driver is not asked.
    """
    if sleeping:
        return by_id or sleeping
    path = f"/proc/driver/nvidia/gpus/{address}/information"
    found = text(target, path, 4096)
    match = re.search(r"^Model:\s*(\S.*)$", found, re.M) if isinstance(found, str) else None
    if match and match[1].strip().lower() != "unknown":
        return Known(match[1].strip(), path)
    return by_id or Unread("its id is in no table of names on this machine")


def _names_by_id(target: Target, ids: set[tuple[str, str]]) -> dict[tuple[str, str], Fact]:
    """Product names by (vendor, device id) from the machine's first file pci.ids; ids that it lacks are left out."""
    out: dict[tuple[str, str], Fact] = {}
    for path in _NAMES if ids else ():
        found = text(target, path, 4 << 20)
        if not isinstance(found, str):
            continue
        for vendor, device in ids:
            start = found.find(f"\n{vendor}  ")
            block = re.compile(r"\n[0-9a-fA-F]").search(found, start + 1) if start >= 0 else None
            place = found.find(f"\n\t{device}  ", start, block.start() if block else len(found)) if start >= 0 else -1
            if place >= 0:
                out.setdefault((vendor, device), Known(found[place + 8 :].partition("\n")[0].strip(), path))
        break
    return out
