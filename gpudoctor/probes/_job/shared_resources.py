"""What the command shares with others: its control group, the machine's memory, /dev/shm and the disk it works on."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._reading import CGROUPS, NO_LIMIT, cpu_quota, folders, mount_in, text
from gpudoctor.target import Target

_SOURCE = "sampled while it ran"
_SHM = "/dev/shm"


@dataclass(slots=True)
class Group:
    """The counters and limits of the control group that the command runs in, of either version.

    `folder` is its memory folder, `limiting` that of it or the parent whose limit is the least, `slowing` likewise of
    memory.high, above which the kernel holds processes back; limits in bytes, 0 and no folder where there is none.
    `pids` has the folders that count refused forks: its own and, since Linux 6.11, that of the limit.
    """

    folder: str = ""
    limiting: str = ""
    limit: int = 0
    slowing: str = ""
    high: int = 0
    is_root: bool = False
    """Whether it is the root of version 2, which has neither limits nor events."""
    pids: tuple[str, ...] = ()

    @classmethod
    def of_this_process(cls, target: Target) -> Group:
        """The control group that this process is in, with its limits; an empty `Group` if /proc does not say."""
        group = cls()
        listed = text(target, "/proc/self/cgroup", 1 << 16)
        if not isinstance(listed, str):
            return group
        places = folders(listed, "memory")
        counting = ("memory.events", "memory.oom_control")
        group.folder = next((one for one in places if any(_has(target, one, name) for name in counting)), "")
        group.limit, group.limiting = _least(target, places, ("memory.max", "memory.limit_in_bytes"))
        group.high, group.slowing = _least(target, places, ("memory.high",))
        own_root = re.search(r"^0::/$", listed, re.M) and not group.folder
        group.is_root = bool(own_root) and _has(target, CGROUPS, "cgroup.controllers")
        pids = [one for one in folders(listed, "pids") if _has(target, one, "pids.events")]
        _, limited = _least(target, pids, ("pids.max",))
        group.pids = tuple(dict.fromkeys((*pids[:1], *filter(None, (limited,)))))
        return group

    def counts(self, target: Target) -> dict[str, int]:
        """The counters oom_kills, limit_reached, memory_throttled, forks_refused and machine_kills so far.

        Those that cannot be read are left out.
        """
        each = [_count(target, f"{folder}/pids.events", "max") for folder in self.pids]
        refused = [count for count in each if count is not None]
        found = {
            "oom_kills": _count(target, f"{self.folder}/memory.events", "oom_kill"),
            "limit_reached": _events(target, self.limiting, "max"),
            "memory_throttled": _events(target, self.slowing, "high"),
            "forks_refused": sum(refused) if refused else None,
            "machine_kills": _count(target, "/proc/vmstat", "oom_kill"),
        }
        if self.folder and found["oom_kills"] is None:
            found["oom_kills"] = _count(target, f"{self.folder}/memory.oom_control", "oom_kill")
        if self.limiting and found["limit_reached"] is None:
            found["limit_reached"] = _number(target, f"{self.limiting}/memory.failcnt")
        return {name: count for name, count in found.items() if count is not None}

    def used(self, target: Target) -> int | None:
        """Bytes now charged to the group with the least memory limit, page cache included; None without a limit."""
        if not self.limiting:
            return None
        used = _number(target, f"{self.limiting}/memory.current")
        return used if used is not None else _number(target, f"{self.limiting}/memory.usage_in_bytes")

    def peak(self, target: Target) -> int | None:
        """The most bytes that the group with the least memory limit ever held; None without a limit, or not counted."""
        if not self.limiting:
            return None
        peak = _number(target, f"{self.limiting}/memory.peak")
        return peak if peak is not None else _number(target, f"{self.limiting}/memory.max_usage_in_bytes")


def processors(target: Target) -> Fact:
    """How many processors this process and what it starts may use (may be a fraction).

    The number in its affinity, or the least CPU quota of its cgroups if that is lower; unread if the system does not
    say.
    """
    least = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 0)
    source = "sched_getaffinity"
    listed = text(target, "/proc/self/cgroup", 1 << 16)
    for folder in folders(listed, "cpu") if isinstance(listed, str) else ():
        quota = cpu_quota(target, folder)
        if quota is not None and quota < least:
            least, source = quota, folder
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
        """Resources of a command in this process's cgroup that works in `folder`, with their counters read now."""
        group = Group.of_this_process(target)
        disk = _mount_of(target, folder)
        where = folder if isinstance(disk, Known) else ""
        return cls(target, group, disk, where, group.counts(target), _peak_before=group.peak(target))

    def look(self) -> None:
        """Read available memory, cgroup memory, /dev/shm and disk once, and update the extremes."""
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
        """Keep the value under `name` if it is the lowest so far."""
        self._least[name] = min(value, self._least.get(name, value))

    def facts(self) -> dict[str, Fact]:
        """The facts ``run.*`` of memory, /dev/shm, disk, processors and cgroup, with counters' gains since the start.

        What was never read is unread.
        """
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
        unlimited, at = self._no_setting("limit"), group.limiting
        facts["run.memory_limit_mib"] = Known(group.limit >> 20, at) if group.limit else unlimited
        facts["run.memory_limit_at"] = Known(at, at) if group.limit else unlimited
        facts["run.memory_high_mib"] = (
            Known(group.high >> 20, group.slowing) if group.high else self._no_setting("memory.high")
        )
        facts["run.cgroup_peak_mib"] = Known(self._most, at) if self._most else unlimited
        return {**facts, **self._gains()}

    def _no_setting(self, setting: str) -> Absent | Unread:
        """Absent: the command's control group has no such `setting`; unread where no control group is shown."""
        shown = self.group.folder or self.group.is_root
        return Absent(f"its control group has no {setting}") if shown else Unread("no control group is shown")

    def _gains(self) -> dict[str, Fact]:
        """The facts run.oom_kills, forks_refused, limit_reached and memory_throttled: counts since the start.

        Unread where not counted; the last two are absent without such a limit.
        """
        now = self.group.counts(self.target)
        gained = {name: now[name] - before for name, before in self._before.items() if name in now}
        machine = gained.pop("machine_kills", None)
        if machine == 0:
            gained["oom_kills"] = 0  # nobody was killed on the whole machine
        uncounted = Unread("the control group's counters are not shown")
        facts: dict[str, Fact] = dict.fromkeys(("run.oom_kills", "run.forks_refused"), uncounted)
        facts["run.limit_reached"] = self._no_setting("limit")
        facts["run.memory_throttled"] = uncounted if self.group.high else self._no_setting("memory.high")
        facts.update({f"run.{name}": Known(max(0, count), "counters of the cgroup") for name, count in gained.items()})
        return facts


