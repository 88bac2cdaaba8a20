"""Benchmarks: nccl-tests, gpu-burn, and the matrices of nvbandwidth and p2pBandwidthLatencyTest.

In a matrix of bandwidth a GPU or a pair is named where it alone is far below the others and those are alike. Machines
whose GPUs are joined in pairs, or of which some are far from the processor, have two levels by design: there nothing is
said. gpu-burn's GPUs are named where it has listed them before, and their rates compared where all are of one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Value, known_facts
from gpudoctor.core.frozen import frozen
from gpudoctor.core.measurement import median
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.notes.measurements import beside_others

EXACT = 8
FACTS = (
    fact("p2p.direct_gbps", "float", "median rate of direct copies between GPUs, by p2pBandwidthLatencyTest", "GB/s"),
    fact("p2p.staged_gbps", "float", "median rate of the same copies through the host's memory", "GB/s"),
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
    fact("nccl.bus_gpus", "int", "how many GPUs of that machine took part"),
    fact("nccl.bus_test", "text", "the collective of that test: all_reduce; absent where the text does not name it"),
)

_RUNNING = Pattern(r"\s*Running (\w{4,80})\.\s*$")
_TITLE = Pattern(r"\s*mem\w+ (?:CE|SM) (CPU|GPU)\(row\) (?:->|<-|<->) GPU\(column\) bandwidth \(GB/s\)\s*$")
_PEERS = Pattern(r"\s*((?:Uni|Bi)directional) P2P=(En|Dis)abled Bandwidth (?:\(P2P \w+\) )?Matrix \(GB/s\)\s*$")
_COLUMNS = Pattern(r"\s*(?:D\\D\s+)?\d{1,3}(?:\s+\d{1,3})*\s*$")
_CELLS = Pattern(r"\s*(\d{1,3})((?:\s+(?:\d{1,6}\.\d{1,3}|N/A))+)\s*$")
_WRONG = "invalid value when checking the pattern"
_ALIKE_SHARE = 0.8
"""Share of their median that all others reach at least, where one is called slow."""
_SLOW_SHARE = 0.7
_FEWEST_OTHERS = 3
"""Other GPUs at least, with which one is compared; four GPUs have three pairs without it."""
_Pairs = Mapping[tuple[int, int], float]


@frozen
class _Matrix:
    """One matrix: what was measured, whether between host and GPUs, and GB/s by row and column."""

    kind: str
    host: bool
    cells: _Pairs
    source: str
    direct: bool = True
    """Whether GPUs copied without the host's memory in between."""

    @property
    def between_gpus(self) -> list[float]:
        """GB/s of the copies from one GPU to another; empty where the matrix is between host and GPUs."""
        return [rate for (row, column), rate in self.cells.items() if row != column and not self.host]


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``rate`` and ``live_gpu``, facts of collectives: from nccl-tests, gpu-burn, nvbandwidth, P2P tests."""
    yield from _nccl_tests(paste)
    yield from _gpu_burn(paste)
    yield from _bandwidths(paste)


def _bandwidths(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``rate`` for GPUs far below the others in bandwidth matrices, and the facts of all copies between GPUs.

    p2p.direct_gbps and p2p.staged_gbps, and live.peers_wrong where nvbandwidth read other data than it wrote.
    """
    if "(gb/s)" in paste.lower and ("(row)" in paste.lower or "p2p=enabled" in paste.lower):
        matrices = list(_matrices(paste))
        rows = [row for matrix in matrices if matrix.direct for row in _slow_rows(matrix)]
        if rows:
            yield "rate", tuple(rows)
        yield from _direct_and_staged([matrix for matrix in matrices if matrix.kind.endswith(" Unidirectional")])
    if _WRONG in paste.lower:
        yield from _wrong_copies(paste)


def _matrices(paste: Paste) -> Iterator[_Matrix]:
    """The bandwidth matrices of nvbandwidth and p2pBandwidthLatencyTest; one that is cut ends where its rows end.

    Their lines are placed.
    """
    running, kind, host, direct = "", "", False, True
    cells: dict[tuple[int, int], float] = {}
    columns: list[int] = []
    first = 0
    for index, line in enumerate([*paste.bare, ""]):
        if kind and columns and (row := _CELLS.match(line)):
            for column, cell in zip(columns, row[2].split(), strict=False):
                if cell != "N/A":
                    cells[int(row[1]), column] = float(cell)
            continue
        if cells:
            yield _Matrix(kind, host, cells, paste.use(first, index - 1), direct)
            cells, kind, columns = {}, "", []
        if name := _RUNNING.match(line):
            running = name[1]
        elif title := _TITLE.match(line) or _PEERS.match(line):
            host = title[1] == "CPU"
            peers = title[1] not in ("CPU", "GPU")
            direct = not peers or title[2] == "En"
            kind = f"p2pBandwidthLatencyTest, {title[1]}" if peers else running or "nvbandwidth"
            first, columns = index, []
        elif kind and _COLUMNS.match(line):
            columns = [int(word) for word in line.split() if word.isdecimal()]


