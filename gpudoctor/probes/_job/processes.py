"""The processes of a command: it, what it started and what these did, with what each held of memory at most."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudoctor.core.fact import Known, Row

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST = 4096
"""Processes that are followed: a job of more is known by the first of them."""
_LISTED = 16
_SOURCE = "/proc, while it ran"


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


class Tree:
    """The processes of one command. One that was seen once stays its own, though its parent ends and it is adopted."""

    def __init__(self, root: int, proc: str = "/proc") -> None:
        self._root = root
        self._proc = proc
        self._processes: dict[int, Process] = {}
        self._ended: list[Process] = []
        self._lists_children = os.path.exists(f"{proc}/self/task/{os.getpid()}/children")  # noqa: PTH110
        self.peak = 0
        """The most bytes that they held together."""
        self.most = 0
        """The most processes at a time."""

    @property
    def pids(self) -> frozenset[int]:
        """The process ids that it had so far."""
        return frozenset(self._processes) | {process.pid for process in self._ended}

    def look(self) -> None:
        """Look at all of them once."""
        for pid in self._found():
            self._read(pid)
        for pid in [pid for pid, process in self._processes.items() if not process.alive]:
            self._ended.append(self._processes.pop(pid))
        del self._ended[:-_MOST]
        self.peak = max(self.peak, sum(process.memory for process in self._processes.values()))
        self.most = max(self.most, len(self._processes))

    def rows(self) -> tuple[Row, ...]:
        """A row for each of those that held most."""
        processes = sorted([*self._processes.values(), *self._ended], key=lambda one: -one.peak)
        return tuple(
            {
                "pid": Known(process.pid, _SOURCE),
                "name": Known(process.name, _SOURCE),
                "memory_mib": Known(process.peak >> 20, _SOURCE),
                "last_mib": Known(process.memory >> 20, _SOURCE),
                "cpu_seconds": Known(round(process.cpu_seconds, 2), _SOURCE),
                "outlived": Known(process.alive, _SOURCE),
            }
            for process in processes[:_LISTED]
        )

    def _found(self) -> list[int]:
        """The process ids of those known and of all that descend from them."""
        children = self._children if self._lists_children else self._children_of_all()
        found = dict.fromkeys([self._root, *self._processes])
        queue = list(found)
        while queue and len(found) < _MOST:
            fresh = [child for child in children(queue.pop()) if child not in found]
            found.update(dict.fromkeys(fresh))
            queue += fresh
        return list(found)

    def _children(self, pid: int) -> Iterator[int]:
        """The children of all threads of that process."""
        for task in names(f"{self._proc}/{pid}/task"):
            yield from map(int, first_bytes(f"{self._proc}/{pid}/task/{task}/children").split())

    def _children_of_all(self) -> Callable[[int], Iterator[int]]:
        """A look-up of children by the parents that all processes name, for kernels that list no children."""
        found: dict[int, list[int]] = {}
        for name in names(self._proc):
            if name.isdigit() and (fields := stat_fields(f"{self._proc}/{name}/stat")):
                found.setdefault(int(fields[2]), []).append(int(name))
        return lambda pid: iter(found.get(pid, ()))

    def _read(self, pid: int) -> None:
        """Read one process; one that is gone, or whose id is another's now, has ended."""
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
            known = self._processes[pid] = Process(pid, fields[20])
        sizes = first_bytes(f"{self._proc}/{pid}/statm").split()
        if len(sizes) > 2:
            known.memory = max(0, int(sizes[1]) - int(sizes[2])) * _PAGE
            known.peak = max(known.peak, known.memory)
        known.name = fields[0].decode("utf-8", "replace")
        known.cpu_seconds = (int(fields[12]) + int(fields[13])) / _TICKS


def names(folder: str) -> list[str]:
    """The names in a folder; none where it is gone."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def first_bytes(path: str) -> bytes:
    """The first 4096 bytes of a file of /proc; empty where it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, 4096)
    except OSError:
        return b""
    finally:
        os.close(handle)


def stat_fields(path: str) -> list[bytes]:
    """The fields of a stat file from the name on: name, state, parent, ...; empty where it is gone."""
    head, _, rest = first_bytes(path).rpartition(b")")
    return [head.partition(b"(")[2], *rest.split()] if rest else []
