"""What the command shares with others: its control group, the machine's memory, /dev/shm and the disk it works on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._job.waiting import mount_in
from gpudoctor.probes._reading import CGROUPS, NO_LIMIT, folders, text
from gpudoctor.target import Target

_SOURCE = "sampled while it ran"
_SHM = "/dev/shm"


@dataclass(slots=True)
class Group:
    """The counters and limits of the control group that the command runs in, of either version.

    `folder` is its memory folder, `limiting` that of it or the parent whose limit is the least; empty where none is.
    `pids` has the folders that count refused forks: its own and, since Linux 6.11, that of the limit.
    """

    folder: str = ""
    limiting: str = ""
    limit: int = 0
    is_root: bool = False
    """Whether it is the root of version 2, which has neither limits nor events."""
    pids: tuple[str, ...] = ()

    @classmethod
    def of_this_process(cls, target: Target) -> Group:
        """The group that this process is in."""
        group = cls()
        listed = text(target, "/proc/self/cgroup", 1 << 16)
        if not isinstance(listed, str):
            return group
        for folder in folders(listed, "memory"):
            if not group.folder and any(_has(target, folder, name) for name in ("memory.events", "memory.oom_control")):
                group.folder = folder
            for name in ("memory.max", "memory.limit_in_bytes"):
                value = _number(target, f"{folder}/{name}")
                if value is not None and value < NO_LIMIT and (not group.limit or value < group.limit):
                    group.limit, group.limiting = value, folder
        own_root = re.search(r"^0::/$", listed, re.M) and not group.folder
        group.is_root = bool(own_root) and _has(target, CGROUPS, "cgroup.controllers")
        counting = [one for one in folders(listed, "pids") if _has(target, one, "pids.events")]
        limits = {one: limit for one in counting if (limit := _number(target, f"{one}/pids.max")) is not None}
        group.pids = tuple(dict.fromkeys((*counting[:1], *sorted(limits, key=lambda one: limits[one])[:1])))
        return group

    def counts(self, target: Target) -> dict[str, int]:
        """The counters by the names of the facts ``run.*``; those that cannot be read are left out."""
        each = [_count(target, f"{folder}/pids.events", "max") for folder in self.pids]
        refused = [count for count in each if count is not None]
        found = {
            "oom_kills": _count(target, f"{self.folder}/memory.events", "oom_kill"),
            "limit_reached": _count(target, f"{self.limiting}/memory.events.local", "max"),
            "forks_refused": sum(refused) if refused else None,
            "machine_kills": _count(target, "/proc/vmstat", "oom_kill"),
        }
        if self.folder and found["oom_kills"] is None:
            found["oom_kills"] = _count(target, f"{self.folder}/memory.oom_control", "oom_kill")
        if self.limiting and found["limit_reached"] is None:  # before Linux 5.2, where limits below it count, too
            found["limit_reached"] = _count(target, f"{self.limiting}/memory.events", "max")
        if self.limiting and found["limit_reached"] is None:
            found["limit_reached"] = _number(target, f"{self.limiting}/memory.failcnt")
        return {name: count for name, count in found.items() if count is not None}

    def used(self, target: Target) -> int | None:
        """Bytes charged to the limiting group, page cache included; None if there is none."""
        if not self.limiting:
            return None
        used = _number(target, f"{self.limiting}/memory.current")
        return used if used is not None else _number(target, f"{self.limiting}/memory.usage_in_bytes")

    def peak(self, target: Target) -> int | None:
        """The most bytes that the limiting group has ever held; None where the kernel does not count that."""
        if not self.limiting:
            return None
        peak = _number(target, f"{self.limiting}/memory.peak")
        return peak if peak is not None else _number(target, f"{self.limiting}/memory.max_usage_in_bytes")


def processors(target: Target) -> Fact:
    """How many processors this process and what it starts may use: its affinity, and the quota of its cgroups."""
    least = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 0)
    source = "sched_getaffinity"
    listed = text(target, "/proc/self/cgroup", 1 << 16)
    for folder in folders(listed, "cpu") if isinstance(listed, str) else ():
        quota = text(target, f"{folder}/cpu.max", 64)
        if not isinstance(quota, str):
            quota, period = (text(target, f"{folder}/cpu.cfs_{name}_us", 64) for name in ("quota", "period"))
            quota = f"{quota} {period}"
        match = re.match(r"(\d{1,15}) (\d{1,15})", quota)
        if match and int(match[2]) and int(match[1]) / int(match[2]) < least:
            least, source = int(match[1]) / int(match[2]), folder
    return Known(round(least, 2), source) if least else Unread("the system does not tell")


@dataclass(slots=True)
class SharedResources:
    """Extremes of shared memory, disk and cgroup usage in MiB over all looks, and counters at the start."""

    target: Target
    group: Group
    disk: Fact
    _disk_path: str
    _before: dict[str, int] = field(default_factory=dict)
    _least: dict[str, int] = field(default_factory=dict)
    _most: int = 0
    _peak_before: int | None = None
    _shm: int = 0

    @classmethod
    def here(cls, target: Target, folder: str) -> SharedResources:
        """Resources of a command in this process's cgroup, working in that folder."""
        group = Group.of_this_process(target)
        disk = _mount_of(target, folder)
        where = folder if isinstance(disk, Known) else ""
        return cls(target, group, disk, where, group.counts(target), _peak_before=group.peak(target))

    def look(self) -> None:
        """Read all values once, and update the extremes."""
        memory = text(self.target, "/proc/meminfo", 4096)
        match = re.search(r"^MemAvailable:\s*(\d{1,15}) kB", memory, re.M) if isinstance(memory, str) else None
        if match:
            self._lowest("machine_low_mib", int(match[1]) >> 10)
        self._most = max(self._most, (self.group.used(self.target) or 0) >> 20)
        peak = self.group.peak(self.target)
        if peak is not None and self._peak_before is not None and peak > self._peak_before:
            self._most = max(self._most, peak >> 20)  # between two looks: it is of this run
        for name, path in (("shm_low_mib", _SHM), ("disk_low_mib", self._disk_path)):
            try:
                total, free = self.target.space(path) if path else (0, -1)
            except OSError:
                continue
            if free >= 0:
                self._lowest(name, free >> 20)
            if path == _SHM:
                self._shm = total >> 20

    def _lowest(self, name: str, value: int) -> None:
        """Keep the value if it is the lowest so far."""
        self._least[name] = min(value, self._least.get(name, value))

    def facts(self) -> dict[str, Fact]:
        """Facts ``run.*`` of these resources, with the increase of counters since the start."""
        nobody = Unread("it was not seen while the command ran")
        least = {f"run.{name}": Known(value, _SOURCE) for name, value in self._least.items()}
        facts: dict[str, Fact] = {
            **dict.fromkeys(("run.machine_low_mib", "run.shm_low_mib", "run.disk_low_mib"), nobody),
            **least,
            "run.disk": self.disk,
            "run.processors": processors(self.target),
            "run.shm_mib": Known(self._shm, _SHM) if self._shm else nobody,
        }
        if isinstance(self.disk, Absent):
            facts["run.disk_low_mib"] = self.disk
        group = self.group
        has_none = group.folder or group.is_root
        unlimited = Absent("its control group has no limit") if has_none else Unread("no control group is shown")
        facts["run.memory_limit_mib"] = Known(group.limit >> 20, group.limiting) if group.limit else unlimited
        facts["run.memory_limit_at"] = Known(group.limiting, group.limiting) if group.limit else unlimited
        facts["run.cgroup_peak_mib"] = Known(self._most, group.limiting) if self._most else unlimited
        return {**facts, **self._gains(unlimited)}

    def _gains(self, unlimited: Fact) -> dict[str, Fact]:
        """Facts with the increase of each counter since the start; `unlimited` where no group limits memory."""
        now = self.group.counts(self.target)
        gained = {name: now[name] - before for name, before in self._before.items() if name in now}
        machine = gained.pop("machine_kills", None)
        if machine == 0:
            gained["oom_kills"] = 0  # nobody was killed on the whole machine
        facts: dict[str, Fact] = dict.fromkeys(
            ("run.oom_kills", "run.forks_refused"), Unread("the control group's counters are not shown")
        )
        facts["run.limit_reached"] = unlimited
        facts.update({f"run.{name}": Known(max(0, count), "counters of the cgroup") for name, count in gained.items()})
        return facts


