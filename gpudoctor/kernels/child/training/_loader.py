"""One setting of a DataLoader, tried: batches a second, seconds until the first, cores used; no worker is left."""

from __future__ import annotations

import contextlib
import gc
import glob
import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver, resource_tracker, util
from typing import Any, Dict, Generator, Iterator, List, NamedTuple, Tuple

from . import _dataset, format_bytes
from ._host import SHM, Host, busy_seconds, clock_ticks, read_text, shm_space

WINDOW_SECONDS = 0.5
"""Seconds that a setting is watched."""
_BATCH_LIMIT = {"fork": 6.0, "forkserver": 12.0, "spawn": 12.0}
"""Seconds that a batch may take; where a worker starts from nothing, it imports torch before."""
_MAX_WORKERS = 16
_KILL_SECONDS = 3.0
"""Seconds that a killed worker may take to disappear."""
_MARK = "GPUDOCTOR_CHILD"
"""The variable by which what we have started is found and ended with us."""


class LoaderResult(NamedTuple):
    """A DataLoader setting and what was measured with it; `error` is empty if it worked."""

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
        """The setting in words: ``4 workers by fork``, or ``no worker``."""
        if not self.workers:
            return "no worker"
        return "%d worker%s by %s" % (self.workers, "" if self.workers == 1 else "s", self.method)


def worker_counts(host: Host) -> List[int]:
    """Numbers of workers to try: 0, then doubled up to the usable cores; to 4 at least, 16 at most."""
    maximum = min(_MAX_WORKERS, max(4, math.ceil(host.usable)))
    return [0] + [1 << at for at in range(maximum.bit_length()) if 1 << at < maximum] + [maximum]


class _EndlessIndices:
    """A sampler of item numbers from `first` on, wrapping around at `length`."""

    def __init__(self, first: int, length: int) -> None:
        self._first, self._length = first, length

    def __iter__(self) -> Iterator[int]:
        return (index % self._length for index in itertools.count(self._first))


class LoaderSweep:
    """Measures DataLoader settings on one dataset, and counts the items that were wrong; loads one item at once."""

    def __init__(self, torch: Any, side: int, batch: int) -> None:
        self.torch = torch
        self.batch = batch
        self.dataset = _dataset.load_dataset(side)
        self.wrong = self.compared = 0
        self._next, self._began = 0, time.time()
        began = time.perf_counter()
        item, self._length = self.dataset[0], len(self.dataset)
        self.item_seconds = time.perf_counter() - began
        self.batch_bytes = batch * _tensor_bytes(item)

    def lacking_shm(self, workers: int, prefetch: int) -> str:
        """Why /dev/shm does not hold the batches of so many workers; empty where it does."""
        free = shm_space()[1]
        needed = self.batch_bytes * (workers * prefetch + 1)
        if needed <= free:
            return ""
        return "%s of /dev/shm are free and %s are needed" % (format_bytes(free), format_bytes(needed))

    def try_setting(self, method: str, workers: int, prefetch: int = 2) -> LoaderResult:
        """Measure one setting; never raises, see `LoaderResult.error`. Its workers are ended afterwards."""
        setting = LoaderResult(method if workers else "", workers, prefetch)
        if workers:
            lacking = self.lacking_shm(workers, prefetch)
            if lacking:
                return setting._replace(error=lacking)
        try:
            return self._run_setting(setting)
        except Exception as error:
            return setting._replace(error=_error_text(error))
        finally:
            end_workers(self._began)

    def _run_setting(self, setting: LoaderResult) -> LoaderResult:
        """Load batches with the setting; the result has seconds until the first and the rate; raises any failure."""
        began = time.perf_counter()
        batches = self._batches(setting)
        try:
            next(batches)
            started = time.perf_counter() - began
            setting = self._measure_rate(setting, batches)
        except Exception:
            end_workers(self._began)  # before the loader is let go of, which waits 5 s for each that hangs
            raise
        finally:
            batches.close()
        return setting._replace(start=started)

    def _measure_rate(self, setting: LoaderResult, batches: Iterator[Any]) -> LoaderResult:
        """The setting with batches a second, and cores busy, wanted and used by others, measured over half a second."""
        together = max(1, setting.workers)
        for _ in range(together):
            next(batches)
        before, began, count = _cpu_times(), time.perf_counter(), 0
        while time.perf_counter() - began < WINDOW_SECONDS:
            for _ in range(together):
                next(batches)
            count += together
        seconds = time.perf_counter() - began
        every, main, workers, waited = ((now - then) / seconds for now, then in zip(_cpu_times(), before))
        others = max(0.0, every - workers - main)
        return setting._replace(rate=count / seconds, cores=workers, wanted=workers + waited, others=others)

    def _batches(self, setting: LoaderResult) -> Generator[Any, None, None]:
        """Yield checked batches without end, beginning behind the items of earlier settings, which may be cached."""
        options: Dict[str, Any] = {}
        if setting.workers:
            options = {
                "prefetch_factor": setting.prefetch,
                "timeout": _BATCH_LIMIT[setting.method],
                "multiprocessing_context": setting.method,
            }
        loader = self.torch.utils.data.DataLoader(
            self.dataset,
            self.batch,
            sampler=_EndlessIndices(self._next, self._length),
            num_workers=setting.workers,
            **options,
        )
        for batch in loader:
            wrong = _dataset.wrong_sums(self.torch, self.dataset, self._next, batch)
            if wrong is not None:
                self.wrong += wrong
                self.compared += self.batch
            self._next += self.batch
            yield batch


