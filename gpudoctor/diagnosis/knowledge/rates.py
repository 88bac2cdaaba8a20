"""How fast a sound GPU is: the limit of its own clock, multiprocessors, memory and links, times the share reached.

Nothing is expected of a slice of a GPU (MIG, vGPU), of a GPU that shares the machine's memory, nor of a link whose
slot cannot be seen (virtual machines): their limits are not those that they tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from gpudoctor.core.fact import Fact, Row, known_facts, listed, text_of, value_of
from gpudoctor.core.frozen import frozen, replace
from gpudoctor.core.measurement import Expected, Meanwhile
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import NOTHING, CannotJudge
from gpudoctor.diagnosis.knowledge._tables import TableRow, lookup, number, table, text
from gpudoctor.diagnosis.knowledge.archs import capability
from gpudoctor.diagnosis.knowledge.gpus import plain_name

_POWER_LIMIT_SHARE = 0.9
"""Share of its power limit from which a GPU is taken to be held by it."""
_TO_HOST = ("copy.to", "copy.from")
_BUSY_PERCENT = 50
"""Percent of utilization from which NVML's word on the clock is one of work, not of rest."""
_TILE, _TILE_TENSOR = 128 * 128, 256 * 128
"""Values of a result that one multiprocessor works on at a time, in the larger kernels of cuBLAS."""
_ROUNDS = 4
"""Tiles for each multiprocessor from which the last, partly empty round weighs little."""
_SLICE = pattern(r"\bGRID\b|\bMIG\b|-\d{1,3}[ABCQ]$")
"""Names of slices, as CUDA tells them where NVML does not."""


@frozen
class Device:
    """The limits of one GPU as CUDA, NVML and the bus report them; None where unknown."""

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


def identity_columns(device: Device | None, source: str) -> Mapping[str, Fact]:
    """The columns ``uuid`` and ``address`` of that GPU, as facts with that source, as far as known; empty for None."""
    texts = {name: getattr(device, name, "") for name in ("uuid", "address")}
    return known_facts(source, **{name: value for name, value in texts.items() if value})


def expected(kernel: str, device: Device, seen: Meanwhile | None = None, side: float | None = None) -> Expected | None:
    """The value expected of a sound GPU in the kernel's unit; None where the tables or its facts do not tell.

    A GPU at its power limit, by what NVML has `seen` meanwhile, is held to the clock it ran at. None for a part of a
    GPU, and for matrix products whose `side` (rows) is too small to fill all multiprocessors.
    """
    share = _share_row(kernel, device.capability, device.name)
    bound = _limit(kernel, device, seen) if share and device.whole and not _is_too_small(kernel, device, side) else None
    if share is None or bound is None or bound[0] <= 0:
        return None
    limit, words = bound
    fraction = float(share["share"])
    return Expected(
        value=limit * fraction, how="table", limit=limit, fraction=fraction, words=words, source=str(share["source"])
    )


@cache
def _share_row(kernel: str, cc: str, name: str) -> TableRow | None:
    """The row with the share of its limit that this kernel reaches on a GPU of that compute capability and name.

    None where there is no such row; cached.
    """
    for row in table("rates")["reached"]:
        of_it = "cc" not in row or cc in row["cc"].split()
        if of_it and kernel in row["kernels"].split() and _name_matches(row, name):
            return row  # type: ignore[no-any-return]
    return None


def _name_matches(row: TableRow, name: str) -> bool:
    """Whether the row's name pattern, if any, matches the GPU's name."""
    return re.search(row.get("name", ""), name) is not None


def product_side(details: object) -> float | None:
    """How many rows the multiplied matrices have, from a run's details (``side``); None where not given."""
    rows = details.get("side") if isinstance(details, Mapping) else None
    return float(rows) if isinstance(rows, (int, float)) else None


def _is_too_small(kernel: str, device: Device, side: float | None) -> bool:
    """Whether a matrix product of that side has too few tiles for the GPU's multiprocessors; False if unknown."""
    if side is None or not device.sms:
        return False
    tile = _TILE if kernel in ("matmul.fp32", "matmul.fp64") else _TILE_TENSOR
    return side * side / tile < _ROUNDS * device.sms


