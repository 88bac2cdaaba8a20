"""``nvidia-smi -q``: labels nested by indentation, one section per GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import address, dotted, mib, truth, whole

EXACT = 9

_PARTS = (
    "gpu link info",
    "clocks throttle reasons",
    "clocks event reasons",
    "fb memory usage",
    "gpu power readings",
    "ecc errors",
    "remapped rows",
    "max clocks",
    "mig mode",
)
"""Headings of its sections (lower case): a part of the output is read as well, as of one GPU."""

_SECTION = Pattern(r"\s{0,4}GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*\\?$")
_SECTION_LINE = Pattern(r"(?m)^\s{0,4}GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d[ \t]*$")
_LABEL = Pattern(r"(\s*)(\S[^:]*?)\s*(?::\s?(.*))?$")
_HEAD = {
    "driver version": "driver.version",
    "kmd version": "driver.version",
    "cuda version": "driver.cuda_version",
    "cuda umd version": "driver.cuda_version",
}
_TEXT = {"product name": "name", "gpu uuid": "uuid", "compute mode": "compute_mode"}
_NUMBERS = {
    "gpu current temp": "temperature_c",
    "utilization/gpu": "utilization",
    "pcie generation/current": "link_generation",
    "pcie generation/max": "link_generation_max",
    "link width/current": "link_width",
    "link width/max": "link_width_max",
    "clocks/sm": "clock_mhz",
    "max clocks/sm": "clock_max_mhz",
    "power draw": "power_w",
    "average power draw": "power_w",
    "instantaneous power draw": "power_w",
    "enforced power limit": "power_limit_w",
    "current power limit": "power_limit_w",
    "power limit": "power_limit_w",
    "default power limit": "power_limit_default_w",
}
_UNCORRECTED = (
    "dram uncorrectable",
    "sram uncorrectable",
    "sram uncorrectable parity",
    "sram uncorrectable sec-ded",
    "double bit/total",
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Every label that a fact is for, by the path of labels above it."""
    gpus: list[dict[str, Fact]] = []
    if "NVSMI LOG" not in paste.text and "Attached GPUs" not in paste.text and not _SECTION_LINE.search(paste.text):
        if not any(heading.strip().lower() in _PARTS for heading in paste.bare):
            return
        gpus.append({})
    path: list[tuple[int, str]] = []
    for index, line in enumerate(paste.bare):
        if section := _SECTION.match(line):
            source = paste.use(index)
            gpus.append({"index": Known(len(gpus), source), "address": Known(address(section.group(1)), source)})
            path = []
            continue
        match = _LABEL.match(line[:300])
        if not match or not line.strip():
            continue
        indent, label, value = len(match.group(1)), match.group(2).strip().lower(), (match.group(3) or "").rstrip(" \\")
        path = [(depth, name) for depth, name in path if depth < indent]
        names = [name for _, name in path] + [label]
        path.append((indent, label))
        if not value:
            continue
        if not gpus and label in _HEAD and (version := dotted(value)):
            yield _HEAD[label], Known(version, paste.use(index))
            yield "nvml.state", Known("ok", paste.use(index))
        elif not gpus and label == "attached gpus" and value.strip().isdecimal():
            yield "gpu.count", Known(int(value), paste.use(index))
        elif gpus:
            _add(gpus[-1], names, value.strip(), index, paste)
    if any(gpus):
        yield "gpu", tuple(gpus)


def _add(row: dict[str, Fact], names: list[str], value: str, index: int, paste: Paste) -> None:
    """One labelled value into the GPU's row. Sections that repeat (average, host) keep their first value."""
    label, path = names[-1], "/".join(names)
    if not row and label not in _TEXT and not any(part in path for part in _PARTS):
        return  # a part of the output begins with a heading of its own
    pair = "/".join(names[-2:])
    if value in ("N/A", "Requested functionality has been deprecated"):
        return
    if label in _TEXT and len(names) < 3:
        row.setdefault(_TEXT[label], Known(value, paste.use(index)))
    elif column := _NUMBERS.get(pair) or _NUMBERS.get(label):
        number = whole(value)
        if number is not None:
            row.setdefault(column, Known(number, paste.use(index)))
    elif "fb memory usage" in path and label in ("total", "used"):
        row.setdefault("memory_mib" if label == "total" else "memory_used_mib", Known(mib(value), paste.use(index)))
    elif pair == "mig mode/current":
        row["mig"] = Known(value == "Enabled", paste.use(index))
    elif label == "virtualization mode":
        row["virtual"] = Known(value.upper() == "VGPU", paste.use(index))
    elif label == "pending" and "remapped rows" in path:
        row["remap_pending"] = Known(truth(value), paste.use(index))
    elif label == "remapping failure occurred":
        row["remap_failed"] = Known(truth(value), paste.use(index))
    elif "volatile" in path and (label in _UNCORRECTED or pair in _UNCORRECTED) and value.isdecimal():
        row["ecc_uncorrected"] = Known(_sum(row.get("ecc_uncorrected"), int(value)), paste.use(index))
    elif ("throttle reasons" in path or "event reasons" in path) and value in ("Active", "Not Active"):
        _reason(row, label, value == "Active", paste.use(index))


def _sum(so_far: Fact | None, more: int) -> int:
    return more + (so_far.value if isinstance(so_far, Known) and isinstance(so_far.value, int) else 0)


def _reason(row: dict[str, Fact], label: str, active: bool, source: str) -> None:
    so_far = row.get("throttle_reasons")
    names = so_far.value if isinstance(so_far, Known) and isinstance(so_far.value, tuple) else ()
    name = "gpu_idle" if label == "idle" else label.replace(" ", "_")
    row["throttle_reasons"] = Known((*names, name) if active else names, source)