def _direct_and_staged(matrices: Sequence[_Matrix]) -> Iterator[tuple[str, Fact]]:
    """p2p.direct_gbps and p2p.staged_gbps: median rate between GPUs with and without peer access, where shown."""
    for direct in (True, False):
        rates = [(matrix.between_gpus, matrix.source) for matrix in matrices if matrix.direct == direct]
        if rates and rates[0][0]:
            name = "p2p.direct_gbps" if direct else "p2p.staged_gbps"
            yield name, Known(round(median(rates[0][0]), 2), rates[0][1])


def _slow_rows(matrix: _Matrix) -> Iterator[Row]:
    """A row of ``rate`` for the one GPU, else the one pair of GPUs, below 70 % of the others, which are alike.

    Nothing for three GPUs or fewer.
    """
    if matrix.host:
        rates = {column: [rate] for (row, column), rate in matrix.cells.items() if not row}
        yield from _outlier(
            matrix, rates, {gpu: [r for g, rs in rates.items() if g != gpu for r in rs] for gpu in rates}
        )
        return
    pairs = {pair: rate for pair, rate in matrix.cells.items() if pair[0] != pair[1] and rate}
    gpus = sorted({gpu for pair in pairs for gpu in pair})
    of_gpu = {gpu: [rate for pair, rate in pairs.items() if gpu in pair] for gpu in gpus}
    without = {gpu: [rate for pair, rate in pairs.items() if gpu not in pair] for gpu in gpus}
    if len(gpus) > _FEWEST_OTHERS:
        yield from list(_outlier(matrix, of_gpu, without)) or _slow_pair(matrix, pairs)


def _outlier(
    matrix: _Matrix, own: Mapping[int, Sequence[float]], others: Mapping[int, Sequence[float]]
) -> Iterator[Row]:
    """A row of ``rate`` for the GPU whose rates (`own`) are all below 70 % of the median of `others`.

    Only where there are three others or more, which are alike.
    """
    for gpu, rates in own.items():
        usual = median(others[gpu]) if len(others[gpu]) >= _FEWEST_OTHERS else 0
        if usual and min(others[gpu]) >= _ALIKE_SHARE * usual and max(rates) < _SLOW_SHARE * usual:
            yield _rate_row(matrix, gpu, "", median(rates), usual)


def _slow_pair(matrix: _Matrix, pairs: _Pairs) -> Iterator[Row]:
    """A row of ``rate`` for the pair of GPUs (one for each slow direction) below 70 % of the median of all other pairs,
    which are alike.
    """
    for (one, other), rate in pairs.items():
        rest = [value for pair, value in pairs.items() if set(pair) != {one, other}]
        if rest and min(rest) >= _ALIKE_SHARE * median(rest) and rate < _SLOW_SHARE * median(rest):
            yield _rate_row(matrix, one, f" with GPU {other}", rate, median(rest))


def _rate_row(matrix: _Matrix, gpu: int, way: str, value: float, usual: float) -> Row:
    """The row of ``rate`` for the GPU; `way` is added to the test's name, `usual` is the median of the others."""
    of = "host link" if matrix.host else "GPU link"
    rates = compared(round(value, 2), round(usual, 2), value / usual)
    return known_facts(matrix.source, gpu=gpu, kernel=matrix.kind + way, of=of, against="siblings", **rates)


def compared(value: float, others: float, share: float) -> Mapping[str, Value]:
    """The columns value, others, unit, share and spread (0) of a row of ``rate`` for a bandwidth in GB/s."""
    return {"value": value, "others": others, "unit": "GB/s", "share": round(share, 3), "spread": 0.0}


