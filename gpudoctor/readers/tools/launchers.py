"""Which process of a job failed first, and which a signal ended: torchrun, srun, mpirun, DeepSpeed, DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.frozen import frozen
from gpudoctor.core.system import signal_name
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 8
FACTS = (
    fact("failure.launcher", "text", "the launcher that says which rank failed first: torchrun, srun, mpirun"),
    fact("failure.rank", "int", "the rank that failed first, by its launcher's count"),
    fact("failure.host", "text", "its host"),
    fact("failure.end", "text", "how it ended: exit code 1, SIGKILL"),
    fact("failure.error", "text", "the exception that it printed last; absent where none is known to be its"),
    fact("failure.slurm", "text", "why Slurm ended it: time limit, cancelled, pre-emption, node failure"),
    fact("failure.echo", "text", "words that tell of another rank's end, where these are the last of the text"),
    column(
        "worker_end.kind", "text", "what a signal ended first: rank (a process of the job) or loader (of a DataLoader)"
    ),
    column("worker_end.signal", "text", "the signal, such as SIGKILL"),
    column("worker_end.rank", "int", "number of the rank, or of the process among those of its machine"),
    column("worker_end.host", "text", "its machine"),
    column("worker_end.pid", "int", "its process id"),
)

_ECHO = Pattern(
    r"gloo/transport/\S+\] (?:[^\n]{0,160}?)(?:Connection closed by peer|Connection reset by peer|Broken pipe)"
    r"|gloo/transport/\S+\] Timed out waiting \d+ms for (?:recv|send) operation to complete"
    r"|ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely"
    r"|NCCL error: remote process exited or there was a network error"
    r"|socketProgress\w*: Connection closed by remote peer"
    r"|Process group watchdog thread terminated with exception"
    r"|Watchdog caught collective operation timeout"
    r"|recvValue failed on SocketImpl|failed to recv, got 0 bytes"
    r"|Connection was likely closed\. Did the remote server shutdown or crash\?"
    r"|SignalException: Process \d+ got signal: 15"
)
"""What a rank prints because another one has gone: PyTorch 2.13 (torch/csrc/distributed/c10d, elastic), Gloo, NCCL
2.27 (src/misc/socket.cc, src/init.cc), read and seen 2026-11."""
_SHORT = Pattern(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|Timed out waiting \d+ms|got signal: 15"
    r"|remote process exit(?:ed|ing prematurely)|[Ww]atchdog thread terminated with exception"
    r"|Watchdog caught collective operation timeout|recvValue failed|failed to recv, got 0 bytes"
    r"|Did the remote server shutdown or crash"
)
_ECHO_NEEDLES = (
    *("closed by peer", "reset by peer", "broken pipe", "timed out waiting", "exiting prematurely"),
    *("remote process exited", "closed by remote peer", "watchdog ", "recvvalue failed", "got 0 bytes"),
    *("did the remote server", "got signal: 15"),
)
_RANK = Pattern(r"^\[rank(\d{1,6})\]:\s?")
_EXCEPTION = Pattern(
    r"^(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Timeout))(?:: .*)?$"
)
_WRAPPERS = ("ChildFailedError", "SystemExit", "CalledProcessError")
"""Exceptions of those who wait for the ranks."""

_FIELD = Pattern(r"\s*(?P<name>host|rank|exitcode|traceback) {1,10}: (?P<value>.*?)\s*$")
_NUMBER = Pattern(r"^-?\d{1,7}")
_PID = Pattern(r"\(pid: (\d{1,9})\)$")
_SRUN = Pattern(
    r"^srun: error: (?P<host>[\w.-]{1,253}): task (?P<rank>\d{1,7}): (?P<end>Exited with exit code \d{1,3}|Killed"
    r"|Out Of Memory|Segmentation fault|Bus error|Illegal instruction|Floating point exception|Aborted)\b"
)
_SLURM = Pattern(
    r"^slurmstepd[\w.-]{0,253}: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+"
    r" DUE TO (TIME LIMIT|PREEMPTION|NODE FAILURE)"
)
_SLURM_WORDS = {"TIME LIMIT": "time limit", "PREEMPTION": "pre-emption", "NODE FAILURE": "node failure"}
_MPIRUN_EXIT = Pattern(r"^\s*Process name: (?:\[\[\d+,\d+\],|\[\S+?@\d+,)(?P<rank>\d{1,7})\]")
_MPIRUN_CODE = Pattern(r"^\s*Exit code:\s+(?P<code>\d{1,3})")
_MPIRUN_SIGNAL = Pattern(
    r"\bprocess rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S{1,253})"
    r" exited on signal (?P<number>\d{1,2})\b"
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
_SPAWNED = Pattern(r"\bprocess (?P<rank>\d{1,5}) terminated with signal (?P<signal>SIG[A-Z]{3,6})\s*$")
_LOADER = Pattern(rf"\bDataLoader worker (?:\(pid (?P<pid>\d{{1,9}})\) )?is killed by signal: (?P<word>{_WORD})\b")
_SRUN_SIGNAL = Pattern(
    rf"\s*srun: error: (?P<host>[\w.-]{{1,253}}): task (?P<rank>\d{{1,7}}): (?P<word>{_WORD})(?: \(core dumped\))?\s*$"
)
_DEEPSPEED = Pattern(
    r"\[launch\.py:\d{1,5}:sigkill_handler\] \[(?=[^\n]{0,400}?--local_rank=(?P<rank>\d{1,5})')[^\n]{0,900}\]"
    r" exits with return code = -(?P<number>\d{1,2})\s*$"
)
_CUT, _LONGEST, _TABLE = 2000, 300, 120
"""Characters of a line that are looked at, characters of an exception that are kept, lines of a table."""


@frozen
class _First:
    """The rank that failed first by the launcher's report, and the lines of that report."""

    launcher: str
    rank: int
    line: int
    last: int
    host: str = ""
    end: str = ""
    error: str = ""


