"""Workers of multiprocessing that leave nothing behind: no process, and no file in shared memory."""

from __future__ import annotations

import contextlib
import gc
import glob
import multiprocessing
import os
import signal
import subprocess
import time
from multiprocessing import forkserver, resource_tracker, util
from typing import Any, Iterator

from ._host import SHM

_GONE = 3.0
"""Seconds that a killed worker may take to disappear."""
_MARK = "GPUDOCTOR_CHILD"
"""The variable by which what we have started is found and ended with us."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within, workers may be started in whatever way; afterwards none is left."""
    _tracker_apart()
    began = time.time()
    try:
        yield
    finally:
        end_workers(began)
        stop = getattr(forkserver._forkserver, "_stop", None)  # noqa: SLF001 - it has no public end
        if stop:
            stop()


def end_workers(began: float) -> None:
    """Kill every worker that there is, and let go of what they have shared since `began` (seconds of the epoch)."""
    workers = multiprocessing.active_children()
    hears = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch takes the end of a worker for an error
    try:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(_GONE)
    finally:
        signal.signal(signal.SIGCHLD, hears)
    gc.collect()  # named semaphores go with the queues that hold them
    for worker in workers:
        _remove_shared(worker.pid or 0, began)


def _remove_shared(pid: int, began: float) -> None:
    """torch 2.13 leaves the file there for which there was no room; another container's may have the same number."""
    for path in glob.glob("%s/torch_%d_*" % (SHM, pid)):
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if found.st_uid == os.getuid() and found.st_ctime >= began - 1:
                os.unlink(path)


def _tracker_apart() -> None:
    """Start what removes named semaphores once we are gone where it is not ended together with us."""
    usual = util.spawnv_passfds
    environ = {name: value for name, value in os.environ.items() if name != _MARK}

    def apart(path: Any, argv: Any, kept: Any) -> int:
        null = subprocess.DEVNULL
        return subprocess.Popen(
            argv,
            executable=path,
            pass_fds=kept,
            stdin=null,
            stdout=null,
            stderr=null,
            env=environ,
            start_new_session=True,
        ).pid

    util.spawnv_passfds = apart  # type: ignore[assignment]
    try:
        resource_tracker.ensure_running()
    finally:
        util.spawnv_passfds = usual
