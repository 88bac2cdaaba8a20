"""NCCL's RAS subsystem: what ncclras prints of a running job, in text and JSON, and NCCL's own diagnostics (2.31).

RAS counts the operations that each rank has launched. Ranks of a sound job differ by some at any moment, so that one
report proves nothing; of two reports, a rank that is behind by the same numbers in both does not come any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Row, Rows, known_facts, value_of
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.tools.rdma_ports import PHYSICAL

EXACT = 8
FACTS = (
    fact(
        "nccl.ranks_missing", "list", "ranks whose process NCCL's RAS could not reach or takes for dead: rank 13 (h002)"
    ),
    fact(
        "nccl.ranks_failed",
        "list",
        "ranks whose NCCL reports an error to its RAS, and which: rank 3 (h001): System error",
    ),
    fact("nccl.ecc_ranks", "list", "ranks on whose GPU NCCL's diagnostics found uncorrectable memory errors"),
    fact("nccl.ecc_worst", "int", "the most such errors on one of these GPUs, since its driver loaded"),
    fact(
        "nccl.links_inactive_ranks",
        "list",
        "ranks of some, not all, on whose GPU NCCL's diagnostics found NVLinks down",
    ),
)

_REPORT = Pattern(r"\s*Communicators\.\.\. \(")
_COMM = Pattern(r"\s*#(\d{1,6}-\d{1,6}) \([0-9a-f]{4,16}\) (INCOMPLETE|ERROR|MISMATCH)\s*$")
_KIND = Pattern(r"\s*(INCOMPLETE|DEAD|TIMEOUT)\s*$")
_OPERATION = Pattern(r"\s*Communicator ranks have different (\w{2,24}) operation counts\s*$")
_MANY = Pattern(r"\s*(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)\s*$")
_ONE = Pattern(r"\s*Rank (\d{1,7}) has (?:launched up to operation (\d{1,18})|not launched any operations) -- ")
_FAILED = Pattern(r"\s*(?:Initialization|Asynchronous) errors? on \d{1,7} ranks?\s*$")
_REPORTED = Pattern(
    r"\s*(?:\d{1,7} ranks|Rank (\d{1,7})) reported (\w[\w ]{2,39}?)(?: -- (?:GPU .* on node (\S+)|\[.*))?\s*$"
)
_ERRORS = {1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage"}
_ERRORS[6] = "Remote process error"
"""Numbers of ncclResult_t in nccl.h, in the words of client_support.cc; 7 is still in progress."""
_MEMBER = Pattern(
    r"\s*Rank (\d{1,7}) -- (?:GPU \S.* managed by process \d+ on node (\S+)|\[process information not found\])"
)
_PROCESS = Pattern(r"\s*Process (\d{1,9}) on node (\S+) managing GPUs? \S")
_DIAG = Pattern(r".*\bNCCL DIAG \[(?:OK|INFO)\]\s+(\S.*)$")
_ECC = Pattern(r"ECC: uncorrected volatile errors on rank\(s\) \{?([\d,. ]+)\}?(?: \(N=\d+\))? \(worst=(\d{1,12})\)")
_LINKS = Pattern(r"NVLink: inactive link\(s\) on rank\(s\) \{?([\d,. ]+)\}?(?: \(N=(\d+)\))? across (\d{1,7}) ranks")
_NET = Pattern(
    r"Net device ([\w-]{1,40}):(\d{1,3}): net device type=[^,]{1,40}, speed=(\d{1,8}) Mbps,"
    r" link layer=(\w+)(?:, Data Direct)?, state=(\w+)/(\w+)"
)
_FEWEST_RANKS = 2


@frozen
class _Lag:
    """How ranks of a communicator differ in one operation: launched by those ahead and by each rank behind."""

    ahead: int
    behind: Mapping[int, int]
    ranks: int
    line: int


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of ranks missing, failed, behind, with bad memory or links, by NCCL's RAS reports, and rows of ``rdma``."""
    if "communicators..." in paste.lower:
        yield from _text_reports(paste)
    yield from _json_reports(paste)
    yield from _diagnostics(paste)