def _has(target: Target, folder: str, name: str) -> bool:
    """Whether the folder has that file."""
    try:
        return target.exists(f"{folder}/{name}")
    except OSError:
        return False


def _number(target: Target, path: str) -> int | None:
    """The number in a file; None for ``max`` and where it cannot be read."""
    content = text(target, path, 64)
    return int(content) if isinstance(content, str) and content.isdigit() else None


def _count(target: Target, path: str, name: str) -> int | None:
    """The number of the line ``name NUMBER`` in a file; None where there is none."""
    content = text(target, path, 1 << 16)
    match = re.search(rf"^{name} (\d{{1,18}})$", content, re.M) if isinstance(content, str) else None
    return int(match[1]) if match else None


def _mount_of(target: Target, folder: str) -> Fact:
    """The mount point that holds the folder; absent where it is of a network file system, which may not answer."""
    listed = text(target, "/proc/self/mountinfo", 1 << 18)
    if not isinstance(listed, str):
        return Unread("the mounts are not shown")
    best = mount_in(listed, folder)
    if best and best.remote:
        return Absent(f"{best.point} is of a network file system ({best.kind})")
    if best and os.path.isabs(best.point):  # noqa: PTH117
        return Known(best.point, "/proc/self/mountinfo")
    return Unread("its mount is not shown")