@frozen
class _RootCause:
    """An entry of torchrun's table: its lines, its fields, each with its line, and the exception of its traceback."""

    first: int
    last: int
    fields: Mapping[str, tuple[str, int]]
    error: str

    def text(self, field: str) -> str:
        """The text of a field (host, rank, exitcode, traceback) in an entry of torchrun's table; empty without it."""
        return self.fields.get(field, ("", 0))[0]


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts ``failure.*`` (the rank that failed first) and rows of ``worker_end`` (processes that a signal ended)."""
    yield from _failure(paste)
    firsts = (_torchrun_worker_end(paste), _first_ended(paste), *_loaders(paste))
    rows = tuple(row for row in firsts if row)
    if rows:
        yield "worker_end", rows


def _failure(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts ``failure.*`` of the rank that torchrun, srun or mpirun reports first, or of the one that made it fail.

    failure.echo and failure.slurm also without such a report; failure.host, .end and .error are `Absent` where not
    stated.
    """
    if echo := _echo_at_the_end(paste):
        yield "failure.echo", echo
    for match, source in paste.matches(_SLURM.match, " due to "):
        yield "failure.slurm", Known(_SLURM_WORDS[match[1]], source)
    first = _torchrun_failure(paste) or _srun_failure(paste) or _mpirun_failure(paste)
    if not first:
        return
    errors = _last_errors(paste)
    causes = {rank: error for rank, error in errors.items() if not _ECHO.search(error[0])}
    if causes and first.rank in errors and first.rank not in causes:
        rank, (_, line) = next(iter(causes.items()))
        first = _First(first.launcher, rank, line, line)
    source, silent = paste.use(first.line, first.last), Absent("it is not said")
    yield "failure.launcher", Known(first.launcher, source)
    yield "failure.rank", Known(first.rank, source)
    yield "failure.host", Known(first.host, source) if first.host else silent
    yield "failure.end", Known(first.end, source) if first.end else silent
    if first.error:
        yield "failure.error", Known(first.error, source)
    elif first.rank in causes:
        text, line = causes[first.rank]
        yield "failure.error", Known(text[:_LONGEST], paste.use(line))
    else:
        yield "failure.error", Absent("no exception is known to be its")


def _last_errors(paste: Paste) -> dict[int, tuple[str, int]]:
    """By rank, the last exception (``ValueError: why``) in lines that torch prefixes ``[rank3]:``, and its line from 0.

    The ranks are in the order of these lines.
    """
    found: dict[int, tuple[str, int]] = {}
    for index, line in paste.having("[rank"):
        if (prefix := _RANK.match(line)) and (match := _EXCEPTION.match(line[prefix.end() :][:_CUT].rstrip())):
            found.pop(int(prefix[1]), None)
            found[int(prefix[1])] = match[0], index
    return found


def _echo_at_the_end(paste: Paste) -> Known | None:
    """The short words of the last message that a rank printed because another one had gone; None if there is none, or
    if an exception of another kind follows.
    """
    words, last = "", -1
    for index, line in paste.having(*_ECHO_NEEDLES):
        if match := _ECHO.search(line[:_CUT]):
            words, last = (_SHORT.search(match[0]) or match)[0], index
    for line in paste.lines[last + 1 :] if words else ():
        match = _EXCEPTION.match(_RANK.compiled.sub("", line)[:_CUT].rstrip())
        if match and not match["name"].endswith(_WRAPPERS) and not _ECHO.search(match[0]):
            return None
    return Known(words, paste.use(last)) if words else None


def _root_causes(paste: Paste) -> Iterator[_RootCause]:
    """Lines, fields and exception of each "root cause" of torchrun's tables; marks no line as placed."""
    for first, _ in paste.having("root cause (first observed failure)"):
        fields: dict[str, tuple[str, int]] = {}
        error, last = "", first
        for last in range(first + 1, min(first + _TABLE, len(paste.bare))):
            line = paste.bare[last]
            if line.startswith("===="):
                break
            if match := _FIELD.match(line):
                fields.setdefault(match["name"], (match["value"], last))
            elif "traceback" in fields and (match := _EXCEPTION.match(line.strip()[:_CUT])):
                error = match[0][:_LONGEST]
        yield _RootCause(first, last, fields, error)


