"""What the child that asks libcuda said of each device, as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._libcuda.codes import Entry, failure
from gpudoctor.probes._nvml import smi
from gpudoctor.target.protocol import printable


def _yes(raw: int) -> bool:
    return raw != 0


_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_ATTRIBUTES: Mapping[int, tuple[str, Callable[[int], Any]]] = {
    13: ("clock_mhz", lambda khz: khz // 1000),
    16: ("sms", int),
    18: ("integrated", _yes),
    20: ("compute_mode", lambda mode: _MODES.get(mode, str(mode))),
    32: ("ecc", _yes),
    36: ("memory_clock_mhz", lambda khz: khz // 1000),
    37: ("memory_bus_bits", int),
    38: ("l2_kib", lambda size: size >> 10),
    41: ("unified_addressing", _yes),
    83: ("managed_memory", _yes),
    88: ("pageable_memory_access", _yes),
    89: ("concurrent_managed_access", _yes),
    97: ("shared_memory_kib", lambda size: size >> 10),
    115: ("memory_pools", _yes),
    116: ("gpudirect_rdma", _yes),
    124: ("dma_buf", _yes),
    128: ("fabric_handles", _yes),
    132: ("multicast", _yes),
    133: ("mps", _yes),
}
"""Column and meaning of each number of CUdevice_attribute (cuda.h of CUDA 13.0); 75 and 76 go together."""

_CALLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "cuDeviceGetName": ("name", printable),
    "cuDeviceGetPCIBusId": ("address", lambda raw: printable(smi.address(raw))),
    "cuDeviceTotalMem": ("memory_mib", lambda size: size >> 20),
    **{f"cuDeviceGetAttribute({number})": meaning for number, meaning in _ATTRIBUTES.items()},
}
_CAPABILITY = ("cuDeviceGetAttribute(75)", "cuDeviceGetAttribute(76)")
_PEER = "cuDeviceCanAccessPeer("
_COLUMNS = ("uuid", "compute_capability", "peers", *(name for name, _ in _CALLS.values()))


MOST_DEVICES = 1024
"""Rows made at most, whatever number a damaged driver gives."""


def rows_of(count: Fact, entries: Sequence[Entry], why: str, source: str) -> Rows:
    """A row for each of `count` devices; `why` says how the child ended, empty where it came to its end."""
    if isinstance(count, (Absent, Unread)):
        return count
    if not isinstance(count.value, int) or count.value <= 0:
        return Absent("CUDA lists no device")
    devices: dict[int, dict[str, Entry]] = {}
    for entry in entries:
        if "call" in entry and isinstance(entry.get("gpu"), int):
            devices.setdefault(entry["gpu"], {})[str(entry["call"])] = entry
    listed = min(count.value, max(devices, default=-1) + 1 if not why else count.value, MOST_DEVICES)
    return tuple(_row(source, index, devices.get(index, {}), why) for index in range(listed))


def _row(source: str, index: int, said: Mapping[str, Entry], why: str) -> Row:
    """One device: each column known, unread with its own reason, or absent where this driver does not tell."""
    silent: Absent | Unread = Unread(why) if why else Absent("this driver does not tell it")
    lost = next((entry for call, entry in said.items() if call == "cuDeviceGet" and "code" in entry), None)
    row: dict[str, Fact] = {
        "index": Known(index, source),
        "error": Known(failure(lost), source) if lost else Absent("it answers") if said or not why else silent,
    }
    row.update(dict.fromkeys(_COLUMNS, Unread(failure(lost)) if lost else silent))
    for call, entry in said.items():
        column, meaning = _CALLS.get(call, ("", int))
        if column:
            row[column] = _meant(entry, meaning, source)
    major, minor = (said.get(call, {}) for call in _CAPABILITY)
    if "is" in major and "is" in minor:
        row["compute_capability"] = Known(f"{major['is']}.{minor['is']}", source)
    identity = said.get("cuDeviceGetUuid")
    if identity is not None:
        name = str(said.get("cuDeviceGetName", {}).get("is", ""))
        row["uuid"] = _meant(identity, lambda raw: _uuid(raw, name), source)
    row["peers"] = _peers(source, said, silent)
    return row


def _meant(entry: Entry, meaning: Callable[[Any], Any], source: str) -> Fact:
    if "is" not in entry:
        return Unread(failure(entry))
    try:
        return Known(meaning(entry["is"]), source)
    except (TypeError, ValueError):
        return Unread(f"the driver said {printable(entry['is'], 60)!r}")


def _peers(source: str, said: Mapping[str, Entry], silent: Absent | Unread) -> Fact:
    pairs = [(int(call[len(_PEER) : -1]), entry) for call, entry in said.items() if call.startswith(_PEER)]
    broken = next((entry for _, entry in pairs if "is" not in entry), None)
    if isinstance(silent, Unread) or broken:
        return Unread(failure(broken)) if broken else silent
    return Known(tuple(number for number, entry in pairs if entry["is"]), source)


def _uuid(raw: object, name: str) -> str:
    """``GPU-`` and the 16 bytes as NVML writes them; the driver's name of a MIG device holds the word."""
    digits = printable(raw)
    parts = (digits[0:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"{'MIG' if ' MIG ' in name else 'GPU'}-{'-'.join(parts)}"