def _limit(kernel: str, device: Device, seen: Meanwhile | None) -> tuple[float, str] | None:
    """(the kernel's limit in its unit, words on how it is computed); None for kernels without one, or where unknown."""
    family, _, what = kernel.partition(".")
    if family == "matmul":
        return _compute_limit(what, device, seen)
    if kernel == "copy.device":
        return _memory_limit(device)
    if kernel == "peer.copy" and device.links:
        return device.links, f"NVLinks of {device.links:.0f} GB/s one way, to switches"
    return _pcie_limit(device) if kernel in _TO_HOST else None


def _compute_limit(product: str, device: Device, seen: Meanwhile | None) -> tuple[float, str] | None:
    """(TFLOP/s or TOP/s that multiprocessors and clock allow, words on it); None where unknown, as without `seen`.

    The clock is the GPU's highest or, where its power limit held it down, the one seen. None also if it was not busy.
    """
    each = operations(product, device)
    if each is None or not device.sms or not device.clock_mhz or seen is None or seen.sm_clock_mhz is None:
        return None
    if seen.utilization is not None and seen.utilization < _BUSY_PERCENT:
        return None
    clock, why = device.clock_mhz, ""
    if _held_by_power(seen) and 0 < seen.sm_clock_mhz < clock:
        clock, why = seen.sm_clock_mhz, ", the clock that its power limit left it"
    words = f"{device.sms:.0f} multiprocessors × {each} {product} operations × {clock:.0f} MHz{why}"
    return device.sms * each * clock / 1e6, words


def _held_by_power(seen: Meanwhile) -> bool:
    """Whether the power limit alone reduces the clock; True also where NVML reports neither reasons nor power."""
    if not seen.reasons and not (seen.power_w and seen.power_limit_w):
        return True
    if any(reason.startswith("hw_") or "thermal" in reason for reason in seen.reasons):
        return False
    near = bool(seen.power_w and seen.power_limit_w and seen.power_w >= _POWER_LIMIT_SHARE * seen.power_limit_w)
    return near or "sw_power_cap" in seen.reasons


def operations(product: str, device: Device) -> int | None:
    """Dense operations per clock and multiprocessor for that data type (``fp32``); None where the table lacks it."""
    for row in table("rates")["product"]:
        if row["cc"] == device.capability and _name_matches(row, device.name):
            return int(row[product]) if product in row else None
    return None


def _memory_limit(device: Device) -> tuple[float, str] | None:
    """(memory bandwidth in GB/s, words on it), clocks counted twice (DDR); None if clock or bus width is unknown."""
    if not device.memory_clock_mhz or not device.memory_bus_bits:
        return None
    limit = device.memory_clock_mhz * 2 * device.memory_bus_bits / 8 / 1e3
    return limit, f"{device.memory_bus_bits:.0f} bit × 2 × {device.memory_clock_mhz:.0f} MHz of memory clock"


def _pcie_limit(device: Device) -> tuple[float, str] | None:
    """(GB/s one way of PCIe generation and lanes, words on it); None where one is unknown."""
    if not device.generation or not device.lanes:
        return None
    for row in table("rates")["lane"]:
        if row["generation"] == device.generation:
            return row["rate"] * device.lanes, f"PCIe {device.generation:.0f} x{device.lanes:.0f}"
    return None


def devices_by_index(snapshot: Snapshot) -> Mapping[int, Device]:
    """The GPUs that CUDA lists (``cuda_device``) by its index, with what NVML and the PCI bus know of them."""
    rows = snapshot.rows("cuda_device")
    by_uuid = {text_of(row.get("uuid")): row for row in listed(snapshot.rows("gpu"))}
    by_address = {text_of(row.get("address")): row for row in listed(snapshot.rows("pci"))}
    hidden = any(snapshot.known(f"host.{what}") for what in ("virtual_machine", "wsl"))
    links = _nvlink_rates(snapshot)
    found: dict[int, Device] = {}
    for at, row in enumerate(listed(rows)):
        gpu = by_uuid.get(text_of(row.get("uuid")), {})
        slot = None if hidden else by_address.get(text_of(row.get("address")) or text_of(gpu.get("address")), {})
        index = number(row, "index")
        device = _device_from_rows(at if index is None else int(index), row, gpu, slot)
        found[device.index] = replace(device, links=links.get(number(gpu, "index")))
    return found


