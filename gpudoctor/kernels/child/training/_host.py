"""What this process may use of the machine: cores, memory, shared memory. Read where the kernel says it."""

from __future__ import annotations

import os
import sys
from typing import Iterator, List, NamedTuple, Optional, Tuple

SHM = "/dev/shm"


class Host(NamedTuple):
    """What this process may use: cores (`quota`: by its cgroup, None without limit) and bytes of /dev/shm."""

    cores: int
    affinity: int
    quota: Optional[float]
    shm_size: int
    shm_free: int
    temporary: str
    """The folder for temporary files."""

    @property
    def usable(self) -> float:
        """Cores that can be busy at a time: the smaller of affinity and quota."""
        return min(float(self.affinity), self.quota or float(self.affinity))


def read_host(temporary: str) -> Host:
    """Cores, affinity, CPU quota and /dev/shm of this process now; `temporary`, its temporary folder, as given."""
    size, free = shm_space()
    return Host(os.cpu_count() or 1, usable_cores(), cpu_quota(), size, free, temporary)


def usable_cores() -> int:
    """Number of cores that this process may run on; on Windows all."""
    if sys.platform == "win32":
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def clock_ticks() -> int:
    """Ticks in a second of /proc's times; 100 on Windows, which has none."""
    if sys.platform == "win32":
        return 100
    return os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """CPU seconds that all cores together have worked since boot; 0 if /proc/stat cannot be read."""
    first = (read_text("/proc/stat").splitlines() or [""])[0].split()
    user, nice, system, _, _, irq, softirq = map(int, first[1:8]) if first[:1] == ["cpu"] else [0] * 7
    return (user + nice + system + irq + softirq) / clock_ticks()


def shm_space() -> Tuple[int, int]:
    """Bytes of /dev/shm: size, free; zeros where there is none."""
    if sys.platform == "win32":
        return 0, 0
    try:
        status = os.statvfs(SHM)
    except OSError:
        return 0, 0
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def cpu_quota(root: str = "/") -> Optional[float]:
    """Cores by the tightest CPU quota of this process's cgroups; None without a limit."""
    quotas: List[float] = []
    for folder in _cgroups(root, "cpu"):
        limit, _, period = read_text(folder + "/cpu.max").partition(" ")
        if not limit:
            limit, period = read_text(folder + "/cpu.cfs_quota_us"), read_text(folder + "/cpu.cfs_period_us")
        if limit.isdigit() and period.isdigit() and int(period):
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def free_memory(root: str = "/") -> int:
    """Bytes of host memory that can be had: MemAvailable, or less where a cgroup leaves less; 0 if unknown.

    What a cgroup holds of files that nobody uses is given back where it is needed, and counts as free.
    """
    amounts = [
        int(line.split()[1]) << 10 for line in read_text(root + "proc/meminfo").splitlines() if "MemAvailable" in line
    ]
    for folder in _cgroups(root, "memory"):
        held = dict(line.split(" ", 1) for line in read_text(folder + "/memory.stat").splitlines() if " " in line)
        files = int(held.get("total_inactive_file") or held.get("inactive_file") or 0)
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit_bytes, used_bytes = read_text(folder + "/" + limit), read_text(folder + "/" + used)
            if limit_bytes.isdigit() and used_bytes.isdigit():
                amounts.append(max(0, int(limit_bytes) - int(used_bytes) + files))
    return min(amounts, default=0)


def _cgroups(root: str, controller: str) -> Iterator[str]:
    """Yield the folders of this process's cgroup and all its parents for the controller, of cgroup v2 and v1."""
    for line in read_text(root + "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        top = root + "sys/fs/cgroup" + ("/" + controller if names else "")
        while True:
            yield top + path.rstrip("/")
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def read_text(path: str) -> str:
    """The file's text without surrounding whitespace; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
