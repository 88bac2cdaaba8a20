"""The tables of ``rules/tables``, with typed look-ups; and what follows from a snapshot's facts by them.

Every look-up lets an absent value through and raises `CannotJudge` where its table has no row or the value is not
what it should be: the rule that asked is then unjudged, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

from gpudoctor.knowledge import (
    archs,
    builds,
    drivers,
    error_codes,
    gpu_names,
    gpus,
    requirements,
    symbols,
    toolchain,
    visible,
)
from gpudoctor.knowledge._filling import Facts, Groups, is_open, known
from gpudoctor.knowledge._tables import lookup, table, text
from gpudoctor.knowledge.drivers import driver_cuda
from gpudoctor.knowledge.implied_load import imply_load
from gpudoctor.knowledge.implied_rates import imply_rates
from gpudoctor.knowledge.implied_results import imply_results
from gpudoctor.knowledge.implied_torch import imply_torch
from gpudoctor.knowledge.nvlinks import imply_links
from gpudoctor.knowledge.promise import newer_driver
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import replace
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import NOTHING, CannotJudge

# Variables that steer NCCL: which there are, which are spelt wrong, and what follows from a value.

_FARTHEST = 2
"""Letters by which a misspelt name may differ: NCCL_SOCKET_IFACE is NCCL_SOCKET_IFNAME."""

_SHORT, _SHORTEST = 8, 5
"""Letters after the family's name: shorter ones may differ by one letter only, the shortest by none."""


@lookup
def nccl_risk(name: object, value: object) -> object:
    """What follows where the variable has this value, for values with a risk: ``machines exchange data over TCP``."""
    wanted, written = text(name, "variable"), str(value).strip()
    for row in table("nccl")["risk"]:
        if row["name"] == wanted and re.fullmatch(row["match"], written, re.IGNORECASE):
            return row["says"]
    return NOTHING


@lookup
def nccl_renamed(name: object) -> object:
    """The present name of a variable that torch renamed: TORCH_NCCL_BLOCKING_WAIT of NCCL_BLOCKING_WAIT."""
    wanted = text(name, "variable")
    return next((row["now"] for row in table("nccl")["renamed"] if row["name"] == wanted), NOTHING)


@lookup
def nccl_like(name: object) -> object:
    """The variable that a name nobody reads is likely to stand for: NCCL_IB_DISABLE of NCCL_DISABLE_IB."""
    return _like(text(name, "variable")) or NOTHING


@lru_cache(maxsize=256)
def _like(name: str) -> str:
    there = _names()
    if name in there or not name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_")):
        return ""
    words = sorted(name.split("_"))
    turned = next((one for one in there if sorted(one.split("_")) == words), "")
    length = len(name.partition("_")[2])
    if turned or length < _SHORTEST:
        return turned
    farthest = _FARTHEST if length >= _SHORT else 1
    near = [(distance, one) for one in there if (distance := _distance(name, one)) <= farthest]
    return min(near)[1] if near else ""


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    tables = table("nccl")
    rows = (row["name"] for group in ("variable", "renamed") for row in tables[group])
    return tuple(dict.fromkeys([*tables["known"], *tables["others"], *rows]))


def _distance(one: str, other: str) -> int:
    """Letters to add, to drop or to change, counted up to one more than is of interest."""
    if abs(len(one) - len(other)) > _FARTHEST:
        return _FARTHEST + 1
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        left = [row]
        for at, wanted in enumerate(other, 1):
            left.append(min(above[at] + 1, left[-1] + 1, above[at - 1] + (letter != wanted)))
        if min(left) > _FARTHEST:
            return _FARTHEST + 1
        above = left
    return above[-1]