def _wrong_copies(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """``live.peers_wrong`` where nvbandwidth, as text or JSON, found other data than it wrote between two GPUs."""
    running = ""
    for index, line in enumerate(paste.bare):
        if started := _RUNNING.match(line):
            running = started[1]
        elif _WRONG in line.lower() and "device_to_device" in running:
            yield "live.peers_wrong", Known(f"nvbandwidth's pattern in {running}", paste.use(index))
            return
    for first, last, document in paste.documents:
        results = document.get("nvbandwidth")
        cases = results.get("testcases") if isinstance(results, dict) else None
        for case in cases if isinstance(cases, list) else ():
            name, error = (str(case.get(key, "")) for key in ("name", "error")) if isinstance(case, dict) else ("", "")
            if _WRONG in error.lower() and "device_to_device" in name:
                yield "live.peers_wrong", Known(f"nvbandwidth's pattern in {name[:80]}", paste.use(first, last))
                return


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
_LATENCY_BYTES = 64 << 20
"""Bytes below which a collective tells the latency of the links rather than their bandwidth."""
_BANDWIDTH_BYTES = 256 << 20
"""Bytes from which it comes near to what they can."""


def _nccl_tests(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts of nccl-tests' output: bandwidth at the largest size of 256 MiB or more, and wrong values.

    nccl.bus_bandwidth in GB/s, nccl.bus_test (absent if not named), nccl.bus_gpu and nccl.bus_gpus where all GPUs are
    alike and in one machine; nccl.wrong_values, nccl.wrong_in, and live.peers_wrong where they went wrong within one
    machine.
    """
    if _HEAD not in paste.lower and _AVERAGE not in paste.lower:
        return
    collective = ""
    hosts: dict[str, None] = {}
    gpus: list[str] = []
    smallest, largest, bus, bus_line, tested = _LATENCY_BYTES, 0, 0.0, -1, ""
    wrong: tuple[int, str, int] | None = None
    for index, line in enumerate(paste.bare):
        if name := _PROGRAM.search(line):
            collective = name[1]
        elif device := _DEVICE.match(line):
            hosts[device["host"]] = None
            gpus.append(device["name"])
            paste.use(index)
        elif _AVERAGE in line.lower() and smallest < _LATENCY_BYTES:
            paste.mark_listed(index, data=True)  # of latencies as well: it tells no bandwidth
        elif row := _ROW.match(line):
            paste.mark_listed(index, data=True)
            size = int(row["size"])
            smallest = min(smallest, size)
            count = max(_count(row["wrong"]), _count(row["wrong2"]))
            if count and wrong is None:
                wrong = count, f"{collective + '_perf' if collective else 'a collective'} of {_bytes(size)}", index
            if size >= max(_BANDWIDTH_BYTES, largest):
                largest, bus, bus_line = size, max(_number(row["bus"]), _number(row["bus2"])), index
                tested = collective
    if bus_line >= 0:
        source = paste.use(bus_line)
        yield "nccl.bus_bandwidth", Known(bus, source)
        if len(hosts) == 1 and len(gpus) > 1 and len(set(gpus)) == 1:
            yield "nccl.bus_gpu", Known(gpus[0], source)
            yield "nccl.bus_gpus", Known(len(gpus), source)
        yield "nccl.bus_test", Known(tested, source) if tested else Absent("the text names no program")
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


_BURNING = Pattern(r"\s*\d{1,3}\.\d%\s+proc'd: (.{1,3000}?)\s+errors: (.{1,1000}?)(?:\s+temps: .*)?$")
_GFLOPS = Pattern(r"\d{1,12} \((\d{1,8}) Gflop/s\)")
_RESULT = Pattern(r"\s+GPU (\d{1,3}): (OK|FAULTY)\s*$")
_NAME = Pattern(r"\s*GPU (\d{1,3}): (\S.{1,60}?) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$")


def _gpu_burn(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``live_gpu`` for GPUs that gpu-burn has named and calls faulty, and of ``rate`` for the rates of its last
    progress.

    Rates only of two GPUs or more of one name, each beside the median of the others.
    """
    if "gflop/s" not in paste.lower and "tested " not in paste.lower:
        return
    rates: list[float] = []
    source = ""
    names: dict[int, tuple[str, str]] = {}
    faulty: list[dict[str, Fact]] = []
    for index, line in enumerate(paste.bare):
        if progress := _BURNING.match(line):
            found = [float(rate) for rate in _GFLOPS.compiled.findall(progress[1])]
            if found and all(found):
                rates, source = found, paste.use(index)
            paste.use(index)
        elif name := _NAME.match(line):
            names[int(name[1])] = name[2], name[3]
        elif (result := _RESULT.match(line)) and result[2] == "FAULTY" and int(result[1]) in names:
            gpu, (product, uuid) = int(result[1]), names[int(result[1])]
            wrong = ("gpu-burn's matrix products",)
            faulty.append(known_facts(paste.use(index), index=gpu, name=product, uuid=uuid, wrong=wrong))
    if len(rates) > 1 and len({names.get(gpu, (str(gpu),))[0] for gpu in range(len(rates))}) == 1:
        rows = (known_facts(source, gpu=gpu, value=rate, unit="Gflop/s") for gpu, rate in enumerate(rates))
        yield "rate", tuple(beside_others(row, median(rates[:gpu] + rates[gpu + 1 :])) for gpu, row in enumerate(rows))
    if faulty:
        yield "live_gpu", tuple(faulty)
