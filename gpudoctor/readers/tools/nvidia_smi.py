"""nvidia-smi's table: banner (old, and R610's with KMD and UMD), GPU rows, MIG mode, processes."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.catalog import column
from gpudoctor.model.fact import Fact, Known, Row, Rows
from gpudoctor.readers._gpus import vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import address, mib, whole

EXACT = 7
FACTS = (
    column("gpu_process.gpu", "int", "index of the GPU that the process uses"),
    column("gpu_process.pid", "int", "its process id, as the one who asked sees it"),
    column("gpu_process.name", "text", "its name"),
    column("gpu_process.memory_mib", "int", "GPU memory it holds", "MiB"),
)

_VERSION = r"(\d+(?:\.\d+)*)"
_SMI = Pattern(r"NVIDIA-SMI(?: version\s*:)?\s+" + _VERSION)
_DRIVER = Pattern(r"(?:Driver|KMD|DRIVER) [Vv]ersion\s*:\s*" + _VERSION)
_CUDA = Pattern(r"CUDA (?:UMD )?[Vv]ersion\s*:\s*" + _VERSION)
_GPU = Pattern(
    r"\s*\|\s*(\d+)\s+(\S.*?)\s+(On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*\|\s*([0-9A-Fa-f:.]{7,16}|N/A)\s+(?:On|Off"
    r"|N/A)\s*\|\s*(\S+)"
)
_USAGE = Pattern(
    r"\s*\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(?:(\d+)W\s*/\s*(\d+)W\s*|.*?)\|"
    r"\s*(\d+\s?[MG]i?B|N/A|ERR!)\s*/\s*(\d+\s?[MG]i?B|N/A)\s*\|\s*(\d+%|N/A|ERR!)\s+([^|]*)\|"
)
_MIG = Pattern(r"\s*\|\s*\|\s*\|\s*(Enabled\*?|Disabled\*?|N/A)\s*\|\s*$")
_PROCESS = Pattern(
    r"\s*\|\s*(\d+)\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d+)\s+([CGM+]{1,5})\s+(\S.*?)\s+(\d+\s?MiB|N/A)\s*\|\s*$"
)
_MODES = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread", "Exclusive_Process": "Exclusive_Process"}


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Banner and tables."""
    if "nvidia-smi" not in paste.lower and "driver version" not in paste.lower:
        return
    shown = ""
    for index, line in paste.having("nvidia-smi"):
        said = list(_banner(paste, index, line))
        names = [fact.value for name, fact in said if name == "driver.version" and isinstance(fact, Known)]
        if not shown or names in ([], [shown]):  # another driver's banner is of another machine, or of another day
            yield from said
            shown = shown or "".join(map(str, names))
    for index, line in paste.having("driver version:", "kmd version:"):
        if (driver := _DRIVER.search(line)) and (cuda := _CUDA.search(line)) and index not in paste.used:
            yield "driver.version", Known(driver.group(1), paste.use(index))
            yield "driver.cuda_version", Known(cuda.group(1), paste.use(index))
    if "|" in paste.text:
        yield from _tables(paste)


def _banner(paste: Paste, index: int, line: str) -> Iterator[tuple[str, Fact]]:
    smi = _SMI.search(line)
    if not smi:
        return
    here = [line, *paste.lines[index + 1 : index + 5]] if "ersion  " in line.lower() else [line]
    found = False
    for offset, text in enumerate(here):
        if driver := _DRIVER.search(text):
            source = paste.use(index + offset)
            found = True
            yield "driver.version", Known(driver.group(1), source)
            yield "nvml.state", Known("ok", source)
            yield "driver.installed", Known(True, source)
            if not any(word in paste.lower for word in ("wsl", "windows", "wddm")):
                yield "driver.module_loaded", Known(True, source)
        if cuda := _CUDA.search(text):
            yield "driver.cuda_version", Known(cuda.group(1), paste.use(index + offset))
    if found and "|" in line:
        yield "nvml.library_version", Known(smi.group(1), paste.use(index))


