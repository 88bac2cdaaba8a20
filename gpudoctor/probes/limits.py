"""Limits that GPU work runs into: shared memory, locked memory, open files, cgroup memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._reading import CGROUPS, NO_LIMIT, as_unread, cpu_quota, list_length, path_exists, refusal, text
from gpudoctor.probes._reading import folders as cgroup_folders
from gpudoctor.target import Target

ONLY = "linux"
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


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``limits`` facts, from statvfs, /proc/self and the cgroup of the process."""
    yield from _shared_memory_facts(target)
    inherited = text(target, "/proc/self/limits", 1 << 16)
    yield "limits.memlock_kib", _limit(inherited, "Max locked memory", 1024)
    yield "limits.open_files", _limit(inherited, "Max open files", 1)
    yield "limits.processes", _limit(inherited, "Max processes", 1)
    yield "limits.stack_kib", _limit(inherited, "Max stack size", 1024)
    cgroup_file = text(target, "/proc/self/cgroup", 1 << 16)
    yield "limits.memory_mib", _memory_limit(target, cgroup_file)
    yield "limits.cpus", _usable_processors(target, cgroup_file)


def _shared_memory_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields limits.shm_mib and shm_free_mib, size and free space of /dev/shm; absent without it, else unread."""
    path = "/dev/shm"
    here = path_exists(target, path)
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
    """The soft limit in the line `name` of /proc/self/limits (`inherited`), divided by `divisor` and rounded down.

    -1 if unlimited; unread if there is no such line.
    """
    if not isinstance(inherited, str):
        return as_unread(inherited)
    match = re.search(rf"^{name}\s+(unlimited|\d{{1,20}})\s", inherited, re.M)
    if not match:
        return Unread(f"/proc/self/limits has no line {name!r}")
    value = -1 if match[1] == "unlimited" else int(match[1]) // divisor
    return Known(value, f"/proc/self/limits: {name}")


def _memory_limit(target: Target, cgroup_file: str | Absent | Unread) -> Fact:
    """The smallest memory limit of the process's cgroup and its parents, in MiB; absent if none is set, else unread.

    `cgroup_file`: the text of /proc/self/cgroup.
    """
    if not isinstance(cgroup_file, str):
        return as_unread(cgroup_file)
    best: Known | None = None
    limit_file_seen = False
    for folder in cgroup_folders(cgroup_file, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            found = text(target, f"{folder}/{name}", 64)
            if isinstance(found, Unread):
                return found
            if not isinstance(found, str):
                continue
            limit_file_seen = True
            if found.isdigit() and int(found) < NO_LIMIT:
                limit = int(found) >> 20
                if best is None or limit < int(str(best.value)):
                    best = Known(limit, f"{folder}/{name}")
    if best:
        return best
    if limit_file_seen:
        return Absent(f"{CGROUPS}: no limit is set")
    root = re.search(r"^(?:0:|\d+:memory):/$", cgroup_file, re.M)
    shown = path_exists(target, CGROUPS)
    if root and shown is True:
        return Absent("the process is in the root cgroup, which has no limit")
    return Unread(f"no memory limit can be read under {CGROUPS}")


def _usable_processors(target: Target, cgroup_file: str | Absent | Unread) -> Fact:
    """How many processors the process may be scheduled on, or the least CPU quota of its cgroups, rounded up, if lower.

    Unread if /proc does not say. `cgroup_file`: the text of /proc/self/cgroup.
    """
    path = "/proc/self/status"
    status = text(target, path, 1 << 16)
    if not isinstance(status, str):
        return as_unread(status)
    match = re.search(r"^Cpus_allowed_list:\s*(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$", status, re.M)
    if not match:
        return Unread(f"{path} has no Cpus_allowed_list")
    allowed = list_length(match[1])
    least = Known(allowed, f"{path}: Cpus_allowed_list")
    for folder in cgroup_folders(cgroup_file, "cpu") if isinstance(cgroup_file, str) else ():
        quota = cpu_quota(target, folder)
        if quota is not None and (whole := max(1, math.ceil(quota))) < allowed:
            allowed, least = whole, Known(whole, f"processor quota in {folder}")
    return least
