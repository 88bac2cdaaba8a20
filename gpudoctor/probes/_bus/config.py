"""PCI configuration space: whether it may be read, and ACS and ATS beyond its header, which only root sees.

Reading all 4096 bytes costs a millisecond for each device, so only the words on the way are read.
"""

from __future__ import annotations

import os
import struct

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._reading import line, refusal
from gpudoctor.target import Target

BUS = "/sys/bus/pci/devices"

_ACS = 0x000D
_ATS = 0x000F
_REDIRECT = 0b1100
"""P2P Request Redirect and P2P Completion Redirect of the ACS control register."""
_MOST_CAPABILITIES = 64


def asleep(target: Target, folder: str) -> Unread | None:
    """Why level quick leaves a suspended device alone; None for one that is awake, and at other levels.

    The kernel resumes a device, or the bridge above it, to read its ``config``, ``max_link_width``,
    ``current_link_speed`` and ``current_link_width`` (drivers/pci/pci-sysfs.c, the link files since 6.18), and NVIDIA's
    module does for ``/proc/driver/nvidia/gpus/*/information`` (nv-procfs.c). Neither does for ``power_state`` and ids.
    """
    if target.level != "quick":
        return None
    status, state = (_word(target, f"{folder}/{name}") for name in ("power/runtime_status", "power_state"))
    if status in ("suspended", "suspending") or (status != "active" and state.startswith("D3")):
        words = ", ".join(filter(None, (status, state)))
        return Unread(f"{folder.rpartition('/')[2]} is asleep ({words}), and reading it would wake it")
    return None


def _word(target: Target, path: str) -> str:
    found = line(target, path)
    return str(found.value) if isinstance(found, Known) else ""


def acs_redirects(target: Target, address: str) -> Fact:
    """Whether ACS sends what this bridge gets from one device for another up to the root first."""
    found = _extended(target, address, _ACS)
    return found if isinstance(found, (Absent, Unread)) else Known(bool(found & _REDIRECT), _source(address, "ACS"))


def ats_enabled(target: Target, address: str) -> Fact:
    """Whether the device asks the IOMMU for addresses itself (Address Translation Services)."""
    found = _extended(target, address, _ATS)
    return found if isinstance(found, (Absent, Unread)) else Known(bool(found & 0x8000), _source(address, "ATS"))


def _source(address: str, name: str) -> str:
    return f"{BUS}/{address}/config: {name} control"


def _extended(target: Target, address: str, wanted: int) -> int | Absent | Unread:
    """The control register, two bytes at offset 6, of an extended capability."""
    folder = f"{BUS}/{address}"
    if sleeping := asleep(target, folder):
        return sleeping
    try:
        handle = os.open(target.path(f"{folder}/config"), os.O_RDONLY)
    except OSError as error:
        return refusal(f"{folder}/config", error)
    try:
        return _walk(handle, f"{folder}/config", wanted)
    except OSError as error:
        return refusal(f"{folder}/config", error)
    finally:
        os.close(handle)


def _walk(handle: int, path: str, wanted: int) -> int | Absent | Unread:
    """Capabilities are a chain of words from 0x100 on: id 16 bits, version 4, offset of the next 12."""
    offset = 0x100
    for _ in range(_MOST_CAPABILITIES):
        word = os.pread(handle, 8, offset)
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
    if len(os.pread(handle, 256, 0)) <= 64:
        return Unread(f"{path}: only root may read more than its first 64 bytes; run gpudoctor with sudo")
    return Unread(f"{path}: this machine gives no access to extended configuration space")