def _tables(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    gpus: list[dict[str, Fact]] = []
    processes: list[Row] = []
    for index, line in enumerate(paste.bare):
        if "|" not in line:
            continue
        if gpu := _GPU.match(line):
            gpus.append(_gpu(gpu.groups(), paste.use(index)))
            if gpu.group(3) in ("WDDM", "TCC", "MCDM"):
                yield "host.platform", Known("windows", paste.use(index))
        elif gpus and (usage := _USAGE.match(line)):
            gpus[-1].update(_usage(usage.groups(), paste.use(index)))
        elif gpus and "GPU is lost" in line:
            gpus[-1]["error"] = Known("GPU is lost", paste.use(index))
        elif gpus and (mig := _MIG.match(line)) and mig.group(1) != "N/A":
            gpus[-1]["mig"] = Known(mig.group(1).startswith("Enabled"), paste.use(index))
        elif process := _PROCESS.match(line):
            processes.append(_process(process.groups(), paste.use(index)))
        elif "No running processes found" in line:
            yield "gpu_process", ()
            paste.use(index)
        elif line.lstrip().startswith(("|==", "|--")) or "Persistence-M" in line or "GPU-Util" in line:
            paste.use(index)
    first = _first_table(gpus)
    if first:
        yield "gpu", tuple(first)
        yield "gpu.count", Known(len(first), _source(first[0]))
    if processes:
        yield "gpu_process", tuple(processes)


def _first_table(gpus: list[dict[str, Fact]]) -> list[dict[str, Fact]]:
    """The rows of the first table of several: it ends where the numbering starts again."""
    indexes = [_int(row["index"]) for row in gpus]
    for place in range(1, len(gpus)):
        if indexes[place] <= indexes[place - 1]:
            return gpus[:place]
    return gpus


def _int(fact: Fact) -> int:
    return fact.value if isinstance(fact, Known) and isinstance(fact.value, int) else -1


def _source(row: Row) -> str:
    fact = row["index"]
    return fact.source if isinstance(fact, Known) else ""


def _gpu(cells: tuple[str | None, ...], source: str) -> dict[str, Fact]:
    index, name, _, bus, ecc = (cell or "" for cell in cells)
    row: dict[str, Fact] = {"index": Known(int(index), source), "name": Known(name, source)}
    if where := address(bus):
        row["address"] = Known(where, source)
    if ecc.isdecimal():
        row["ecc_uncorrected"] = Known(int(ecc), source)
    if vendor(name) == "nvidia" and name.endswith(("C", "Q", "B", "A")) and name.rpartition("-")[2][:-1].isdecimal():
        row["virtual"] = Known(True, source)
    return row


def _usage(cells: tuple[str | None, ...], source: str) -> dict[str, Fact]:
    _, temperature, _, drawn, limit, used, total, busy, mode = ((cell or "").strip() for cell in cells)
    row: dict[str, Fact] = {}
    numbers = {
        "temperature_c": whole(temperature) if temperature.endswith("C") else None,
        "power_w": whole(drawn),
        "power_limit_w": whole(limit),
        "memory_used_mib": mib(used),
        "memory_mib": mib(total),
        "utilization": whole(busy),
    }
    row.update({name: Known(value, source) for name, value in numbers.items() if value is not None})
    if mode and mode not in ("N/A", "ERR!"):
        row["compute_mode"] = Known(_MODES.get(mode, mode), source)
    return row


def _process(cells: tuple[str | None, ...], source: str) -> Row:
    gpu, pid, _, name, memory = (cell or "" for cell in cells)
    row: dict[str, Fact] = {
        "gpu": Known(int(gpu), source),
        "pid": Known(int(pid), source),
        "name": Known(name, source),
    }
    if (size := mib(memory)) is not None:
        row["memory_mib"] = Known(size, source)
    return row
