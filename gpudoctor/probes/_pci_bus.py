"""The PCI bus as sysfs shows it: configuration space, the tree of bridges and what lies between two devices, links.

Of configuration space, ACS and ATS lie beyond the header, which only root sees. Reading all 4096 bytes costs a
millisecond for each device, so only the words on the way are read.

sysfs keeps the tree in its paths: ``/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/0000:19:00.0`` is
host bridge, root port, upstream and downstream port of a switch, device.
"""

from __future__ import annotations

import os
import re
import struct

from gpudoctor.core import system
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Unread, number_of, text_of, value_of
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._reading import as_unread, line, number, refusal, resolve_path, text
from gpudoctor.target import Target

BUS = "/sys/bus/pci/devices"
VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}

_ACS = 0x000D
_ATS = 0x000F
_REDIRECT = 0b1100
"""P2P Request Redirect and P2P Completion Redirect of the ACS control register."""
_MOST_CAPABILITIES = 64


def is_nvswitch(vendor: str, device: str, kind: str) -> bool:
    """True for an NVSwitch by its ids, hexadecimal digits: ``10de``, ``22a3``, ``068000``.

    The Ethernet controllers of nForce chipsets are bridges of class 0680 as well (MCP55: ``10de:0373``), whose ids, up
    to MCP89, are below 1000; the first NVSwitch is ``1ac2``. An id that cannot be read (empty) counts as a switch's.
    """
    return vendor == "10de" and kind.startswith("0680") and not "" < device < "1000"


def unread_if_asleep(target: Target, folder: str) -> Unread | None:
    """`Unread` if the device is suspended and the level is quick, as reading would wake it; None otherwise.

    The kernel resumes a device, or the bridge above it, to read its ``config``, ``max_link_width``,
    ``current_link_speed`` and ``current_link_width`` (drivers/pci/pci-sysfs.c, the link files since 6.18), and NVIDIA's
    module does for ``/proc/driver/nvidia/gpus/*/information`` (nv-procfs.c). Neither does for ``power_state`` and ids.
    """
    if target.level != "quick":
        return None
    status, state = (text_of(line(target, f"{folder}/{name}")) for name in ("power/runtime_status", "power_state"))
    if status in ("suspended", "suspending") or (status != "active" and state.startswith("D3")):
        words = ", ".join(filter(None, (status, state)))
        return Unread(f"{folder.rpartition('/')[2]} is asleep ({words}), and reading it would wake it")
    return None


def acs_redirects(target: Target, address: str) -> Fact:
    """Whether ACS at this bridge redirects peer-to-peer traffic to the root; absent without ACS.

    Unread if ``config`` cannot be read that far, as by others than root, or the bridge is asleep at level quick.
    """
    return _control_bits(target, address, _ACS, _REDIRECT, "ACS")


def ats_enabled(target: Target, address: str) -> Fact:
    """Whether the device translates addresses itself (ATS); absent if it cannot.

    Unread if ``config`` cannot be read that far, as by others than root, or the device is asleep at level quick.
    """
    return _control_bits(target, address, _ATS, 0x8000, "ATS")


def _control_bits(target: Target, address: str, capability: int, bits: int, name: str) -> Fact:
    """Whether any of `bits` is set in the control register of the device's extended capability; `name` for the source.

    Absent if the device lacks it, unread if it cannot be read.
    """
    found = _extended_control(target, address, capability)
    return Known(bool(found & bits), f"{BUS}/{address}/config: {name} control") if isinstance(found, int) else found


def _extended_control(target: Target, address: str, wanted: int) -> int | Absent | Unread:
    """The control register (16 bits, at offset 6) of the device's extended capability `wanted`.

    Absent if it lacks it; unread if it may not be read, or is asleep at level quick.
    """
    folder = f"{BUS}/{address}"
    if sleeping := unread_if_asleep(target, folder):
        return sleeping
    try:
        handle = os.open(target.path(f"{folder}/config"), os.O_RDONLY)
    except OSError as error:
        return refusal(f"{folder}/config", error)
    try:
        return _find_capability(handle, f"{folder}/config", wanted)
    except OSError as error:
        return refusal(f"{folder}/config", error)
    finally:
        os.close(handle)


def _find_capability(handle: int, path: str, wanted: int) -> int | Absent | Unread:
    """The control register of extended capability `wanted`, from an open ``config`` file.

    Absent if it is not in the chain. Unread if the file is cut short or the chain damaged; raises `OSError`.
    Capabilities are a chain of words from 0x100 on: id 16 bits, version 4, offset of the next 12.
    """
    offset = 0x100
    for _ in range(_MOST_CAPABILITIES):
        word = system.read_at(handle, 8, offset)
        if len(word) < 8:
            return _cut_short(handle, path)
        header, _, control = struct.unpack("<IHH", word)
        if header == 0xFFFFFFFF:
            return Unread(f"{path} reads as all ones: the device does not answer")
        if header & 0xFFFF == wanted:
            return int(control)
        offset = header >> 20
        if offset < 0x100:
            return Absent(f"{path}: no extended capability {wanted:#06x}")
    return Unread(f"{path}: its capabilities run in a circle")


def _cut_short(handle: int, path: str) -> Unread:
    """An `Unread` why ``config`` ends: at 64 bytes that root is needed, later no access. Raises `OSError`."""
    if len(system.read_at(handle, 256, 0)) <= 64:
        return Unread(
            f"{path}: only root may read more than its first 64 bytes; run gpudoctor with sudo", reason=Reason.DENIED
        )
    return Unread(f"{path}: this machine gives no access to extended configuration space")


# ---- Where a device hangs in the tree, and how far two of them are apart in nvidia-smi's words ----

