"""Monitors that print a line for each GPU: gpustat, with the users of its processes, and nvidia-smi dmon."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

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


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu``: what gpustat and the last lines of dmon tell of each GPU."""
    yield from _gpustat_rows(paste)
    if "# gpu " in paste.lower or "time        gpu" in paste.lower:
        yield from _monitor_rows(paste)


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
    for index, line in paste.having(" mb"):
        if match := _ROW.match(line):
            source = paste.use(index)
            number, name, temperature, busy, used, total, processes = match.groups()
            row: dict[str, Fact] = {
                "index": Known(int(number), source),
                "name": Known(name, source),
                "temperature_c": Known(int(temperature), source),
                "utilization": Known(int(busy), source),
                "memory_used_mib": Known(int(used), source),
                "memory_mib": Known(int(total), source),
            }
            if processes == _NO_PROCESS:
                row["processes"] = Known(0, source)
            elif processes and (count := sum(1 for _ in _PROCESS.finditer(processes))):
                row["processes"] = Known(count, source)
            rows.append(row)
    if rows:
        yield "gpu", tuple(rows)
