"""nvidia-smi's table: banner (old, and R610's with KMD and UMD), GPU rows, MIG mode, processes."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Row, Rows, known, known_facts, value_of
from gpudoctor.readers._machine import gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import first_integer, normalized_pci_address, size_mib
from gpudoctor.readers.tools.nvidia_smi_list import SOME_GPUS

EXACT = 7
FACTS = (
    column("gpu_process.gpu", "int", "index of the GPU that the process uses"),
    column("gpu_process.pid", "int", "its process id, as the one who asked sees it"),
    column("gpu_process.name", "text", "its name"),
    column("gpu_process.memory_mib", "int", "GPU memory it holds", "MiB"),
)

_VERSION = r"(\d+(?:\.\d+)*)(?!\w|\.[a-z])"
"""Not ``5xx.xx``, as examples of documents have it."""
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
_DRIVER_MODELS = ("WDDM", "TCC", "MCDM")
"""How Windows drives a GPU, in the column that has On or Off for persistence mode on Linux."""
_MODES = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread", "Exclusive_Process": "Exclusive_Process"}


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of nvidia-smi's banner and rows of ``gpu`` and ``gpu_process`` from its table.

    The banner of another driver version further down is ignored: another machine or time.
    """
    if "nvidia-smi" not in paste.lower and "driver version" not in paste.lower:
        return
    first_version = ""
    for index, line in paste.having("nvidia-smi"):
        banner_facts = list(_banner_facts(paste, index, line))
        names = [value_of(fact) for name, fact in banner_facts if name == "driver.version"]
        if not first_version or names in (
            [],
            [first_version],
        ):  # another driver's banner is of another machine, or of another day
            yield from banner_facts
            first_version = first_version or "".join(map(str, names))
    for index, line in paste.having("driver version:", "kmd version:"):
        if (driver := _DRIVER.search(line)) and (cuda := _CUDA.search(line)) and index not in paste.used:
            yield "driver.version", Known(driver.group(1), paste.use(index))
            yield "driver.cuda_version", Known(cuda.group(1), paste.use(index))
    if "|" in paste.text:
        yield from _table_rows(paste)


def _banner_facts(paste: Paste, index: int, line: str) -> Iterator[tuple[str, Fact]]:
    """Versions of driver, CUDA and NVML, and that the driver works, from the banner at `index`; nothing without one."""
    smi = _SMI.search(line)
    if not smi:
        return
    banner_lines = [line, *paste.lines[index + 1 : index + 5]] if "ersion  " in line.lower() else [line]
    has_driver = False
    for offset, text in enumerate(banner_lines):
        if driver := _DRIVER.search(text):
            source = paste.use(index + offset)
            has_driver = True
            yield "driver.version", Known(driver.group(1), source)
            yield "nvml.state", Known("ok", source)
            yield "driver.installed", Known(True, source)
            if not any(word in paste.lower for word in ("wsl", "windows", "wddm")):
                yield "driver.module_loaded", Known(True, source)
        if cuda := _CUDA.search(text):
            yield "driver.cuda_version", Known(cuda.group(1), paste.use(index + offset))
    if has_driver and "|" in line:
        yield "nvml.library_version", Known(smi.group(1), paste.use(index))


def _table_rows(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu``, their count where the table lists all, and rows of ``gpu_process`` from the framed lines."""
    gpus: list[dict[str, Fact]] = []
    processes: list[Row] = []
    for index, line in enumerate(paste.bare):
        if "|" not in line:
            continue
        if gpu := _GPU.match(line):
            gpus.append(_gpu_row(gpu.groups(), paste.use(index)))
            if gpu.group(3) in _DRIVER_MODELS:
                yield "host.platform", Known("windows", paste.use(index))
        elif gpus and (usage := _USAGE.match(line)):
            gpus[-1].update(_usage_columns(usage.groups(), paste.use(index)))
        elif gpus and "GPU is lost" in line:
            gpus[-1]["error"] = Known("GPU is lost", paste.use(index))
        elif gpus and (mig := _MIG.match(line)) and mig.group(1) != "N/A":
            gpus[-1]["mig"] = Known(mig.group(1).startswith("Enabled"), paste.use(index))
        elif process := _PROCESS.match(line):
            processes.append(_process_row(process.groups(), paste.use(index)))
        elif "No running processes found" in line:
            yield "gpu_process", ()
            paste.use(index)
        elif line.lstrip().startswith(("|==", "|--")) or "Persistence-M" in line or "GPU-Util" in line:
            paste.use(index)
    first = _first_table(gpus)
    if first:
        yield "gpu", tuple(first)
        number = known(first[0]["index"])
        if number and not number.value and not any(SOME_GPUS.search(command) for command in paste.commands.values()):
            yield "gpu.count", Known(len(first), number.source)
    if processes:
        yield "gpu_process", tuple(processes)


def _first_table(gpus: list[dict[str, Fact]]) -> list[dict[str, Fact]]:
    """The rows of the first of several tables: a new one begins where the index does not rise."""
    indexes = [index if isinstance(index := value_of(row["index"]), int) else -1 for row in gpus]
    for position in range(1, len(gpus)):
        if indexes[position] <= indexes[position - 1]:
            return gpus[:position]
    return gpus


def _gpu_row(cells: tuple[str | None, ...], source: str) -> dict[str, Fact]:
    """A row of ``gpu`` from a table's first line: index, name, PCI address, driver model, ECC errors, virtual.

    Those not shown are left out; ``virtual`` is True for a vGPU's name.
    """
    index, name, mode, bus, ecc = (cell or "" for cell in cells)
    row: dict[str, Fact] = {"index": Known(int(index), source), "name": Known(name, source)}
    if mode in _DRIVER_MODELS:
        row["driver_model"] = Known(mode, source)
    if pci_address := normalized_pci_address(bus):
        row["address"] = Known(pci_address, source)
    if ecc.isdecimal():
        row["ecc_uncorrected"] = Known(int(ecc), source)
    if (
        gpu_vendor(name) == "nvidia"
        and name.endswith(("C", "Q", "B", "A"))
        and name.rpartition("-")[2][:-1].isdecimal()
    ):
        row["virtual"] = Known(True, source)
    return row


def _usage_columns(cells: tuple[str | None, ...], source: str) -> dict[str, Fact]:
    """Columns from a table's second line: temperature in C, power in W, memory in MiB, utilization in %, mode.

    Columns whose cell has no value are left out.
    """
    _, temperature, _, power, limit, used, total, utilization, mode = ((cell or "").strip() for cell in cells)
    row: dict[str, Fact] = {}
    numbers = {
        "temperature_c": first_integer(temperature) if temperature.endswith("C") else None,
        "power_w": first_integer(power),
        "power_limit_w": first_integer(limit),
        "memory_used_mib": size_mib(used),
        "memory_mib": size_mib(total),
        "utilization": first_integer(utilization),
    }
    row.update({name: Known(value, source) for name, value in numbers.items() if value is not None})
    if mode and mode not in ("N/A", "ERR!"):
        row["compute_mode"] = Known(_MODES.get(mode, mode), source)
    return row


def _process_row(cells: tuple[str | None, ...], source: str) -> Row:
    """A row of ``gpu_process``: GPU, pid, name, and memory in MiB where it is given."""
    gpu, pid, _, name, memory = (cell or "" for cell in cells)
    row: dict[str, Fact] = known_facts(source, gpu=int(gpu), pid=int(pid), name=name)
    if (size := size_mib(memory)) is not None:
        row["memory_mib"] = Known(size, source)
    return row
