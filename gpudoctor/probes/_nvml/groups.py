"""What NVML lists of each GPU: ECC errors by place, MIG devices, processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.model.catalog import column
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes._nvml import words
from gpudoctor.probes._nvml.told import Told, mapping
from gpudoctor.target import child

FACTS = (
    column("gpu_ecc.gpu", "int", "index of the GPU that counts the errors"),
    column("gpu_ecc.kind", "text", "corrected or uncorrected"),
    column("gpu_ecc.since", "text", "load (of the driver) or ever"),
    column("gpu_ecc.location", "text", "dram, sram, l1, l2, register or texture"),
    column("gpu_ecc.count", "int", "errors counted"),
    column("mig.gpu", "int", "index of the GPU that the MIG device is part of"),
    column("mig.profile", "text", "its profile, such as 3g.40gb"),
    column("mig.uuid", "text", "its UUID, MIG-..."),
    column("gpu_process.gpu", "int", "index of the GPU that the process uses"),
    column("gpu_process.pid", "int", "its process id, as the one who asked sees it"),
    column("gpu_process.name", "text", "its name"),
    column("gpu_process.memory_mib", "int", "GPU memory it holds", "MiB"),
    column("gpu_process.kind", "text", "compute, graphics, or mps for a client of MPS"),
)

_KINDS = ("corrected", "uncorrected")
_SINCE = ("load", "ever")
_LOCATIONS = {2: "dram", 7: "sram", 0: "l1", 1: "l2", 3: "register", 4: "texture"}
_LISTS = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}
_MOST_PROCESSES = 256
_SERVER = "nvidia-cuda-mps-server"


def rows(told: Told, count: int) -> Iterator[tuple[str, Rows]]:
    """The groups ``gpu_ecc``, ``mig`` and ``gpu_process``."""
    gpus = range(count)
    yield "gpu_ecc", _group([_ecc(told, gpu) for gpu in gpus], "no GPU here counts ECC errors by place")
    yield "mig", _group([_mig(told, gpu) for gpu in gpus], "no GPU here is divided into MIG devices")
    listed = [_processes(told, gpu) for gpu in gpus]
    yield "gpu_process", _group(listed, "") if any(isinstance(one, Unread) for one in listed) else _flat(listed)


def _flat(groups: Sequence[Sequence[Row] | Unread]) -> tuple[Row, ...]:
    return tuple(row for of_gpu in groups if not isinstance(of_gpu, Unread) for row in of_gpu)


def _group(groups: Sequence[Sequence[Row] | Unread], none: str) -> Rows:
    """All rows; where there is none, why."""
    found = _flat(groups)
    unread = next((of_gpu for of_gpu in groups if isinstance(of_gpu, Unread)), None)
    return found or unread or Absent(none)


def _ecc(told: Told, gpu: int) -> list[Row] | Unread:
    found: list[Row] = []
    unread: Unread | None = None
    for location, name in _LOCATIONS.items():
        for kind in range(2):
            for since in range(2):
                call = f"nvmlDeviceGetMemoryErrorCounter({kind},{since},{location})"
                count = told.fact(gpu, call, words.whole)
                if isinstance(count, Known):
                    row = {"kind": _KINDS[kind], "since": _SINCE[since], "location": name}
                    found.append(_row(told, gpu, row, count=count))
                elif isinstance(count, Unread):
                    unread = unread or count
    return found or unread or []


def _row(told: Told, gpu: int, texts: Mapping[str, str], **states: Fact) -> Row:
    known = {name: Known(value, told.source) for name, value in texts.items()}
    return {"gpu": Known(gpu, told.source), **known, **states}


def _mig(told: Told, gpu: int) -> list[Row] | Unread:
    devices = told.answered(gpu, "mig")
    if not isinstance(devices, list):
        mode = told.fact(gpu, "nvmlDeviceGetMigMode", words.part(0, words.yes))
        off = isinstance(mode, Absent) or (isinstance(mode, Known) and not mode.value)
        if off:
            return []
        why = "NVML does not say how many MIG devices the GPU may have" if told.done else told.ending
        return Unread(mode.why if isinstance(mode, Unread) else why)
    return [_device(told, gpu, mapping(device)) for device in devices]


def _device(told: Told, gpu: int, device: Mapping[str, Any]) -> Row:
    unknown = Unread("NVML does not tell it of this MIG device")
    uuid = device.get("nvmlDeviceGetUUID")
    try:
        profile = words.profile(device.get("nvmlDeviceGetName", ""), device.get("nvmlDeviceGetAttributes"))
    except words.ODD:
        profile = None
    return {
        "gpu": Known(gpu, told.source),
        "profile": Known(profile, told.source) if profile else unknown,
        "uuid": Known(words.text(uuid), told.source) if uuid else unknown,
    }


def _length(raw: object) -> int:
    """How many entries a list has; raises `TypeError` for what is no list."""
    if not isinstance(raw, list):
        raise TypeError(type(raw).__name__)
    return len(raw)


def _processes(told: Told, gpu: int) -> list[Row] | Unread:
    """One row for each process and list that it is in, but for children of our own; of a flood the first."""
    found: list[Row] = []
    unread: Unread | None = None
    for name, kind in _LISTS.items():
        listed = told.fact(gpu, f"nvmlDeviceGet{name}RunningProcesses", _length)
        if isinstance(listed, Unread):
            unread = unread or listed
        elif isinstance(listed, Known):
            entries = [one for one in told.answered(gpu, f"nvmlDeviceGet{name}RunningProcesses") if not _ours(one)]
            found += [_process(told, gpu, kind, mapping(entry)) for entry in entries[:_MOST_PROCESSES]]
    return found[:_MOST_PROCESSES] or unread or []


def _ours(entry: object) -> bool:
    """Whether it is a child that another probe of ours has on the GPU at this moment."""
    return mapping(entry).get("pid") in child.begun


def _process(told: Told, gpu: int, kind: str, entry: Mapping[str, Any]) -> Row:
    pid, memory = entry.get("pid"), entry.get("usedGpuMemory")
    name = told.answered(None, f"nvmlSystemGetProcessName({pid})")
    hidden = Unread("NVML does not tell it")
    return _row(
        told,
        gpu,
        {"kind": kind},
        pid=Known(pid, told.source) if isinstance(pid, int) else hidden,
        name=Known(words.text(name), told.source) if name else hidden,
        memory_mib=Known(memory >> 20, told.source) if isinstance(memory, int) else hidden,
    )


def columns(told: Told, gpu: int) -> dict[str, Fact]:
    """What follows for the GPU itself: where ECC errors are, MIG devices, processes, and whether MPS is in use."""
    return {"ecc_uncorrected_in": _uncorrected_in(told, gpu), **_in_use(told, gpu)}


def _uncorrected_in(told: Told, gpu: int) -> Fact:
    """The parts that counted uncorrectable errors since the driver loaded."""
    calls = {name: f"nvmlDeviceGetMemoryErrorCounter(1,0,{place})" for place, name in _LOCATIONS.items()}
    counts = {name: told.fact(gpu, call, words.whole) for name, call in calls.items()}
    known = {name: count.value for name, count in counts.items() if isinstance(count, Known)}
    if not known:
        return next((count for count in counts.values() if isinstance(count, Unread)), counts["dram"])
    return Known(tuple(name for name, count in known.items() if count), told.source)


def _in_use(told: Told, gpu: int) -> dict[str, Fact]:
    devices = _mig(told, gpu)
    mode = told.fact(gpu, "nvmlDeviceGetMigMode", words.part(0, words.yes))
    instances: Fact = devices if isinstance(devices, Unread) else Known(len(devices), told.source)
    listed = _processes(told, gpu)
    if isinstance(listed, Unread):
        return {"mig_instances": mode if isinstance(mode, Absent) else instances, "processes": listed, "mps": listed}
    calls = [f"nvmlDeviceGet{name}RunningProcesses" for name in _LISTS]
    lists = [(told.answered(gpu, call) or (), told.numbers.get((gpu, call))) for call in calls]
    lengths = [(number or len(entries)) - sum(map(_ours, entries)) for entries, number in lists]
    server = any(isinstance(name := row["name"], Known) and _SERVER in str(name.value) for row in listed)
    return {
        "mig_instances": mode if isinstance(mode, Absent) else instances,
        "processes": Known(sum(lengths), told.source),
        "mps": Known(server or bool(lengths[2]), told.source),
    }
