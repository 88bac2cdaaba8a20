"""Which rank of a job failed first: what torchrun, srun and mpirun say of it, and what the ranks themselves print."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

FACTS = (
    fact("failure.launcher", "text", "the launcher that says which rank failed first: torchrun, srun, mpirun"),
    fact("failure.rank", "int", "the rank that failed first, by its launcher's count"),
    fact("failure.host", "text", "its host"),
    fact("failure.end", "text", "how it ended: exit code 1, SIGKILL"),
    fact("failure.error", "text", "the exception that it printed last; absent where none is known to be its"),
    fact("failure.slurm", "text", "why Slurm ended it: time limit, cancelled, pre-emption, node failure"),
    fact("failure.echo", "text", "words that tell of another rank's end, where these are the last of the text"),
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

_FIELD = Pattern(r"^\s{1,4}(?P<name>host|rank|exitcode|traceback)\s*:\s(?P<value>.*)$")
_NUMBER = Pattern(r"^-?\d{1,7}")
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
    r"process rank (?P<rank>\d{1,7}) with PID \d+ on node (?P<host>\S{1,253}) exited on signal (?P<number>\d{1,2})\b"
)
_CUT, _LONGEST, _TABLE = 2000, 300, 120
"""Characters of a line that are looked at, characters of an exception that are kept, lines of a table."""
_SIGNALS = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Aborted": "SIGABRT",
}


@frozen
class _First:
    """The rank that failed first, and the lines that say so."""

    launcher: str
    rank: int
    line: int
    last: int
    host: str = ""
    end: str = ""
    error: str = ""


@frozen
class _Error:
    """An exception's line, and its index."""

    text: str
    line: int


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The facts ``failure.*``: the launcher's word, unless that names a rank whose own words tell of another's end."""
    if echo := _echo_at_the_end(paste):
        yield "failure.echo", echo
    for index, line in paste.having(" due to "):
        if match := _SLURM.match(line):
            yield "failure.slurm", Known(_SLURM_WORDS[match[1]], paste.use(index))
    first = _by_torchrun(paste) or _by_srun(paste) or _by_mpirun(paste)
    if not first:
        return
    errors = _last_errors(paste)
    causes = {rank: error for rank, error in errors.items() if not _ECHO.search(error.text)}
    if causes and first.rank in errors and first.rank not in causes:
        rank, error = next(iter(causes.items()))
        first = _First(first.launcher, rank, error.line, error.line)
    source, silent = paste.use(first.line, first.last), Absent("it is not said")
    yield "failure.launcher", Known(first.launcher, source)
    yield "failure.rank", Known(first.rank, source)
    yield "failure.host", Known(first.host, source) if first.host else silent
    yield "failure.end", Known(first.end, source) if first.end else silent
    if first.error:
        yield "failure.error", Known(first.error, source)
    elif first.rank in causes:
        own = causes[first.rank]
        yield "failure.error", Known(own.text[:_LONGEST], paste.use(own.line))
    else:
        yield "failure.error", Absent("no exception is known to be its")


def _last_errors(paste: Paste) -> dict[int, _Error]:
    """The last exception of each rank that torch has named before its line, in the order of the text."""
    found: dict[int, _Error] = {}
    for index, line in paste.having("[rank"):
        if (prefix := _RANK.match(line)) and (match := _EXCEPTION.match(line[prefix.end() :][:_CUT].rstrip())):
            found.pop(int(prefix[1]), None)
            found[int(prefix[1])] = _Error(match[0], index)
    return found


def _echo_at_the_end(paste: Paste) -> Known | None:
    """The last words of an echo, where no exception of another kind comes after them."""
    words, last = "", -1
    for index, line in paste.having(*_ECHO_NEEDLES):
        if match := _ECHO.search(line[:_CUT]):
            words, last = (_SHORT.search(match[0]) or match)[0], index
    for line in paste.lines[last + 1 :] if words else ():
        match = _EXCEPTION.match(_RANK.compiled.sub("", line)[:_CUT].rstrip())
        if match and not match["name"].endswith(_WRAPPERS) and not _ECHO.search(match[0]):
            return None
    return Known(words, paste.use(last)) if words else None


def _by_torchrun(paste: Paste) -> _First | None:
    """The root cause of torchrun's last table of failures."""
    first: _First | None = None
    for index, _ in paste.having("root cause (first observed failure):"):
        entry: dict[str, str] = {}
        last = index
        for last in range(index + 1, min(index + _TABLE, len(paste.lines))):
            line = paste.lines[last]
            if line.startswith("===="):
                break
            if match := _FIELD.match(line):
                entry.setdefault(match["name"], match["value"].strip())
            elif "traceback" in entry and (match := _EXCEPTION.match(line.strip()[:_CUT])):
                entry["error"] = match[0][:_LONGEST]
        rank, code = _NUMBER.match(entry.get("rank", "")), _NUMBER.match(entry.get("exitcode", ""))
        if rank:
            host, end = entry.get("host", ""), _end(int(code[0])) if code else ""
            first = _First("torchrun", int(rank[0]), index, last, host, end, entry.get("error", ""))
    return first


def _by_srun(paste: Paste) -> _First | None:
    """The first task whose end srun tells of; those that it ends itself come after it."""
    for index, line in paste.having("srun: error: "):
        if match := _SRUN.match(line):
            words = match["end"]
            end = _SIGNALS.get(words) or words.removeprefix("Exited with ").lower()
            return _First("srun", int(match["rank"]), index, index, match["host"], end)
    return None


def _by_mpirun(paste: Paste) -> _First | None:
    """The process that Open MPI's mpirun names as the first."""
    for index, line in paste.having("exited on signal", "process name: ["):
        if match := _MPIRUN_SIGNAL.search(line):
            return _First("mpirun", int(match["rank"]), index, index, match["host"], _end(-int(match["number"])))
        if match := _MPIRUN_EXIT.match(line):
            code = _MPIRUN_CODE.match("".join(paste.lines[index + 1 : index + 2]))
            return _First("mpirun", int(match["rank"]), index, index, end=_end(int(code["code"])) if code else "")
    return None


def _end(code: int) -> str:
    """``exit code 1``, or a signal's name where the code is negative."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