PATH_KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far: one switch, several switches, the host bridge, the NUMA node, another node."""

_PLACE = pattern(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2})((?:/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])+)(?=/|$)")


@frozen
class PciPlace:
    """Where a device is in the PCI tree.

    `root`: the host bridge; `above`: the bridges from the root port down; `node`: NUMA node, None if not known.
    """

    address: str
    root: str
    above: tuple[str, ...]
    node: int | None

    @property
    def switch(self) -> str | None:
        """PCI address of the upstream port of the nearest switch; None if there is only a root port above."""
        return self.above[-2] if len(self.above) >= 3 else None


def place_of(target: Target, path: str, single_node: bool = False) -> PciPlace | None:
    """Where in the PCI tree the device is that the sysfs link `path` leads to; None off the PCI bus.

    `single_node`: the machine has one NUMA node, which is then the node of a device that names none.
    """
    found = list(_PLACE.finditer(resolve_path(target, path)))
    if not found:
        return None
    *above, address = found[-1][2].strip("/").split("/")
    node = value_of(number(target, f"/sys/bus/pci/devices/{address}/numa_node"))
    if not isinstance(node, int) or node == -1:
        node = 0 if single_node else None
    return PciPlace(address, found[-1][1], tuple(above), node)


def path_between(first: PciPlace, second: PciPlace) -> tuple[str | None, tuple[str, ...]]:
    """The path kind (PIX, PXB, PHB, NODE, SYS), and the bridges of both below the shared one.

    The kind is None if the NUMA nodes of different host bridges are not known.
    """
    shared = 0
    if first.root == second.root:
        while shared < min(len(first.above), len(second.above)) and first.above[shared] == second.above[shared]:
            shared += 1
        branches = first.above[shared:], second.above[shared:]
        if shared:
            return "PIX" if max(map(len, branches)) <= 1 else "PXB", branches[0] + branches[1]
        return "PHB", branches[0] + branches[1]
    if first.node is None or second.node is None:
        return None, first.above + second.above
    return "NODE" if first.node == second.node else "SYS", first.above + second.above


# ---- Lanes and speed of a device, and of the switches between it and the processor ----

_UPLINK = ("uplink", "uplink_width", "uplink_width_max", "uplink_speed", "uplink_speed_max")


def link_speed(target: Target, path: str) -> Fact:
    """The link speed in GT/s in that file, which holds ``16.0 GT/s PCIe`` or ``8 GT/s``; unread for anything else."""
    found = text(target, path, 64)
    if not isinstance(found, str):
        return as_unread(found)
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", found)
    return Known(float(match[1]), path) if match else Unread(f"{path} says {found[:20]!r}")


def link_width(target: Target, path: str) -> Fact:
    """The number of PCIe lanes in that file; unread if missing, or 0, 63 or 255: then there is no link."""
    found = number(target, path)
    if (lanes := value_of(found)) in (0, 63, 255):
        return Unread(f"{path} says {lanes}, which is no width")
    return as_unread(found) if isinstance(found, Absent) else found


def port_above(target: Target, folder: str) -> str:
    """The sysfs folder of the bridge right above the device; empty if the device is on the root itself."""
    above = resolve_path(target, folder).rpartition("/")[0]
    return above if re.search(r"/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", above) else ""


def uplink(target: Target, folder: str) -> Row:
    """The columns uplink, uplink_width, _width_max, _speed and _speed_max of one link of the switches above: the one
    with the least current bandwidth as a share of its maximum.

    `uplink` is the PCI address of its lower end. Absent if there is no switch (or an even number of bridges), unread if
    a link cannot be read.

    From the root down the bridges are a root port, then of each switch its upstream and a downstream port: every second
    pair of neighbours is a link, the others are inside a switch. The lower end tells what the link has.
    """
    here = place_of(target, folder)
    if here is None or len(here.above) < 3 or len(here.above) % 2 == 0:
        return dict.fromkeys(_UPLINK, Absent(f"no PCIe switch above {folder}"))
    links = [_link_columns(target, *ends) for ends in zip(here.above[:-1:2], here.above[1::2], strict=True)]
    unread = next((link for link in links if isinstance(link, Unread)), None)
    if unread:
        return dict.fromkeys(_UPLINK, unread)
    return min((link for link in links if not isinstance(link, Unread)), key=_bandwidth_share)


def _link_columns(target: Target, upper: str, lower: str) -> Row | Unread:
    """The uplink columns of the link between two ports (PCI addresses); its maximum is the lower of both ends'.

    `Unread` if an end cannot be read, or is asleep at level quick.
    """
    if sleeping := unread_if_asleep(target, f"{BUS}/{lower}") or unread_if_asleep(target, f"{BUS}/{upper}"):
        return sleeping
    widths = [link_width(target, f"{BUS}/{end}/max_link_width") for end in (upper, lower)]
    speeds = [link_speed(target, f"{BUS}/{end}/max_link_speed") for end in (upper, lower)]
    lanes = link_width(target, f"{BUS}/{lower}/current_link_width")
    speed = link_speed(target, f"{BUS}/{lower}/current_link_speed")
    for state in (lanes, speed, *widths, *speeds):
        if isinstance(state, (Absent, Unread)):
            return as_unread(state)
    states = (Known(lower, BUS), lanes, min(widths, key=_number_or_zero), speed, min(speeds, key=_number_or_zero))
    return dict(zip(_UPLINK, states, strict=True))


def _bandwidth_share(link: Row) -> float:
    """Current bandwidth of the link over its maximum: 0.0 to 1.0."""
    lanes, most_lanes, rate, highest = (_number_or_zero(link[name]) for name in _UPLINK[1:])
    return lanes * rate / (most_lanes * highest or 1.0)


def _number_or_zero(state: Fact) -> float:
    """The fact's number; 0.0 if it has none."""
    return number_of(state) or 0.0
