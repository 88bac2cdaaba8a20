"""Processes of a job that a signal ended: torchrun, torch.multiprocessing, DataLoader, DeepSpeed, srun, mpirun."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = (
    column(
        "worker_end.kind", "text", "what a signal ended first: rank (a process of the job) or loader (of a DataLoader)"
    ),
    column("worker_end.signal", "text", "the signal, such as SIGKILL"),
    column("worker_end.rank", "int", "number of the rank, or of the process among those of its machine"),
    column("worker_end.host", "text", "its machine"),
    column("worker_end.pid", "int", "its process id"),
)

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
"""Of Linux on x86 and Arm, whatever system this runs on."""
_WORDS = {
    "Illegal instruction": "SIGILL",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Terminated": "SIGTERM",
}
"""The words of the C library for them, in English."""
_WORD = "|".join(_WORDS)
_FAILED = Pattern(
    r"\bfailed \(exitcode: -(?P<number>\d{1,2})\) local_rank: (?P<rank>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"
)
_FIELD = Pattern(r"\s*(?P<name>host|rank|exitcode|traceback) {1,10}: (?P<value>\S.*?)\s*$")
_ROOT = "root cause (first observed failure)"
_EXIT = Pattern(r"-(?P<number>\d{1,2}) +\(pid: (?P<pid>\d{1,9})\)$")
_SPAWNED = Pattern(r"\bprocess (?P<rank>\d{1,5}) terminated with signal (?P<signal>SIG[A-Z]{3,6})\s*$")
_LOADER = Pattern(rf"\bDataLoader worker (?:\(pid (?P<pid>\d{{1,9}})\) )?is killed by signal: (?P<word>{_WORD})\b")
_SRUN = Pattern(
    rf"\s*srun: error: (?P<host>[\w.-]{{1,253}}): task (?P<rank>\d{{1,7}}): (?P<word>{_WORD})(?: \(core dumped\))?\s*$"
)
_DEEPSPEED = Pattern(
    r"\[launch\.py:\d{1,5}:sigkill_handler\] \[(?=[^\n]{0,400}?--local_rank=(?P<rank>\d{1,5})')[^\n]{0,900}\]"
    r" exits with return code = -(?P<number>\d{1,2})\s*$"
)
_MPIRUN = Pattern(
    r"\b(?:mpirun|mpiexec|orterun|prterun) noticed that process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,9})"
    r" on node (?P<host>[\w.-]{1,253}) exited on signal (?P<number>\d{1,2})\b"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``worker_end``: of each launcher the first, for what it ends afterwards is its own doing."""
    firsts = (_of_torchrun(paste), _first(paste), *_loaders(paste))
    rows = tuple(row for row in firsts if row)
    if rows:
        yield "worker_end", rows


def _of_torchrun(paste: Paste) -> dict[str, Fact]:
    """The first failure of torchrun's table, else of its line in the log; empty where no signal ended it."""
    row: dict[str, Fact] = {}
    for index, line in paste.having("failed (exitcode: -"):
        if match := _FAILED.search(line):
            row = _row(paste, index, "rank", _SIGNALS.get(int(match["number"]), ""), match["rank"], "", match["pid"])
            break
    for start, _ in paste.having(_ROOT):
        fields: dict[str, tuple[str, int]] = {}
        for index in range(start + 1, min(start + 9, len(paste.bare))):
            if match := _FIELD.match(paste.bare[index]):
                fields.setdefault(match["name"], (match["value"], index))
        value, index = fields.get("exitcode", ("", start))
        if ended := _EXIT.match(value):
            rank, host = (fields.get(name, ("", 0))[0].partition(" ")[0] for name in ("rank", "host"))
            return _row(paste, index, "rank", _SIGNALS.get(int(ended["number"]), ""), rank, host, ended["pid"]) or row
    return row


def _first(paste: Paste) -> dict[str, Fact]:
    """The first process that spawn, DeepSpeed, srun or mpirun says a signal ended."""
    needles = ("terminated with signal sig", ":sigkill_handler] ", "srun: error: ", " noticed that process rank ")
    for index, line in paste.having(*needles):
        if spawned := _SPAWNED.search(line):
            row = _row(paste, index, "rank", spawned["signal"], spawned["rank"], "", "")
        elif task := _SRUN.match(line):
            row = _row(paste, index, "rank", _WORDS[task["word"]], task["rank"], task["host"], "")
        elif launched := _DEEPSPEED.search(line[:1500]):
            row = _row(paste, index, "rank", _SIGNALS.get(int(launched["number"]), ""), launched["rank"], "", "")
        elif noticed := _MPIRUN.search(line):
            signal = _SIGNALS.get(int(noticed["number"]), "")
            row = _row(paste, index, "rank", signal, noticed["rank"], noticed["host"], noticed["pid"])
        else:
            continue
        if row:
            return row
    return {}


def _loaders(paste: Paste) -> Iterator[dict[str, Fact]]:
    """The first worker of a DataLoader that a signal ended."""
    for index, line in paste.having("is killed by signal: "):
        if match := _LOADER.search(line):
            yield _row(paste, index, "loader", _WORDS[match["word"]], "", "", match["pid"] or "")
            return


def _row(paste: Paste, index: int, kind: str, signal: str, rank: str, host: str, pid: str) -> dict[str, Fact]:
    """The row, without what is empty; none without a signal."""
    if not signal:
        return {}
    source = paste.use(index)
    row: dict[str, Fact] = {"kind": Known(kind, source), "signal": Known(signal, source)}
    if rank.isdecimal():
        row["rank"] = Known(int(rank), source)
    if host:
        row["host"] = Known(host, source)
    return {**row, "pid": Known(int(pid), source)} if int(pid or 0) else row  # Open MPI does not know each
