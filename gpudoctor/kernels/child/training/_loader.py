"""One setting of a DataLoader, tried: batches a second, seconds until the first, cores that its workers used."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import time
from typing import Any, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple

from . import _dataset, _guard
from ._host import Host, busy, read, shm_space
from ._words import size

WINDOW = 0.5
"""Seconds that a setting is watched."""
_PATIENCE = {"fork": 6.0, "forkserver": 12.0, "spawn": 12.0}
"""Seconds that a batch may take; where a worker starts from nothing, it imports torch before."""
_MOST_WORKERS = 16


class Tried(NamedTuple):
    """A setting and what became of it."""

    method: str
    workers: int
    prefetch: int = 2
    rate: float = 0.0
    """Batches a second."""
    start: float = 0.0
    """Seconds until the first batch was there."""
    cores: float = 0.0
    """Cores that all workers together kept busy."""
    wanted: float = 0.0
    """Cores that they would have kept busy, had they not waited for one."""
    others: float = 0.0
    """Cores that other programs of the machine kept busy meanwhile."""
    error: str = ""

    @property
    def name(self) -> str:
        """``4 workers by fork``."""
        if not self.workers:
            return "no worker"
        return "%d worker%s by %s" % (self.workers, "" if self.workers == 1 else "s", self.method)


def counts(host: Host) -> List[int]:
    """Numbers of workers to try: doubled up to the cores that may be used; 4 at least, which storage may be worth."""
    most = min(_MOST_WORKERS, max(4, math.ceil(host.usable)))
    return [0] + [1 << at for at in range(most.bit_length()) if 1 << at < most] + [most]


class _Round:
    """Numbers of items from `first` on, round and round."""

    def __init__(self, first: int, length: int) -> None:
        self._first, self._length = first, length

    def __iter__(self) -> Iterator[int]:
        return (index % self._length for index in itertools.count(self._first))


class Sweep:
    """Tries settings on one dataset, and counts the items that were not what was stored."""

    def __init__(self, torch: Any, side: int, batch: int) -> None:
        self.torch = torch
        self.batch = batch
        self.dataset = _dataset.chosen(side)
        self.wrong = self.compared = 0
        self._next, self._began = 0, time.time()
        began = time.perf_counter()
        item, self._length = self.dataset[0], len(self.dataset)
        self.item_seconds = time.perf_counter() - began
        self.batch_bytes = batch * _bytes(item)

    def room(self, workers: int, prefetch: int) -> str:
        """Why /dev/shm does not hold what so many workers put there; empty where it does."""
        free = shm_space()[1]
        needed = self.batch_bytes * (workers * prefetch + 1)
        return "" if needed <= free else "%s of /dev/shm are free and %s are needed" % (size(free), size(needed))

    def tried(self, method: str, workers: int, prefetch: int = 2) -> Tried:
        """One setting, with all its workers ended afterwards."""
        setting = Tried(method if workers else "", workers, prefetch)
        if workers:
            lacking = self.room(workers, prefetch)
            if lacking:
                return setting._replace(error=lacking)
        try:
            return self._watched(setting)
        except Exception as error:
            return setting._replace(error=_told(error))
        finally:
            _guard.end_workers(self._began)

    def _watched(self, setting: Tried) -> Tried:
        began = time.perf_counter()
        batches = self._batches(setting)
        try:
            next(batches)
            started = time.perf_counter() - began
            setting = self._steady(setting, batches)
        except Exception:
            _guard.end_workers(self._began)  # before the loader is let go of, which waits 5 s for each that hangs
            raise
        finally:
            batches.close()
        return setting._replace(start=started)

    def _steady(self, setting: Tried, batches: Iterator[Any]) -> Tried:
        """Rate and cores, over whole rounds of as many batches as are made at a time."""
        together = max(1, setting.workers)
        for _ in range(together):
            next(batches)
        before, began, count = _worked(), time.perf_counter(), 0
        while time.perf_counter() - began < WINDOW:
            for _ in range(together):
                next(batches)
            count += together
        seconds = time.perf_counter() - began
        every, main, workers, waited = ((now - then) / seconds for now, then in zip(_worked(), before))
        others = max(0.0, every - workers - main)
        return setting._replace(rate=count / seconds, cores=workers, wanted=workers + waited, others=others)

    def _batches(self, setting: Tried) -> Generator[Any, None, None]:
        """Batches without end, each judged; they begin behind those that other settings had, which may be cached."""
        options: Dict[str, Any] = {}
        if setting.workers:
            options = {
                "prefetch_factor": setting.prefetch,
                "timeout": _PATIENCE[setting.method],
                "multiprocessing_context": setting.method,
            }
        loader = self.torch.utils.data.DataLoader(
            self.dataset,
            self.batch,
            sampler=_Round(self._next, self._length),
            num_workers=setting.workers,
            **options,
        )
        for batch in loader:
            self._judge(self._next, batch)
            self._next += self.batch
            yield batch

    def _judge(self, first: int, batch: Any) -> None:
        wrong: Optional[int] = _dataset.wrong_sums(self.torch, self.dataset, first, batch)
        if wrong is not None:
            self.wrong += wrong
            self.compared += self.batch


def _told(error: BaseException) -> str:
    """What ended a worker: the last line of its traceback, or the signal, which torch gives as the cause only."""
    texts = (str(one) for one in (error.__cause__, error) if one is not None)
    lines = [text.strip().splitlines()[-1].strip() for text in texts if text.strip()]
    return lines[0][:400] if lines else type(error).__name__


def _bytes(item: Any) -> int:
    """Of all tensors in it, however they are nested."""
    if hasattr(item, "element_size"):
        return int(item.numel() * item.element_size())
    if isinstance(item, dict):
        item = list(item.values())
    return sum(map(_bytes, item)) if isinstance(item, (list, tuple)) else 8


def _worked() -> Tuple[float, float, float, float]:
    """Seconds so far that all cores have worked, this process, our workers; and that workers waited for a core."""
    ticks, worked, waited, own = os.sysconf("SC_CLK_TCK"), 0.0, 0.0, os.times()
    for folder in ["/proc/%s/" % worker.pid for worker in multiprocessing.active_children()]:
        fields = read(folder + "stat").rpartition(")")[2].split()
        if fields:
            worked += (int(fields[11]) + int(fields[12])) / ticks
            waited += int((read(folder + "schedstat").split() or ["0", "0"])[1]) / 1e9
    return busy(), own.user + own.system, worked, waited
