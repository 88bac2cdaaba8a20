"""Which GPUs there are to run kernels on, by CUDA's numbers, and who uses them."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Known, Row, listed
from gpudoctor.model.measurement import Device
from gpudoctor.model.snapshot import Snapshot

CPU = "cpu"


def of(snapshot: Snapshot, wanted: str = "") -> tuple[Device, ...]:
    """The GPUs by CUDA's numbers, with who uses them; the CPU where that is `wanted`."""
    if wanted == CPU:
        return (Device(0, "CPU"),)
    holders = _holders(snapshot)
    found = []
    for at, row in enumerate(rows(snapshot, "cuda_device")):
        index = int(value(row, "index") or at)
        uuid = value(row, "uuid")
        name = value(row, "name").removeprefix("NVIDIA ")
        mode = value(row, "compute_mode")
        alone = f"jobs that must be alone on it (compute mode {mode})" if mode.startswith("Exclusive") else ""
        found.append(Device(index, name, "" if wanted else holders.get(uuid, alone), uuid))
    if not wanted:
        return tuple(found)
    chosen = tuple(one for one in found if wanted in (f"cuda:{one.index}", str(one.index)))
    if not chosen:
        there = ", ".join(f"cuda:{one.index}" for one in found) or "no GPU that CUDA lists"
        raise UsageError(f"--device {wanted}: there is none; there are: {there}, and cpu")
    return chosen


def _holders(snapshot: Snapshot) -> dict[str, str]:
    """Of each GPU, and of each MIG device on it, by UUID the first program that computes there."""
    uuids = [(value(row, "index"), value(row, "uuid")) for row in rows(snapshot, "gpu")]
    uuids += [(value(row, "gpu"), value(row, "uuid")) for row in rows(snapshot, "mig")]
    found: dict[str, str] = {}
    for row in rows(snapshot, "gpu_process"):
        if value(row, "kind") == "graphics":
            continue
        holder = f"pid {value(row, 'pid')}, {value(row, 'name').rpartition('/')[2]}".rstrip(", ")
        for index, uuid in uuids:
            if index == value(row, "gpu"):
                found.setdefault(uuid, holder)
    return found


def rows(snapshot: Snapshot, group: str) -> Sequence[Row]:
    """The rows of a group; none where it could not be read."""
    return listed(snapshot.rows(group))


def value(row: Row, column: str) -> str:
    """A column as text, empty where it is not known."""
    state = row.get(column)
    return str(state.value) if isinstance(state, Known) else ""
