"""The processes of a command: it, what it started and what these did, with what each held of memory at most."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.core import system
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.target.proc import first_bytes, names, stat_fields

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MOST_PROCESSES = 4096
"""Processes that are followed: a job of more is known by the first of them."""
_MOST_LISTED = 16
_SOURCE = "/proc, while it ran"
_WORKER = "pt_data_worker"
"""What torch calls the workers of its DataLoader, since 2.7."""


@dataclass(slots=True)
class Process:
    """One process; `memory` is what it alone holds, in bytes: what it shares (libraries, /dev/shm) is not its own."""

    pid: int
    start: bytes
    name: str = ""
    memory: int = 0
    peak: int = 0
    cpu_seconds: float = 0.0
    alive: bool = True
    parent: int = 0
    fresh_cpu: float = 0.0
    """Processor time since the look before; 0 at its first."""
    wanted: float | None = None
    """Seconds that its main thread ran or waited for a processor; None where nobody has asked."""
    fresh_wanted: float | None = None
    first: float = 0.0
    last: float = 0.0
    """When it was first and last seen, by the monotonic clock."""
    cpu_before: float = 0.0
    """Processor time that it had used when it was first seen."""

    @property
    def busy(self) -> float | None:
        """Its use of processor time since it was first seen, in % of one processor; None if it was seen once."""
        return 100 * (self.cpu_seconds - self.cpu_before) / (self.last - self.first) if self.last > self.first else None


@dataclass(slots=True)
class Loading:
    """Activity of torch's DataLoader workers, and of the processes they feed, over all looks that saw workers.

    A process is at work while it runs or waits for a processor: on a machine that is full it is not idle.
    """

    most: int = 0
    seconds: float = 0.0
    worker_seconds: float = 0.0
    """Seconds of all workers together."""
    at_work: float = 0.0
    cpu_seconds: float = 0.0
    fed_seconds: float = 0.0
    fed_at_work: float = 0.0
    fed: frozenset[int] = frozenset()
    processors: int = 0
    """How many of the machine's they may run on; 0 where nobody has asked."""

    def add(self, processes: Mapping[int, Process], seconds: float) -> None:
        """Add what DataLoader workers and the processes that they feed did in the `seconds` since the last look.

        `processes`: all of the command's by process id; nothing is added if none is such a worker.
        """
        workers = [process for process in processes.values() if process.name == _WORKER]
        self.fed = frozenset(worker.parent for worker in workers)
        known = [worker for worker in workers if worker.fresh_wanted is not None]
        if not known:
            return
        with contextlib.suppress(OSError):
            if sys.platform == "linux":
                self.processors = self.processors or len(os.sched_getaffinity(known[0].pid))
        self.most = max(self.most, len(workers))
        self.seconds += seconds
        self.worker_seconds += seconds * len(known)
        self.at_work += sum(worker.fresh_wanted or 0.0 for worker in known)
        self.cpu_seconds += sum(worker.fresh_cpu for worker in known)
        for pid in self.fed & processes.keys():
            if (wanted := processes[pid].fresh_wanted) is not None:
                self.fed_seconds += seconds
                self.fed_at_work += wanted

    def facts(self) -> dict[str, Fact]:
        """The facts run.loader_workers (the most at a time), loader_seconds, loader_busy (%), loader_processors and
        loader_fed_busy (%).

        If no worker was seen, the first is 0 and all others are absent.
        """
        if not self.most:
            names = ("seconds", "busy", "processors", "fed_busy")
            nobody = Absent("no worker of torch's DataLoader was seen")
            return {"run.loader_workers": Known(0, _SOURCE), **{f"run.loader_{name}": nobody for name in names}}
        return {
            "run.loader_workers": Known(self.most, _SOURCE),
            "run.loader_seconds": Known(round(self.seconds, 1), _SOURCE),
            "run.loader_busy": Known(round(100 * self.at_work / self.worker_seconds), _SOURCE),
            "run.loader_processors": Known(round(self.cpu_seconds / self.seconds, 2), _SOURCE),
            "run.loader_fed_busy": Known(round(100 * self.fed_at_work / self.fed_seconds), _SOURCE)
            if self.fed_seconds
            else Unread("the process that they feed was not seen"),
        }