_CALLABLE = (
    drivers.driver_floor,
    drivers.driver_serves,
    drivers.driver_cuda,
    drivers.driver_jits,
    drivers.driver_branch,
    drivers.driver_for,
    gpus.gpu_known,
    gpus.gpu_capability,
    gpus.gpu_generation,
    gpus.gpu_floor,
    gpus.gpu_ceiling_of,
    gpus.gpu_floor_of,
    gpus.gpu_ceiling,
    gpus.gpu_spec,
    gpus.open_module,
    gpus.open_module_of,
    gpus.is_datacenter,
    gpus.has_nvlink,
    gpus.needs_fabric_manager,
    archs.runs_on,
    archs.arch_too_new,
    archs.arch_too_old,
    archs.needs_jit,
    toolchain.nvcc_knows,
    toolchain.cuda_serves,
    toolchain.nvcc_dropped,
    toolchain.nvcc_for,
    toolchain.gcc_max,
    toolchain.clang_max,
    builds.release_serves,
    builds.torch_for,
    builds.torch_default,
    builds.torch_archs,
    builds.torch_release,
    builds.companion_for,
    builds.bitsandbytes_has,
    symbols.symbol_says,
    symbols.symbol_library,
    symbols.symbol_abi,
    visible.visible_none,
    visible.visible_by_number,
    visible.visible_by_uuid,
    visible.visible_asked,
    requirements.requirement_met,
    requirements.requirement_cuda,
    error_codes.xid_name,
    error_codes.xid_class,
    error_codes.xid_action,
    error_codes.xid_fatal,
    error_codes.sxid_name,
    error_codes.sxid_fatal,
    error_codes.nvml_name,
    error_codes.nvml_says,
    error_codes.cuda_error_name,
    error_codes.cuda_error_says,
    nccl_risk,
    nccl_renamed,
    nccl_like,
)

LOOKUPS: Mapping[str, Callable[..., object]] = {function.__name__: function for function in _CALLABLE}
"""What conditions on rule pages may call, by name; each function's docstring says what it answers."""

__all__ = ["LOOKUPS", "complete"]


# ---- Facts that follow from others by the tables ----
# Filled in where nobody looked, never over what somebody knows. Each says in its source which table it came from, and
# on what it rests.


