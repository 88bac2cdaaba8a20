"""How fast a sound GPU is: the limit of its own clock, multiprocessors, memory and links, times the share reached.

Nothing is expected of a slice of a GPU (MIG, vGPU), of a GPU that shares the machine's memory, nor of a link whose
slot cannot be seen (virtual machines): their limits are not those that they tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from gpudoctor.knowledge._filling import number, text, true
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.archs import capability
from gpudoctor.model.fact import Known, Row, listed
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.measurement import Expected, Meanwhile
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

_AT_POWER_LIMIT = 0.9
"""Share of its power limit from which a GPU is taken to be held by it."""
_TO_HOST = ("copy.to", "copy.from")
_BUSY = 50
"""Percent of utilization from which NVML's word on the clock is one of work, not of rest."""
_TILE, _TILE_TENSOR = 128 * 128, 256 * 128
"""Values of a result that one multiprocessor works on at a time, in the larger kernels of cuBLAS."""
_ROUNDS = 4
"""Tiles for each multiprocessor from which the last, partly empty round weighs little."""
_SLICE = pattern(r"\bGRID\b|\bMIG\b|-\d{1,3}[ABCQ]$")
"""Names of slices, as CUDA tells them where NVML does not."""


@frozen
class Device:
    """What decides the limits of one GPU, as CUDA, NVML and the bus tell; None where nobody does."""

    index: int
    name: str = ""
    uuid: str = ""
    address: str = ""
    capability: str = ""
    sms: float | None = None
    clock_mhz: float | None = None
    """Highest SM clock, the lower one of CUDA's and NVML's: NVML's of a GeForce is one that it never works at."""
    memory_clock_mhz: float | None = None
    memory_bus_bits: float | None = None
    generation: float | None = None
    """Highest PCIe generation of GPU and slot together."""
    lanes: float | None = None
    """Most PCIe lanes of GPU, slot and what lies above it."""
    links: float | None = None
    """GB/s of its NVLinks together, one way, where all lead to switches: each GPU reaches each other one so."""
    whole: bool = True
    """Whether it is a GPU of its own, with memory of its own."""


def expected(kernel: str, device: Device, seen: Meanwhile | None = None, side: float | None = None) -> Expected | None:
    """What a sound GPU like this one does; None where the tables and its own facts do not say.

    A GPU held by its power limit, which is how large products and small cards work, is held to the clock it ran at.
    Nothing is expected of products whose `side` is too small to keep all multiprocessors at work.
    """
    share = _share(kernel, device.capability, device.name)
    told = _limit(kernel, device, seen) if share and device.whole and not _small(kernel, device, side) else None
    if share is None or told is None or told[0] <= 0:
        return None
    limit, words = told
    fraction = float(share["share"])
    return Expected(
        value=limit * fraction, how="table", limit=limit, fraction=fraction, words=words, source=str(share["source"])
    )


@cache
def _share(kernel: str, cc: str, name: str) -> TableRow | None:
    for row in table("rates")["reached"]:
        of_it = "cc" not in row or cc in row["cc"].split()
        if of_it and kernel in row["kernels"].split() and _named(row, name):
            return row  # type: ignore[no-any-return]
    return None


def _named(row: TableRow, name: str) -> bool:
    return re.search(row.get("name", ""), name) is not None


def side(details: object) -> float | None:
    """Rows of a product's factors, as its kernel tells."""
    told = details.get("side") if isinstance(details, Mapping) else None
    return float(told) if isinstance(told, (int, float)) else None


def _small(kernel: str, device: Device, side: float | None) -> bool:
    """Whether the last round of tiles, in which most multiprocessors rest, is a large part of the product."""
    if side is None or not device.sms:
        return False
    tile = _TILE if kernel in ("matmul.fp32", "matmul.fp64") else _TILE_TENSOR
    return side * side / tile < _ROUNDS * device.sms


def _limit(kernel: str, device: Device, seen: Meanwhile | None) -> tuple[float, str] | None:
    """In the kernel's unit, and in words what makes it."""
    family, _, what = kernel.partition(".")
    if family == "matmul":
        return _compute(what, device, seen)
    if kernel == "copy.device":
        return _memory(device)
    if kernel == "peer.copy" and device.links:
        return device.links, f"NVLinks of {device.links:.0f} GB/s one way, to switches"
    return _link(device) if kernel in _TO_HOST else None


def _compute(product: str, device: Device, seen: Meanwhile | None) -> tuple[float, str] | None:
    """TFLOP/s. Without NVML's word on the clock at work nothing is said: a small card may be at its power limit."""
    each = operations(product, device)
    if each is None or not device.sms or not device.clock_mhz or seen is None or seen.sm_clock_mhz is None:
        return None
    if seen.utilization is not None and seen.utilization < _BUSY:
        return None
    clock, why = device.clock_mhz, ""
    if _held_by_power(seen) and 0 < seen.sm_clock_mhz < clock:
        clock, why = seen.sm_clock_mhz, ", the clock that its power limit left it"
    words = f"{device.sms:.0f} multiprocessors × {each} {product} operations × {clock:.0f} MHz{why}"
    return device.sms * each * clock / 1e6, words


