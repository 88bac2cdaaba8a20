"""Facts that follow from others by the tables: filled in where nobody looked, never over what somebody knows.

Each says in its source which table it came from, and on what it rests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gpudoctor.knowledge import error_codes, gpu_names, gpus
from gpudoctor.knowledge._filling import Facts, Groups, is_open, known
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
from gpudoctor.model.values import CannotJudge


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
