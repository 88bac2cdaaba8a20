"""GPUs as programs list them: deviceQuery, torch, llama.cpp, vLLM, nvidia-container-cli, gpustat, nvidia-smi dmon."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, known_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import normalized_pci_address

_QUERY = Pattern(r'\s*Device (\d+): "(.+)"')
_CAPABILITY = Pattern(r"\s*CUDA Capability Major/Minor version number:\s+(\d+\.\d+)")
_VERSIONS = Pattern(r"\s*CUDA Driver Version / Runtime Version\s+(\d+\.\d+) / (\d+\.\d+)")
_MEMORY = Pattern(r"\s*Total amount of global memory:\s+(\d+) MBytes")
_PLACE = Pattern(r"\s*Device PCI Domain ID / Bus ID / location ID:\s+(\d{1,5}) / (\d{1,3}) / (\d{1,2})\s*$")
_MODE = Pattern(r"\s*< (Default|Exclusive Process|Exclusive|Prohibited) \(")
_MODES = {"Exclusive Process": "Exclusive_Process", "Exclusive": "Exclusive_Thread"}
_PROPERTIES = Pattern(r"_CudaDeviceProperties\(name='([^']+)', major=(\d+), minor=(\d+), total_memory=(\d+)MB")
_GGML = Pattern(r"\s*Device (\d+): (.+?), compute capability (\d+\.\d+)")
_VLLM = Pattern(
    r"supported on GPUs with compute capability of at least \d{1,2}\.\d\. "
    r"Your (.{1,60}?) GPU has compute capability (\d{1,2}\.\d)"
)
_LOG = Pattern(r"\s*[IW]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \w+\.c:\d+\] (?P<text>.*)")
"""What libnvidia-container's log says and warns of: what it takes and what this system has no use for."""
_CLI = Pattern(r"\s*(NVRM version|CUDA version|Device Index|Model|GPU UUID|Bus Location|Architecture):\s+(\S.*)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu``, gpu.count, versions of the driver and of its CUDA, and host.wsl as absent, as CUDA programs and
    monitors print them.

    deviceQuery, torch's device properties, llama.cpp, vLLM, nvidia-container-cli, gpustat and nvidia-smi dmon.
    """
    low = paste.lower
    if "cuda capability major" in low or "_cudadeviceproperties(" in low or "compute capability" in low:
        yield from _device_rows(paste)
    yield from _container_cli_log(paste)
    if "nvrm version:" in low and "device index:" in low:
        yield from _container_cli_info(paste)
    yield from _gpustat_rows(paste)
    if "# gpu " in paste.lower or "time        gpu" in paste.lower:
        yield from _monitor_rows(paste)


def _device_rows(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu`` as deviceQuery, torch, llama.cpp and vLLM list them, and driver.cuda_version of deviceQuery."""
    rows: list[dict[str, Fact]] = []
    for index, line in enumerate(paste.bare):
        if query := _QUERY.match(line):
            rows.append(known_facts(paste.use(index), index=int(query.group(1)), name=query.group(2)))
        elif rows and (capability := _CAPABILITY.match(line)):
            rows[-1]["compute_capability"] = Known(capability.group(1), paste.use(index))
        elif rows and (memory := _MEMORY.match(line)):
            rows[-1]["memory_mib"] = Known(int(memory.group(1)[:12]), paste.use(index))
        elif rows and (place := _PLACE.match(line)):
            domain, bus, device = (int(number) for number in place.groups())
            rows[-1]["address"] = Known(f"{domain:04x}:{bus:02x}:{device:02x}.0", paste.use(index))
        elif rows and (mode := _MODE.match(line)):
            rows[-1]["compute_mode"] = Known(_MODES.get(mode[1], mode[1]), paste.use(index))
        elif versions := _VERSIONS.match(line):
            yield "driver.cuda_version", Known(versions.group(1), paste.use(index))
        elif ggml := _GGML.match(line):
            number, name, version = ggml.groups()
            rows.append(known_facts(paste.use(index), index=int(number), name=name, compute_capability=version))
        elif properties := _PROPERTIES.search(line):
            name, major, minor, size = properties.groups()
            columns = {"name": name, "compute_capability": f"{major}.{minor}", "memory_mib": int(size[:12])}
            rows.append(known_facts(paste.use(index), **columns))
        elif vllm := _VLLM.search(line):
            rows.append(known_facts(paste.use(index), name=vllm.group(1), compute_capability=vllm.group(2)))
    if rows:
        yield "gpu", tuple(rows)


def _container_cli_log(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.wsl, absent, where nvidia-container-cli's log says that dxcore does not start; marks the log's lines."""
    for index, line in paste.having(".c:"):
        if match := _LOG.match(line):
            if match["text"] == "dxcore initialization failed, continuing assuming a non-WSL environment":
                yield "host.wsl", Absent(f"dxcore does not start ({paste.use(index)})")
            paste.mark_listed(index, data=True)


def _container_cli_info(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Versions of driver and CUDA, a row of ``gpu`` per GPU, and gpu.count, from ``nvidia-container-cli info``."""
    rows: list[dict[str, Fact]] = []
    columns = {"Model": "name", "GPU UUID": "uuid", "Architecture": "compute_capability"}
    for index, line in enumerate(paste.bare):
        match = _CLI.match(line)
        if not match:
            continue
        label, value = match.groups()
        source = paste.use(index)
        if label == "NVRM version":
            yield "driver.version", Known(value, source)
            yield "driver.module_version", Known(value, source)
        elif label == "CUDA version":
            yield "driver.cuda_version", Known(value, source)
        elif label == "Device Index" and value.isdecimal():
            rows.append({"index": Known(int(value[:4]), source)})
        elif rows and label in columns:
            rows[-1][columns[label]] = Known(value, source)
        elif rows and label == "Bus Location" and (pci_address := normalized_pci_address(value)):
            rows[-1]["address"] = Known(pci_address, source)
    if rows:
        yield "gpu", tuple(rows)
        yield "gpu.count", Known(len(rows), f"line {paste.numbers[0]}")


_ROW = Pattern(
    r"^[\s`]*\[(\d{1,3})\] (\S[^|]{1,60}?)\s*\|\s*(\d{1,3})\S{1,2}C,\s*(\d{1,3}) %[^|]{0,40}"
    r"\|\s*(\d{1,7}) /\s*(\d{1,7}) MB\s*(?:\|\s*(.*?)[\s`]*)?$"
)
_PROCESS = Pattern(r"[\w.-]+[:/(]\S*\d+M\)")
_NO_PROCESS = "(null)"
_HEADING = Pattern(r"\s*#\s?(?:Date\s+Time\s+)?gpu(?:\s+\w+){2,40}\s*$")
_UNITS = Pattern(r"\s*#\s?(?:YYYYMMDD\s+HH:MM:SS\s+)?Idx\s")
_OF_MONITOR = {
    "pwr": "power_w",
    "gtemp": "temperature_c",
    "temp": "temperature_c",
    "mtemp": "temperature_memory_c",
    "sm": "utilization",
    "pclk": "clock_mhz",
}
_VIOLATION = ("thermal_violation",)


def _monitor_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Power, temperatures, load, clock and thermal violation of each GPU by its last line of ``nvidia-smi dmon``."""
    columns: list[str] = []
    gpus: dict[int, dict[str, Fact]] = {}
    for index, line in enumerate(paste.bare):
        cells = line.split()
        if _HEADING.match(line):
            columns = [] if "pid" in line else line.replace("#", " ").split()
        elif columns and len(cells) == len(columns) and not _UNITS.match(line):
            row = dict(zip(columns, cells, strict=True))
            if row["gpu"].isdecimal():
                source = paste.use(index)
                gpus[int(row["gpu"][:4])] = _monitor_row(row, source)
    if gpus:
        yield "gpu", tuple(gpus.values())


def _monitor_row(cells: dict[str, str], source: str) -> dict[str, Fact]:
    """The row of ``gpu`` for one line of dmon; a dash is no value, ``tviol`` is 1 while heat holds the clocks down."""
    row: dict[str, Fact] = {"index": Known(int(cells["gpu"][:4]), source)}
    for name, column in _OF_MONITOR.items():
        if (cell := cells.get(name, "")).isdecimal():
            row[column] = Known(int(cell[:9]), source)
    if (violation := cells.get("tviol", "")).isdecimal():
        row["throttle_reasons"] = Known(_VIOLATION if int(violation) else (), source)
    return row


def _gpustat_rows(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``gpu``: index, name, temperature, utilization, memory and, where gpustat tells, how many processes.

    gpustat's MB are MiB.
    """
    rows: list[Row] = []
    for match, source in paste.matches(_ROW.match, " mb"):
        number, name, temperature, busy, used, total, processes = match.groups()
        row = known_facts(source, index=int(number), name=name, temperature_c=int(temperature), utilization=int(busy))
        row |= known_facts(source, memory_used_mib=int(used), memory_mib=int(total))
        if processes == _NO_PROCESS:
            row["processes"] = Known(0, source)
        elif processes and (count := sum(1 for _ in _PROCESS.finditer(processes))):
            row["processes"] = Known(count, source)
        rows.append(row)
    if rows:
        yield "gpu", tuple(rows)