def _torchrun_failure(paste: Paste) -> _First | None:
    """The root cause in torchrun's last table of failures; None where there is none."""
    first: _First | None = None
    for cause in _root_causes(paste):
        rank, code = _NUMBER.match(cause.text("rank")), _NUMBER.match(cause.text("exitcode"))
        if rank:
            end = _end_text(int(code[0])) if code else ""
            first = _First("torchrun", int(rank[0]), cause.first, cause.last, cause.text("host"), end, cause.error)
    return first


def _srun_failure(paste: Paste) -> _First | None:
    """The first task that srun reports as exited or killed, other than those that srun itself terminated; None where
    there is none.
    """
    for index, line in paste.having("srun: error: "):
        if match := _SRUN.match(line):
            words = match["end"]
            end = _WORDS.get(words) or words.removeprefix("Exited with ").lower()
            return _First("srun", int(match["rank"]), index, index, match["host"], end)
    return None


def _mpirun_failure(paste: Paste) -> _First | None:
    """The process that Open MPI's mpirun names as the first to fail; None where there is none."""
    for index, line in paste.having("exited on signal", "process name: ["):
        if match := _MPIRUN_SIGNAL.search(line):
            return _First("mpirun", int(match["rank"]), index, index, match["host"], _end_text(-int(match["number"])))
        if match := _MPIRUN_EXIT.match(line):
            code = _MPIRUN_CODE.match("".join(paste.lines[index + 1 : index + 2]))
            return _First("mpirun", int(match["rank"]), index, index, end=_end_text(int(code["code"])) if code else "")
    return None


def _end_text(code: int) -> str:
    """``exit code 1``, or a signal's name where the code is negative."""
    return f"exit code {code}" if code >= 0 else signal_name(-code)


def _torchrun_worker_end(paste: Paste) -> dict[str, Fact]:
    """Row of ``worker_end`` for the first failure in torchrun's table, else log, if a signal ended it; else empty."""
    row: dict[str, Fact] = {}
    for index, line in paste.having("failed (exitcode: -"):
        if match := _FAILED.search(line):
            row = _row(paste, index, "rank", _SIGNALS.get(int(match["number"]), ""), match["rank"], "", match["pid"])
            break
    for cause in _root_causes(paste):
        value, index = cause.fields.get("exitcode", ("", cause.first))
        number, pid = _NUMBER.match(value), _PID.search(value)
        if number and pid and number[0].startswith("-"):
            rank, host = (cause.text(name).partition(" ")[0] for name in ("rank", "host"))
            return _row(paste, index, "rank", _SIGNALS.get(-int(number[0]), ""), rank, host, pid[1]) or row
    return row


def _first_ended(paste: Paste) -> dict[str, Fact]:
    """Row of ``worker_end``: the first process that a signal ended, of spawn, DeepSpeed, srun or mpirun; or empty."""
    needles = ("terminated with signal sig", ":sigkill_handler] ", "srun: error: ", " noticed that process rank ")
    for index, line in paste.having(*needles):
        if spawned := _SPAWNED.search(line):
            row = _row(paste, index, "rank", spawned["signal"], spawned["rank"], "", "")
        elif task := _SRUN_SIGNAL.match(line):
            row = _row(paste, index, "rank", _WORDS[task["word"]], task["rank"], task["host"], "")
        elif launched := _DEEPSPEED.search(line[:1500]):
            row = _row(paste, index, "rank", _SIGNALS.get(int(launched["number"]), ""), launched["rank"], "", "")
        elif noticed := _MPIRUN_SIGNAL.search(line):
            signal = _SIGNALS.get(int(noticed["number"]), "")
            row = _row(paste, index, "rank", signal, noticed["rank"], noticed["host"], noticed["pid"])
        else:
            continue
        if row:
            return row
    return {}


def _loaders(paste: Paste) -> Iterator[dict[str, Fact]]:
    """Row of ``worker_end`` for the first DataLoader worker that a signal ended; nothing if there is none."""
    for index, line in paste.having("is killed by signal: "):
        if match := _LOADER.search(line):
            yield _row(paste, index, "loader", _WORDS[match["word"]], "", "", match["pid"] or "")
            return


def _row(paste: Paste, index: int, kind: str, signal: str, rank: str, host: str, pid: str) -> dict[str, Fact]:
    """A row of ``worker_end``: kind, signal, rank, host, pid; without those not known; empty without a signal."""
    if not signal:
        return {}
    source = paste.use(index)
    row: dict[str, Fact] = {"kind": Known(kind, source), "signal": Known(signal, source)}
    if rank.isdecimal():
        row["rank"] = Known(int(rank), source)
    if host:
        row["host"] = Known(host, source)
    return {**row, "pid": Known(int(pid), source)} if int(pid or 0) else row  # Open MPI does not know each