def _has(target: Target, folder: str, name: str) -> bool:
    """True if the folder has that file; False also if that cannot be told."""
    try:
        return target.exists(f"{folder}/{name}")
    except OSError:
        return False


def _number(target: Target, path: str) -> int | None:
    """The number in a file; None for ``max`` and where it cannot be read."""
    content = text(target, path, 64)
    return int(content) if isinstance(content, str) and content.isdigit() else None


def _least(target: Target, places: Sequence[str], names: Sequence[str]) -> tuple[int, str]:
    """(smallest limit in bytes, its folder) among files of these names in these folders; (0, ``""``) if none."""
    limits = ((_number(target, f"{folder}/{name}"), folder) for folder in places for name in names)
    found = [(limit, folder) for limit, folder in limits if limit is not None and limit < NO_LIMIT]
    return min(found, key=lambda one: one[0], default=(0, ""))


def _events(target: Target, folder: str, name: str) -> int | None:
    """How often the memory of that control group itself met event `name`.

    None where it is not counted or `folder` is empty. Before Linux 5.2 there is one count for it and all groups below
    it.
    """
    if not folder:
        return None
    own = _count(target, f"{folder}/memory.events.local", name)
    return own if own is not None else _count(target, f"{folder}/memory.events", name)


def _count(target: Target, path: str, name: str) -> int | None:
    """The number in the file's line ``name NUMBER``; None if there is no such line or file."""
    content = text(target, path, 1 << 16)
    match = re.search(rf"^{name} (\d{{1,18}})$", content, re.M) if isinstance(content, str) else None
    return int(match[1]) if match else None


def _mount_of(target: Target, folder: str) -> Fact:
    """The mount point of the disk that holds the folder; unread if not shown.

    Absent if it is of a network file system, which may not answer.
    """
    listed = text(target, "/proc/self/mountinfo", 1 << 18)
    if not isinstance(listed, str):
        return Unread("the mounts are not shown")
    best = mount_in(listed, folder)
    if best and best.remote:
        return Absent(f"{best.point} is of a network file system ({best.kind})")
    if best and os.path.isabs(best.point):  # noqa: PTH117
        return Known(best.point, "/proc/self/mountinfo")
    return Unread("its mount is not shown")
