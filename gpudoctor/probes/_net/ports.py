"""Who listens on a TCP port of this machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._reading import real, text
from gpudoctor.target import Target

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
_LIMIT = 1 << 23
"""Bytes of a table, 150 for each socket."""

_MOST_ANCESTORS = 64

_JOBS = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
"""Variables that only the processes of one job have with one value."""

_ELASTIC = "TORCHELASTIC_RUN_ID"
"""torchrun's: often the same for all its jobs, whose processes have one parent."""


def listener(target: Target, port: int) -> Fact:
    """Who holds it: ``python (pid 4711)``, or the user where the process is another's; absent where it is free.

    It is not told of a process that started us, or of one of the same job: the job's own store is no obstacle.
    """
    heard = [text(target, path, _LIMIT) for path in _TABLES]
    if not isinstance(heard[0], str):
        return Unread(heard[0].why)
    sockets = [found for table in heard if isinstance(table, str) for found in _listening(table, port)]
    if not sockets:
        return Absent(f"nobody listens on port {port}")
    owner = next((pid for inode, _ in sockets if (pid := _process(target, inode))), "")
    if not owner:
        return Known(f"a process of user {sockets[0][1]}", _TABLES[0])
    if owner in (above := _ancestors(target)) or _same_job(target, owner, above):
        return Absent(f"a process of this job listens on port {port}")
    return Known(f"{_name(target, owner)} (pid {owner})", f"{_TABLES[0]}, /proc/{owner}/fd")


def _listening(table: str, port: int) -> Iterator[tuple[str, str]]:
    """Inode and user of each listening socket: ``0: 00000000:733C 00000000:0000 0A ... uid timeout inode``."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[3] == _LISTEN and words[1].rpartition(":")[2] == f"{port:04X}":
            yield words[9], words[7]


def _process(target: Target, inode: str) -> str:
    """The process that has this socket open; empty where none that we may look into has."""
    for pid in target.listing("/proc"):
        if not pid.isdigit():
            continue
        try:
            handles = target.listing(f"/proc/{pid}/fd")
        except OSError:
            continue
        if any(real(target, f"/proc/{pid}/fd/{handle}").endswith(f"socket:[{inode}]") for handle in handles):
            return pid
    return ""


def _ancestors(target: Target) -> set[str]:
    """Our own process and all above it. ``4711 (name) S 4242 ...``: state and parent follow the last parenthesis."""
    found: set[str] = set()
    pid = "self"
    while pid not in ("", "0") and len(found) < _MOST_ANCESTORS:
        own, pid = _stat(target, pid)
        found.add(own)
    return found - {""}


def _stat(target: Target, pid: str) -> tuple[str, str]:
    """The process's own number and its parent's; empty where it cannot be read."""
    stat = text(target, f"/proc/{pid}/stat", 4096)
    if not isinstance(stat, str):
        return "", ""
    rest = stat.rpartition(")")[2].split()
    return stat.partition(" ")[0], rest[1] if len(rest) > 1 else ""


def _same_job(target: Target, pid: str, above: set[str]) -> bool:
    """Whether the process belongs to our job, by the variables that its launcher gave it."""
    found = text(target, f"/proc/{pid}/environ", 1 << 20)
    if not isinstance(found, str):
        return False
    theirs = dict(entry.partition("=")[::2] for entry in found.split("\0"))
    ours = target.environ
    if any(ours.get(name) and ours[name] == theirs.get(name) for name in _JOBS):
        return True
    elastic = _ELASTIC in ours and ours[_ELASTIC] == theirs.get(_ELASTIC)
    return elastic and _stat(target, pid)[1] in above - {"1"}


def _name(target: Target, pid: str) -> str:
    found = text(target, f"/proc/{pid}/comm", 64)
    return found if isinstance(found, str) and found else "a process"