def _held_by_power(seen: Meanwhile) -> bool:
    """Whether its own power limit, and nothing else, holds the clock, or may hold it, where NVML tells neither."""
    if not seen.reasons and not (seen.power_w and seen.power_limit_w):
        return True
    if any(reason.startswith("hw_") or "thermal" in reason for reason in seen.reasons):
        return False
    near = bool(seen.power_w and seen.power_limit_w and seen.power_w >= _AT_POWER_LIMIT * seen.power_limit_w)
    return near or "sw_power_cap" in seen.reasons


def operations(product: str, device: Device) -> int | None:
    """Per clock and multiprocessor, dense."""
    for row in table("rates")["product"]:
        if row["cc"] == device.capability and _named(row, device.name):
            return int(row[product]) if product in row else None
    return None


def _memory(device: Device) -> tuple[float, str] | None:
    """GB/s; both edges of the memory's clock carry data."""
    if not device.memory_clock_mhz or not device.memory_bus_bits:
        return None
    limit = device.memory_clock_mhz * 2 * device.memory_bus_bits / 8 / 1e3
    return limit, f"{device.memory_bus_bits:.0f} bit × 2 × {device.memory_clock_mhz:.0f} MHz of memory clock"


def _link(device: Device) -> tuple[float, str] | None:
    """GB/s, one way."""
    if not device.generation or not device.lanes:
        return None
    for row in table("rates")["lane"]:
        if row["generation"] == device.generation:
            return row["rate"] * device.lanes, f"PCIe {device.generation:.0f} x{device.lanes:.0f}"
    return None


def devices(snapshot: Snapshot) -> Mapping[int, Device]:
    """The GPUs of a snapshot by CUDA's numbers."""
    rows = snapshot.rows("cuda_device")
    by_uuid = {text(row, "uuid"): row for row in _rows(snapshot, "gpu")}
    by_address = {text(row, "address"): row for row in _rows(snapshot, "pci")}
    hidden = any(isinstance(snapshot.get(f"host.{what}"), Known) for what in ("virtual_machine", "wsl"))
    links = _links(snapshot)
    found: dict[int, Device] = {}
    for at, row in enumerate(listed(rows)):
        gpu = by_uuid.get(text(row, "uuid"), {})
        slot = None if hidden else by_address.get(text(row, "address") or text(gpu, "address"), {})
        index = number(row, "index")
        device = _device(at if index is None else int(index), row, gpu, slot)
        found[device.index] = replace(device, links=links.get(number(gpu, "index")))
    return found


def _device(index: int, cuda: Row, gpu: Row, slot: Row | None) -> Device:
    generation, lanes = number(gpu, "link_generation_max"), number(gpu, "link_width_max")
    if slot is not None:
        above = (number(slot, name) for name in ("link_width_max", "slot_width_max", "uplink_width_max"))
        lanes = min(filter(None, (lanes, *above)), default=None)
        generation = min(filter(None, (generation, *_generations(slot))), default=None)
    uuid = text(cuda, "uuid")
    part = uuid.startswith("MIG") or true(gpu, "mig") or true(gpu, "virtual") or sliced(text(cuda, "name"))
    return Device(
        index=index,
        name=text(cuda, "name"),
        uuid=uuid,
        address=text(cuda, "address") or text(gpu, "address"),
        capability=_capability(cuda, gpu),
        sms=number(cuda, "sms"),
        clock_mhz=min((one for one in (number(cuda, "clock_mhz"), number(gpu, "clock_max_mhz")) if one), default=None),
        memory_clock_mhz=number(cuda, "memory_clock_mhz"),
        memory_bus_bits=number(cuda, "memory_bus_bits"),
        generation=generation if slot is not None else None,
        lanes=lanes if slot is not None else None,
        whole=not part and not true(cuda, "integrated"),
    )


def sliced(name: str) -> bool:
    """Whether the name is one of a part of a GPU (MIG, vGPU)."""
    return _SLICE.search(name) is not None


def _links(snapshot: Snapshot) -> Mapping[float | None, float]:
    """GB/s one way of the NVLinks that are up, by NVML's number of the GPU; nothing where some lead past switches."""
    each = {row["version"]: float(row["rate"]) for row in table("rates")["nvlink"]}
    rows = [row for row in _rows(snapshot, "nvlink") if true(row, "active")]
    if any(text(row, "remote") != "switch" for row in rows):
        return {}
    found: dict[float | None, float] = {}
    for row in rows:
        found[number(row, "gpu")] = found.get(number(row, "gpu"), 0.0) + each.get(text(row, "version"), 0.0)
    return found


def _generations(slot: Row) -> Iterator[float]:
    """Those of the transfer rates that the slot, and what lies above it, can have."""
    for name in ("slot_speed_max", "uplink_speed_max"):
        speed = number(slot, name)
        yield from (float(row["generation"]) for row in table("rates")["lane"] if row["transfers"] == speed)


def _capability(*rows: Row) -> str:
    for row in rows:
        try:
            return "{}.{}".format(*capability(text(row, "compute_capability")))
        except CannotJudge:
            continue
    return ""


def _rows(snapshot: Snapshot, group: str) -> tuple[Row, ...]:
    return listed(snapshot.rows(group))
