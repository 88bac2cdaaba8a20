"""Limits that GPU work runs into: shared memory, locked memory, open files, cgroup memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._reading import refusal, text, there
from gpudoctor.target import Target

FACTS = (
    fact("limits.shm_mib", "int", "size of /dev/shm", "MiB"),
    fact("limits.shm_free_mib", "int", "free space of /dev/shm", "MiB"),
    fact("limits.memlock_kib", "int", "memory this session may lock; -1 is unlimited", "KiB"),
    fact("limits.open_files", "int", "files this session may open; -1 is unlimited"),
    fact("limits.processes", "int", "processes and threads this user may have; -1 is unlimited"),
    fact("limits.stack_kib", "int", "stack of a new thread; -1 is unlimited", "KiB"),
    fact("limits.memory_mib", "int", "memory limit of the cgroup; absent where there is none", "MiB"),
    fact("limits.cpus", "int", "processors this session may use"),
)

_CGROUPS = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes "no limit" as the largest whole number of pages."""


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From statvfs, /proc/self and the cgroup of the process; limits of the session are those it inherits."""
    yield from _shared_memory(target)
    inherited = text(target, "/proc/self/limits", 1 << 16)
    yield "limits.memlock_kib", _limit(inherited, "Max locked memory", 1024)
    yield "limits.open_files", _limit(inherited, "Max open files", 1)
    yield "limits.processes", _limit(inherited, "Max processes", 1)
    yield "limits.stack_kib", _limit(inherited, "Max stack size", 1024)
    own = text(target, "/proc/self/cgroup", 1 << 16)
    yield "limits.memory_mib", _memory(target, own)
    yield "limits.cpus", _processors(target, own)


def _shared_memory(target: Target) -> Iterator[tuple[str, Fact]]:
    path = "/dev/shm"
    here = there(target, path)
    size: Fact
    free: Fact
    if here is True:
        try:
            total, left = target.space(path)
        except OSError as error:
            size = free = refusal(path, error)
        else:
            size = Known(total >> 20, path)
            free = Known(left >> 20, path)
    else:
        size = free = here if isinstance(here, Unread) else Absent(f"no {path}")
    yield "limits.shm_mib", size
    yield "limits.shm_free_mib", free


def _limit(inherited: str | Absent | Unread, name: str, divisor: int) -> Fact:
    """The soft limit in a line ``Max open files   1024   524288   files``."""
    if not isinstance(inherited, str):
        return Unread(inherited.why)
    match = re.search(rf"^{name}\s+(unlimited|\d{{1,18}})\s", inherited, re.M)
    if not match:
        return Unread(f"/proc/self/limits has no line {name!r}")
    value = -1 if match[1] == "unlimited" else int(match[1]) // divisor
    return Known(value, f"/proc/self/limits: {name}")


def _folders(own: str, controller: str) -> list[str]:
    """The folders that may hold this process's limits, its own first, then each above it.

    Lines of /proc/self/cgroup: ``0::/user.slice`` in version 2, ``4:memory:/docker/ab12`` in version 1. In a
    container the path may be the host's, which is not mounted here: the last folder, the mount, is then its own.
    """
    version1 = re.search(rf"^\d+:(?:[^:\n]*,)?{controller}(?:,[^:\n]*)?:(/.*)$", own, re.M)
    version2 = re.search(r"^0::(/.*)$", own, re.M)
    out: list[str] = []
    for match, mount in ((version1, f"{_CGROUPS}/{controller}"), (version2, _CGROUPS)):
        inside = match[1].rstrip("/") if match else None
        while inside:
            out.append(mount + inside)
            inside = inside.rpartition("/")[0]
        out += [mount] if match else []
    return out


def _memory(target: Target, own: str | Absent | Unread) -> Fact:
    """The smallest limit on the way up."""
    if not isinstance(own, str):
        return Unread(own.why)
    best: Known | None = None
    heard = False
    for folder in _folders(own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            found = text(target, f"{folder}/{name}", 64)
            if isinstance(found, Unread):
                return found
            if not isinstance(found, str):
                continue
            heard = True
            if found.isdigit() and int(found) < _NO_LIMIT:
                limit = int(found) >> 20
                if best is None or limit < int(str(best.value)):
                    best = Known(limit, f"{folder}/{name}")
    if best:
        return best
    if heard:
        return Absent(f"{_CGROUPS}: no limit is set")
    root = re.search(r"^(?:0:|\d+:memory):/$", own, re.M)
    shown = there(target, _CGROUPS)
    if root and shown is True:
        return Absent("the process is in the root cgroup, which has no limit")
    return Unread(f"no memory limit can be read under {_CGROUPS}")


def _processors(target: Target, own: str | Absent | Unread) -> Fact:
    """Those the scheduler may use, or fewer where the cgroup has a quota (rounded up)."""
    path = "/proc/self/status"
    status = text(target, path, 1 << 16)
    if not isinstance(status, str):
        return Unread(status.why)
    match = re.search(r"^Cpus_allowed_list:\s*([\d,-]+)$", status, re.M)
    if not match:
        return Unread(f"{path} has no Cpus_allowed_list")
    allowed = _count(match[1])
    for folder in _folders(own, "cpu") if isinstance(own, str) else ():
        quota = _quota(target, folder)
        if quota and quota < allowed:
            return Known(quota, f"processor quota in {folder}")
    return Known(allowed, f"{path}: Cpus_allowed_list")


def _count(ranges: str) -> int:
    """The number of processors in ``0-3,8``."""
    spans = re.findall(r"\b(\d{1,6})(?:-(\d{1,6}))?\b", ranges)
    return sum(int(last or first) - int(first) + 1 for first, last in spans)


def _quota(target: Target, folder: str) -> int | None:
    """Processors' worth of time: ``cpu.max`` holds ``200000 100000``, or ``max 100000`` without a quota."""
    found = text(target, f"{folder}/cpu.max", 64)
    if not isinstance(found, str):
        parts = [text(target, f"{folder}/cpu.cfs_{name}_us", 64) for name in ("quota", "period")]
        found = " ".join(part if isinstance(part, str) else "" for part in parts)
    match = re.fullmatch(r"(\d+) (\d+)", found)
    return max(1, -(-int(match[1]) // max(1, int(match[2])))) if match else None
