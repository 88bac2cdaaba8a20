"""gpustat: one row per GPU, with the users of its processes."""

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


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
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