def _device_from_rows(index: int, cuda: Row, gpu: Row, slot: Row | None) -> Device:
    """The GPU from its rows of CUDA, NVML and the bus; `links` stays None.

    Without `slot` (the bus is hidden: virtual machine, WSL) lanes and PCIe generation are None.
    """
    generation, lanes = number(gpu, "link_generation_max"), number(gpu, "link_width_max")
    if slot is not None:
        above = (number(slot, name) for name in ("link_width_max", "slot_width_max", "uplink_width_max"))
        lanes = min(filter(None, (lanes, *above)), default=None)
        generation = min(filter(None, (generation, *_slot_generations(slot))), default=None)
    uuid = text_of(cuda.get("uuid"))
    part = (
        uuid.startswith("MIG")
        or value_of(gpu.get("mig")) is True
        or value_of(gpu.get("virtual")) is True
        or is_slice_name(text_of(cuda.get("name")))
    )
    return Device(
        index=index,
        name=text_of(cuda.get("name")),
        uuid=uuid,
        address=text_of(cuda.get("address")) or text_of(gpu.get("address")),
        capability=_capability(cuda, gpu),
        sms=number(cuda, "sms"),
        clock_mhz=min(
            (clock for clock in (number(cuda, "clock_mhz"), number(gpu, "clock_max_mhz")) if clock), default=None
        ),
        memory_clock_mhz=number(cuda, "memory_clock_mhz"),
        memory_bus_bits=number(cuda, "memory_bus_bits"),
        generation=generation if slot is not None else None,
        lanes=lanes if slot is not None else None,
        whole=not part and value_of(cuda.get("integrated")) is not True,
    )


def is_slice_name(name: str) -> bool:
    """Whether the GPU's name is, as CUDA gives it, that of a part of a GPU (MIG, vGPU)."""
    return _SLICE.search(name) is not None


def _nvlink_rates(snapshot: Snapshot) -> Mapping[float | None, float]:
    """By NVML's GPU index, GB/s one way of its active NVLinks together; empty where some do not lead to switches."""
    each = {row["version"]: float(row["rate"]) for row in table("rates")["nvlink"]}
    rows = [row for row in listed(snapshot.rows("nvlink")) if value_of(row.get("active")) is True]
    if any(text_of(row.get("remote")) != "switch" for row in rows):
        return {}
    found: dict[float | None, float] = {}
    for row in rows:
        found[number(row, "gpu")] = found.get(number(row, "gpu"), 0.0) + each.get(text_of(row.get("version")), 0.0)
    return found


def _slot_generations(slot: Row) -> Iterator[float]:
    """PCIe generations that the slot, and what lies above it, support."""
    for name in ("slot_speed_max", "uplink_speed_max"):
        speed = number(slot, name)
        yield from (float(row["generation"]) for row in table("rates")["lane"] if row["transfers"] == speed)


def _capability(*rows: Row) -> str:
    """The compute capability in the first row that has one, as ``8.6``; empty where none has."""
    for row in rows:
        try:
            return "{}.{}".format(*capability(text_of(row.get("compute_capability"))))
        except CannotJudge:
            continue
    return ""


# ---- What links reach, as pages ask for it ----

_TYPICAL_TO_LEAST = 0.8
"""Share of a published measurement that counts as the least, where nobody publishes a threshold."""


@lookup
def collective_rate(name: object, gpus: object, collective: object) -> object:
    """GB/s of bus bandwidth that a collective (``all_reduce``) of so many GPUs of one machine reaches at least; absent
    where the table has no row.
    """
    bare = plain_name(text(name, "GPU name"))[0]
    for row in table("nccl")["busbw"]:
        if "gpu" in row and (row["gpus"], row["collective"]) == (gpus, collective) and re.fullmatch(row["gpu"], bare):
            return float(row.get("least") or _TYPICAL_TO_LEAST * row["typical"])
    return NOTHING


@lookup
def port_rate(gbps: object) -> object:
    """Gbit/s that an RDMA port of that rate reaches at least by ib_write_bw; absent if the table has no row for it."""
    return next((float(row["least"]) for row in table("nccl")["port"] if row["rate"] == gbps), NOTHING)