def _text_reports(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.ranks_missing, nccl.ranks_failed and facts of ranks behind from the text reports of ncclras.

    Behind are ranks whose counts lag, and are equal in the first and the last report; dead processes are missing.
    """
    reports: list[dict[str, _Lag]] = []
    missing: dict[str, int] = {}
    failed: dict[str, int] = {}
    kind = comm = operation = error = ""
    count: int | None = None
    ahead: dict[int, int] = {}
    for index, line in enumerate(paste.bare):
        if _REPORT.match(line):
            reports.append({})
            kind = comm = operation = ""
        elif not reports:
            continue
        elif head := _COMM.match(line):
            comm, kind, operation = head[1], head[2], ""
        elif kind == "ERROR" and _FAILED.match(line):
            error = ""
        elif kind == "ERROR" and (reported := _REPORTED.match(line)):
            error = reported[2]
            if reported[1]:
                failed.setdefault(_failed_rank(reported[1], reported[3], error), index)
        elif plain := _KIND.match(line):
            comm, kind = "", plain[1]
        elif named := _OPERATION.match(line):
            operation, ahead = named[1], {}
        elif operation and (many := _MANY.match(line)):
            count = int(many[2] or 0)
            ahead[count] = ahead.get(count, 0) + int(many[1])
        elif operation and (one := _ONE.match(line)):
            _add_rank(reports[-1], f"{comm} {operation}", int(one[1]), int(one[2] or 0), ahead, index)
        elif member := _MEMBER.match(line):
            if operation and count is not None:
                _add_rank(reports[-1], f"{comm} {operation}", int(member[1]), count, ahead, index)
            elif kind == "INCOMPLETE":
                missing.setdefault(f"rank {member[1]}" + (f" ({member[2]})" if member[2] else ""), index)
            elif kind == "ERROR" and error:
                failed.setdefault(_failed_rank(member[1], member[2], error), index)
        elif kind == "DEAD" and (process := _PROCESS.match(line)):
            missing.setdefault(f"process {process[1]} ({process[2]})", index)
    yield from _rank_lists(missing, failed, paste)
    yield from _behind(reports, paste)


def _failed_rank(rank: object, host: object, error: str) -> str:
    """``rank 3 (h001): System error``; without the host where RAS does not know it."""
    return f"rank {rank}{f' ({host})' if host else ''}: {error}"[:120]


def _rank_lists(missing: Mapping[str, int], failed: Mapping[str, int], paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.ranks_missing and nccl.ranks_failed, each left out if empty; the mappings give line indexes by text."""
    for name, ranks in (("nccl.ranks_missing", missing), ("nccl.ranks_failed", failed)):
        if ranks:
            yield name, Known(tuple(ranks)[:64], paste.use(next(iter(ranks.values()))))


def _add_rank(report: dict[str, _Lag], key: str, rank: int, count: int, many: Mapping[int, int], line: int) -> None:
    """Add the rank to the report's lag under `key`, made if missing, if its count is below the largest in `many`
    (number of ranks by count); else do nothing. `line` is the index of the line that names the rank; the lag keeps the
    last one.
    """
    most = max(many, default=0)
    if count < most:
        before = report.get(key)
        report[key] = _Lag(most, {**(before.behind if before else {}), rank: count}, many[most], line)


def _behind(reports: Sequence[Mapping[str, _Lag]], paste: Paste) -> Iterator[tuple[str, Fact]]:
    """nccl.ranks_behind, .behind_at, .ahead_at, .ranks_counted: of ranks equally behind in first and last report.

    Nothing for fewer than two reports.
    """
    if len(reports) < _FEWEST_RANKS:
        return
    for key, lag in reports[-1].items():
        before = reports[0].get(key)
        if before and before.ahead == lag.ahead and before.behind == lag.behind:
            source = f"{paste.use(before.line)}, {paste.use(lag.line)}"
            yield "nccl.ranks_behind", Known(tuple(str(rank) for rank in sorted(lag.behind)), source)
            yield "nccl.behind_at", Known(min(lag.behind.values()), source)
            yield "nccl.ahead_at", Known(lag.ahead, source)
            yield "nccl.ranks_counted", Known(lag.ranks + len(lag.behind), source)
            return


def _json_reports(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts of ranks missing, failed and behind from ``ncclras -f json``; reports of one time count as one."""
    reports: dict[object, dict[str, _Lag]] = {}
    missing: dict[str, int] = {}
    failed: dict[str, int] = {}
    for first, last, document in paste.documents:
        comms = document.get("communicators")
        if "nccl_version" not in document or not isinstance(comms, list):
            continue
        paste.use(first, last)
        report = reports.setdefault(document.get("timestamp"), {})
        for comm in comms:
            if isinstance(comm, dict):
                report.update(_lags_of_json(comm, first))
                for rank in _dicts(comm.get("missing_ranks")):
                    missing.setdefault(f"rank {rank.get('rank')} ({rank.get('host')})"[:80], first)
                for rank in _dicts(comm.get("ranks")):
                    if error := _error_of(rank.get("status")):
                        failed.setdefault(_failed_rank(rank.get("rank"), rank.get("host"), error), first)
    yield from _rank_lists(missing, failed, paste)
    yield from _behind(list(reports.values()), paste)


def _error_of(status: object) -> str:
    """The error that a rank's status in JSON holds, by name; empty without one, or while it is in progress."""
    codes = [status.get("init_state"), status.get("async_error")] if isinstance(status, dict) else []
    return next((_ERRORS[code] for code in codes if type(code) is int and code in _ERRORS), "")


def _lags_of_json(comm: Mapping[str, object], line: int) -> Iterator[tuple[str, _Lag]]:
    """(operation key, lag) for each operation whose counts differ between the communicator's ranks."""
    counts: dict[str, dict[int, int]] = {}
    for rank in _dicts(comm.get("ranks")):
        number, launched = rank.get("rank"), rank.get("collective_counts")
        for operation, count in launched.items() if isinstance(launched, dict) else ():
            if isinstance(number, int) and isinstance(count, int):
                counts.setdefault(str(operation), {})[number] = count
    for operation, of_rank in counts.items():
        most = max(of_rank.values())
        behind = {rank: count for rank, count in of_rank.items() if count < most}
        if behind:
            yield f"{comm.get('hash')} {operation}", _Lag(most, behind, len(of_rank) - len(behind), line)


def _dicts(value: object) -> Iterator[Mapping[str, object]]:
    """The mappings in a list of JSON; nothing of another value."""
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _diagnostics(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """nccl.ecc_ranks and .ecc_worst, nccl.links_inactive_ranks, and ``rdma`` rows from NCCL's diagnostics lines.

    Inactive links count only where not all ranks have them.
    """
    ports: list[Row] = []
    for index, line in paste.having("nccl diag ["):
        if not (diagnostic := _DIAG.match(line[:1000])):
            continue
        source = paste.use(index)
        if ecc := _ECC.match(diagnostic[1]):
            yield "nccl.ecc_ranks", Known(_ranks(ecc[1]), source)
            yield "nccl.ecc_worst", Known(int(ecc[2]), source)
        elif (links := _LINKS.match(diagnostic[1])) and int(links[2] or len(_ranks(links[1]))) < int(links[3]):
            yield "nccl.links_inactive_ranks", Known(_ranks(links[1]), source)
        elif net := _NET.match(diagnostic[1]):
            ports.append(_port_row(net.groups(), source))
    if ports:
        yield "rdma", tuple(ports)


def _ranks(text: str) -> tuple[str, ...]:
    """The ranks in a set such as ``5,7``, each once, as text."""
    return tuple(Counter(part for part in text.replace(" ", "").split(",") if part.isdecimal()))


def _port_row(parts: Sequence[str], source: str) -> Row:
    """The row of ``rdma`` for the six parts of a port in NCCL's diagnostics; unknown ones are left out."""
    device, port, speed, layer, state, physical = parts
    named = {"device": device, "link_layer": layer, "state": state, "physical_state": PHYSICAL.get(physical, physical)}
    row = known_facts(source, port=int(port), rate_gbps=int(speed) / 1000, **named)
    return {name: value for name, value in row.items() if value_of(value) != "unknown"}