def _error_text(error: BaseException) -> str:
    """What ended a worker: the last line of its traceback, or the signal; at most 400 characters.

    The exception's name where it has no text.
    """
    texts = (str(exception) for exception in (error.__cause__, error) if exception is not None)
    lines = [text.strip().splitlines()[-1].strip() for text in texts if text.strip()]
    return lines[0][:400] if lines else type(error).__name__


def _tensor_bytes(item: Any) -> int:
    """Bytes of all tensors in an item, however nested; 8 for anything else."""
    if hasattr(item, "element_size"):
        return int(item.numel() * item.element_size())
    if isinstance(item, dict):
        item = list(item.values())
    return sum(map(_tensor_bytes, item)) if isinstance(item, (list, tuple)) else 8


def _cpu_times() -> Tuple[float, float, float, float]:
    """CPU seconds so far: of all cores, of this process, of our workers; and seconds that workers waited for a core."""
    ticks, worked, delayed, process_times = clock_ticks(), 0.0, 0.0, os.times()
    for folder in ["/proc/%s/" % worker.pid for worker in multiprocessing.active_children()]:
        fields = read_text(folder + "stat").rpartition(")")[2].split()
        if fields:
            worked += (int(fields[11]) + int(fields[12])) / ticks
            delayed += int((read_text(folder + "schedstat").split() or ["0", "0"])[1]) / 1e9
    return busy_seconds(), process_times.user + process_times.system, worked, delayed


# ---- Workers of multiprocessing that leave nothing behind: no process, and no file in shared memory ----


@contextlib.contextmanager
def worker_cleanup() -> Iterator[None]:
    """A context in which workers may be started in any way; ends all of them and the fork server afterwards."""
    _detach_resource_tracker()
    began = time.time()
    try:
        yield
    finally:
        end_workers(began)
        stop = getattr(forkserver._forkserver, "_stop", None)  # noqa: SLF001 - it has no public end
        if stop:
            stop()


def end_workers(began: float) -> None:
    """Kill all workers of this process and remove what they shared since `began` (seconds since the epoch)."""
    workers = multiprocessing.active_children()
    if sys.platform == "win32":
        for worker in workers:
            worker.kill()
            worker.join(_KILL_SECONDS)
        return
    previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch takes the end of a worker for an error
    try:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(_KILL_SECONDS)
    finally:
        signal.signal(signal.SIGCHLD, previous)
    gc.collect()  # named semaphores go with the queues that hold them
    for worker in workers:
        _remove_shared(worker.pid or 0, began)


def _remove_shared(pid: int, began: float) -> None:
    """Remove the worker's files in /dev/shm that torch left behind: only ours, made since `began`."""
    for path in glob.glob("%s/torch_%d_*" % (SHM, pid)):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if sys.platform != "win32" and status.st_uid == os.getuid() and status.st_ctime >= began - 1:
                os.unlink(path)


def _detach_resource_tracker() -> None:
    """Start Python's resource tracker in a session of its own, so that it outlives us and can clean up."""
    original = util.spawnv_passfds
    environ = {name: value for name, value in os.environ.items() if name != _MARK}

    def spawn_detached(path: Any, argv: Any, descriptors: Any) -> int:
        """Like `util.spawnv_passfds`, in a new session and without our mark; the pid."""
        null = subprocess.DEVNULL
        return subprocess.Popen(
            argv,
            executable=path,
            pass_fds=descriptors,
            stdin=null,
            stdout=null,
            stderr=null,
            env=environ,
            start_new_session=True,
        ).pid

    util.spawnv_passfds = spawn_detached  # type: ignore[assignment]
    try:
        resource_tracker.ensure_running()
    finally:
        util.spawnv_passfds = original