class Tree:
    """The processes of one command. A process seen once stays a member, even if its parent ends."""

    def __init__(self, root: int, proc: str = "/proc", without: Collection[int] = ()) -> None:
        """`without` are process ids of children that do not belong to the command; the collection may grow."""
        self._root = root
        self._without = without
        self._proc = proc
        self._processes: dict[int, Process] = {}
        self._ended: list[Process] = []
        self._lists_children = os.path.exists(f"{proc}/self/task/{os.getpid()}/children")  # noqa: PTH110
        self.peak = 0
        """The most bytes that they held together."""
        self.most = 0
        """The most processes at a time."""
        self.loading = Loading()
        self._looked = 0.0

    @property
    def pids(self) -> frozenset[int]:
        """Ids of all processes of the command seen so far, ended ones included."""
        return frozenset(self._processes) | {process.pid for process in self._ended}

    @property
    def living(self) -> tuple[float, frozenset[int]]:
        """(processor seconds that the living processes used, their ids), as of the last look."""
        living = list(self._processes.values())
        return sum(process.cpu_seconds for process in living), frozenset(process.pid for process in living)

    def look(self) -> None:
        """Read all processes of the command once, and update their peaks and the tree's."""
        now = time.monotonic()
        for pid in self._pids_to_read():
            self._read(pid, now)
        if self._looked:
            self.loading.add(self._processes, now - self._looked)
        self._looked = now
        for pid in [pid for pid, process in self._processes.items() if not process.alive]:
            self._ended.append(self._processes.pop(pid))
        del self._ended[:-_MOST_PROCESSES]
        self.peak = max(self.peak, sum(process.memory for process in self._processes.values()))
        self.most = max(self.most, len(self._processes))

    def rows(self) -> tuple[Row, ...]:
        """Rows of the 16 processes with the largest memory peaks: pid, name, memory_mib (peak), last_mib, cpu_seconds.

        Also busy (%) and outlived (still running at the last look).
        """
        processes = sorted([*self._processes.values(), *self._ended], key=lambda one: -one.peak)
        return tuple(
            {
                "pid": Known(process.pid, _SOURCE),
                "name": Known(process.name, _SOURCE),
                "memory_mib": Known(process.peak >> 20, _SOURCE),
                "last_mib": Known(process.memory >> 20, _SOURCE),
                "cpu_seconds": Known(round(process.cpu_seconds, 2), _SOURCE),
                "busy": Known(round(busy), _SOURCE) if (busy := process.busy) is not None else Unread("seen once"),
                "outlived": Known(process.alive, _SOURCE),
            }
            for process in processes[:_MOST_LISTED]
        )

    def _pids_to_read(self) -> list[int]:
        """Ids of the command's first process, those known to live, and their descendants except those in `without`; no
        more are looked for once `_MOST_PROCESSES` are found.
        """
        children = self._children if self._lists_children else self._children_of_all()
        found = dict.fromkeys([self._root, *self._processes])
        queue = list(found)
        while queue and len(found) < _MOST_PROCESSES:
            fresh = [child for child in children(queue.pop()) if child not in found and child not in self._without]
            found.update(dict.fromkeys(fresh))
            queue += fresh
        return list(found)

    def _children(self, pid: int) -> Iterator[int]:
        """Yields the process ids that all threads of that process have as children."""
        for task in names(f"{self._proc}/{pid}/task"):
            yield from map(int, first_bytes(f"{self._proc}/{pid}/task/{task}/children").split())

    def _children_of_all(self) -> Callable[[int], Iterator[int]]:
        """Function from a process id to its children, by all processes' parents; for kernels without children files."""
        found: dict[int, list[int]] = {}
        for name in names(self._proc):
            if name.isdigit() and (fields := stat_fields(f"{self._proc}/{name}/stat")):
                found.setdefault(int(fields[2]), []).append(int(name))
        return lambda pid: iter(found.get(pid, ()))

    def _runnable_seconds(self, pid: int) -> float | None:
        """Seconds that the process's main thread ran or waited for a processor; None where not counted."""
        numbers = first_bytes(f"{self._proc}/{pid}/schedstat").split()
        return (int(numbers[0]) + int(numbers[1])) / 1e9 if len(numbers) > 1 else None

    def _read(self, pid: int, now: float) -> None:
        """Read memory, processor time and name of one process into its `Process`, a new one if unknown.

        It counts as ended if it is gone, or another process has its id.
        """
        fields = stat_fields(f"{self._proc}/{pid}/stat")
        known = self._processes.get(pid)
        if known and (not fields or fields[20] != known.start or fields[1] in b"ZX"):
            known.alive = False
            return
        if not fields or fields[1] in b"ZX":
            return
        if not known:
            if any(process.pid == pid and process.start == fields[20] for process in self._ended):
                return
            known = self._processes[pid] = Process(pid, fields[20], first=now)
        sizes = first_bytes(f"{self._proc}/{pid}/statm").split()
        if len(sizes) > 2:
            known.memory = max(0, int(sizes[1]) - int(sizes[2])) * _PAGE
            known.peak = max(known.peak, known.memory)
        known.name = fields[0].decode("utf-8", "replace")
        known.parent, known.last = int(fields[2]), now
        cpu_seconds = (int(fields[12]) + int(fields[13])) / system.CLOCK_TICKS
        known.cpu_before = known.cpu_before if now > known.first else cpu_seconds
        known.fresh_cpu = cpu_seconds - known.cpu_seconds if now > known.first else 0.0
        known.cpu_seconds = cpu_seconds
        wanted = self._runnable_seconds(pid) if known.name == _WORKER or pid in self.loading.fed else None
        both = wanted is not None and known.wanted is not None
        known.fresh_wanted = wanted - known.wanted if both else None  # type: ignore[operator]
        known.wanted = wanted
