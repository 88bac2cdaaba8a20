"""What this process may use of the machine: cores, memory, shared memory. Read where the kernel says it."""

from __future__ import annotations

import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

SHM = "/dev/shm"


class Host(NamedTuple):
    """Cores of the machine, those this process may run on, and how many its cgroup pays for (None: no limit)."""

    cores: int
    affinity: int
    quota: Optional[float]
    shm_size: int
    shm_free: int
    temporary: str
    """The folder for temporary files."""

    @property
    def usable(self) -> float:
        """Cores that can be busy at a time."""
        return min(float(self.affinity), self.quota or float(self.affinity))


def host(temporary: str) -> Host:
    """As it is now."""
    size, free = shm_space()
    return Host(os.cpu_count() or 1, len(os.sched_getaffinity(0)), quota(), size, free, temporary)


def busy(root: str = "/") -> float:
    """Seconds that all cores of the machine have worked, for whomever."""
    first = (read(root + "proc/stat").splitlines() or [""])[0].split()
    user, nice, system, _, _, irq, softirq = map(int, first[1:8]) if first[:1] == ["cpu"] else [0] * 7
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def shm_space() -> Tuple[int, int]:
    """Bytes of /dev/shm, and what is free of them; zeros where there is none."""
    try:
        found = os.statvfs(SHM)
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def quota(root: str = "/") -> Optional[float]:
    """Cores that the cgroup pays for, by the tightest of those that this process is in; None without a limit."""
    found: List[float] = []
    for folder in _cgroups(root, "cpu"):
        limit, _, period = read(folder + "/cpu.max").partition(" ")
        if not limit:
            limit, period = read(folder + "/cpu.cfs_quota_us"), read(folder + "/cpu.cfs_period_us")
        if limit.isdigit() and period.isdigit() and int(period):
            found.append(int(limit) / int(period))
    return min(found, default=None)


def free_memory(root: str = "/") -> int:
    """Bytes of the host's memory that can be had: what is available, and what the cgroups leave of their limits."""
    found = [int(line.split()[1]) << 10 for line in read(root + "proc/meminfo").splitlines() if "MemAvailable" in line]
    for folder in _cgroups(root, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, now = read(folder + "/" + limit), read(folder + "/" + used)
            if most.isdigit() and now.isdigit():
                found.append(max(0, int(most) - int(now)))
    return min(found, default=0)


def _cgroups(root: str, controller: str) -> Iterator[str]:
    """The folders of this process's cgroup and of those around it, of version 2 and of version 1."""
    for line in read(root + "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        top = root + "sys/fs/cgroup" + ("/" + controller if names else "")
        while True:
            yield top + path.rstrip("/")
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def read(path: str) -> str:
    """What the file holds, without the blanks around it; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