def complete(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the facts that its own facts and the tables imply."""
    facts = dict(snapshot.facts)
    groups = dict(snapshot.groups)
    working = replace(snapshot, facts=facts, groups=groups)
    for imply in _IMPLIED:
        with suppress(CannotJudge):  # nothing follows from a version that is none
            imply(working, facts, groups)
    return working


def _gpus(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    rows = groups.get("gpu")
    if not isinstance(rows, tuple):
        return
    groups["gpu"] = _with(rows, "name", "compute_capability", _capability)
    if is_open(snapshot, "gpu.count"):
        facts["gpu.count"] = Known(len(rows), "number of GPUs listed")


def _no_gpus(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Where the bus is listed and shows no NVIDIA GPU, there is none to ask, whatever kept NVML from saying so."""
    count, devices, rows = snapshot.get("pci.nvidia_count"), snapshot.get("pci.devices"), snapshot.rows("gpu")
    if not isinstance(count, Known) or count.value != 0 or not isinstance(rows, Unread):
        return
    if isinstance(devices, Known) and devices.value != 0:
        groups["gpu"] = Absent(f"no NVIDIA GPU in {count.source}; {rows.why}")
        if isinstance(snapshot.get("gpu.count"), Unread):
            facts["gpu.count"] = Known(0, count.source)


def _capability(name: str) -> Known:
    return Known(gpus.gpu_capability(name), gpu_names.candidates(name)[0].source)


def _devices(_: Snapshot, __: Facts, groups: Groups) -> None:
    rows = groups.get("pci")
    if isinstance(rows, tuple):
        groups["pci"] = _with(rows, "device_id", "name", _device_name)


def _device_name(device_id: str) -> Known:
    name = gpu_names.device_name(device_id)
    if name is None:
        raise CannotJudge("PCI device", "not in the table")
    return Known(name, f"table gpus: PCI id {device_id}")


def _gpus_on_the_bus(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """The GPUs by name where the driver lists none, or none by name: what a machine needs can be told before that.

    Not in containers and WSL, where the bus is another machine's. `gpu.count` stays what the driver says.
    """
    rows, given = groups.get("pci"), groups.get("gpu")
    inside = any(isinstance(snapshot.get(name), Known) for name in ("host.container", "host.wsl"))
    if inside or not isinstance(rows, tuple):
        return
    if given and isinstance(given, tuple):
        names = {_value(row, "address"): row["name"] for row in rows if isinstance(row.get("name"), Known)}
        unnamed = [isinstance(row.get("name"), Unread) and _value(row, "address") in names for row in given]
        named = tuple(
            {**row, "name": names[_value(row, "address")]} if bare else row
            for row, bare in zip(given, unnamed, strict=True)
        )
        groups["gpu"] = _with(named, "name", "compute_capability", _capability)
        return
    found = tuple(
        {column: row[column] for column in ("name", "address") if column in row}
        for row in rows
        if isinstance(vendor := row.get("vendor"), Known) and vendor.value == "nvidia"
    )
    if any(isinstance(row.get("name"), Known) for row in found):
        groups["gpu"] = _with(found, "name", "compute_capability", _capability)


def _value(row: Row, column: str) -> object:
    state = row.get(column)
    return state.value if isinstance(state, Known) else None


def _with(rows: tuple[Row, ...], column: str, implied: str, derive: Callable[[str], Known]) -> tuple[Row, ...]:
    """The rows with `implied` derived from `column` where nobody knows it."""
    return tuple(_row_with(row, column, implied, derive) for row in rows)


def _row_with(row: Row, column: str, implied: str, derive: Callable[[str], Known]) -> Row:
    given = row.get(column)
    if isinstance(row.get(implied), (Known, Absent)) or not isinstance(given, Known):
        return row
    try:
        return {**row, implied: derive(str(given.value))}
    except CannotJudge:
        return row


def _driver(snapshot: Snapshot, facts: Facts, _: Groups) -> None:
    version = known(snapshot, "driver.version")
    if version and isinstance(snapshot.get("driver.cuda_version"), Unread):
        try:
            new = newer_driver(snapshot)
            source = f"table drivers: {'by rule, as of its newest branch' if new else f'branch of {version}'}"
            facts["driver.cuda_version"] = Known(driver_cuda(version), source)
        except CannotJudge:
            return


def _first_xid(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    rows = groups.get("xid")
    if not isinstance(rows, tuple) or not rows or not isinstance(snapshot.get("kernel_log.first_xid"), Unread):
        return
    codes = [code for row in rows if isinstance(code := row.get("code"), Known) and isinstance(code.value, int)]
    first = next((code for code in codes if error_codes.xid_class(code.value) != "consequence"), None)
    facts["kernel_log.first_xid"] = first or Absent("every Xid in the log follows from another one")


def _first_of_each_gpu(_: Snapshot, __: Facts, groups: Groups) -> None:
    """Marks, of the Xids of each GPU, the first that is its own fault: what comes after may follow from it."""
    rows = groups.get("xid")
    if not isinstance(rows, tuple):
        return
    seen: set[object] = set()
    marked: list[Row] = []
    for row in rows:
        where, code = row.get("address"), row.get("code")
        gpu = where.value if isinstance(where, Known) else None
        first = _own_fault(row)
        if isinstance(first, Known) and isinstance(code, Known):
            first = Known(bool(first.value) and gpu not in seen, f"table xid: {code.value} ({code.source})")
            if first.value:
                seen.add(gpu)
        marked.append(row if isinstance(row.get("first"), (Known, Absent)) else {**row, "first": first})
    groups["xid"] = tuple(marked)


def _own_fault(row: Row) -> Fact:
    """Whether the Xid is the GPU's own fault. Those of NVLink 5 say by themselves that they are not fatal."""
    code = row.get("code")
    if not isinstance(code, Known):
        return Unread("its number is not known")
    if isinstance(fatal := row.get("fatal"), Known) and not fatal.value:
        return Known(False, fatal.source)
    try:
        return Known(error_codes.xid_fatal(code.value), code.source)
    except CannotJudge as unknown:
        return Unread(str(unknown))


def _manifest(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """What the images and the lines of a manifest would install."""
    if any(isinstance(groups.get(name), tuple) for name in ("service", "requirement")):
        from gpudoctor.knowledge.manifests import imply_images, imply_manifest  # a machine has neither

        imply_images(snapshot, facts, groups)
        imply_manifest(snapshot, facts, groups)


_IMPLIED = (
    _gpus,
    _no_gpus,
    _devices,
    _gpus_on_the_bus,
    _driver,
    _manifest,
    imply_torch,
    imply_links,
    imply_results,
    imply_rates,
    imply_load,
    _first_xid,
    _first_of_each_gpu,
)
"""In this order: what one implies, the next may build on."""
