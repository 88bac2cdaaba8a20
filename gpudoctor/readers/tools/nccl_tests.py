"""nccl-tests: the table of sizes, times, bandwidths and wrong values that all_reduce_perf and its sisters print."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = (
    fact(
        "nccl.wrong_values", "int", "wrong values that nccl-tests counted in one collective; absent where it has none"
    ),
    fact("nccl.wrong_in", "text", "the collective of nccl-tests that gave them, with its size"),
    fact(
        "nccl.bus_bandwidth",
        "float",
        "bus bandwidth that nccl-tests reached at its largest size, from 256 MiB on",
        "GB/s",
    ),
    fact("nccl.bus_gpu", "text", "name of the GPUs of that test, where all of one machine were of this name"),
)

_ROW = Pattern(
    r"\s*(?P<size>\d{1,15})\s+\d{1,15}\s+(?P<type>[a-z][a-z0-9_]{2,12})\s+(?P<op>[a-z]{2,8})\s+-?\d{1,4}"
    r"\s+[\d.e+]+\s+[\d.e+]+\s+(?P<bus>[\d.e+]+)\s+(?P<wrong>N/A|[\d.e+]+)"
    r"(?:\s+[\d.e+]+\s+[\d.e+]+\s+(?P<bus2>[\d.e+]+)\s+(?P<wrong2>N/A|[\d.e+]+))?"
)
_DEVICE = Pattern(
    r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(?P<host>\S+) device\s+\d+ \[[\w:.]+\] (?P<name>\S.*?)\s*$"
)
_PROGRAM = Pattern(
    r"\b(all_reduce|all_gather|alltoallv?|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf\b"
)
_HEAD, _AVERAGE = "algbw", "avg bus bandwidth"
_SMALL = 64 << 20
"""Bytes below which a collective tells the latency of the links rather than their bandwidth."""
_LARGE = 256 << 20
"""Bytes from which it comes near to what they can."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Wrong values, and the bandwidth at the largest size; ``live.peers_wrong`` where the values went wrong within one
    machine.
    """
    if _HEAD not in paste.lower and _AVERAGE not in paste.lower:
        return
    program = "a collective"
    hosts: dict[str, None] = {}
    gpus: list[str] = []
    smallest, largest, bus, bus_line = _SMALL, 0, 0.0, -1
    wrong: tuple[int, str, int] | None = None
    for index, line in enumerate(paste.bare):
        if name := _PROGRAM.search(line):
            program = f"{name[1]}_perf"
        elif device := _DEVICE.match(line):
            hosts[device["host"]] = None
            gpus.append(device["name"])
            paste.use(index)
        elif _AVERAGE in line.lower() and smallest < _SMALL:
            paste.mark_listed(index, data=True)  # of latencies as well: it tells no bandwidth
        elif row := _ROW.match(line):
            paste.mark_listed(index, data=True)
            size = int(row["size"])
            smallest = min(smallest, size)
            count = max(_count(row["wrong"]), _count(row["wrong2"]))
            if count and wrong is None:
                wrong = count, f"{program} of {_bytes(size)}", index
            if size >= max(_LARGE, largest):
                largest, bus, bus_line = size, max(_number(row["bus"]), _number(row["bus2"])), index
    if bus_line >= 0:
        source = paste.use(bus_line)
        yield "nccl.bus_bandwidth", Known(bus, source)
        if len(hosts) == 1 and len(gpus) > 1 and len(set(gpus)) == 1:
            yield "nccl.bus_gpu", Known(gpus[0], source)
    if wrong:
        count, where, index = wrong
        source = paste.use(index)
        yield "nccl.wrong_values", Known(count, source)
        yield "nccl.wrong_in", Known(where, source)
        if len(hosts) == 1 and len(gpus) > 1:
            yield "live.peers_wrong", Known(f"{count} wrong values in {where}", source)


def _number(text: str | None) -> float:
    """The number in the cell; 0 where there is none."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _count(text: str | None) -> int:
    """The count of wrong values in the cell, ``1.2e+06`` too; 0 for N/A."""
    number = _number(text)
    return int(number) if number < float("inf") else 0


def _bytes(size: int) -> str:
    """The size in the largest unit that leaves it whole: 1 GiB, 64 MiB, 8 bytes."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and not size % unit:
            return f"{size // unit} {name}"
    return f"{size} bytes"
