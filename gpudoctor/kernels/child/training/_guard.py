"""Worker processes that leave nothing behind: no process, no file, however this process ends.

A killed process cannot tidy up. So a shell in a session of its own holds one end of a pipe, and removes the folder for
temporary files once nobody holds the other; multiprocessing's resource tracker, which does the same for named
semaphores, is given a session of its own, too.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import tempfile
from multiprocessing import forkserver, resource_tracker, util
from typing import Any, Iterator

_GONE = 3.0
"""Seconds that a killed worker may take to disappear."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within, processes may be started by multiprocessing in whatever way; afterwards none is left."""
    _tracker_apart()
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with _folder() as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            end_workers()
            _end_forkserver()
            tempfile.tempdir = before
            _restore("TMPDIR", variable)
            _forget_folder()


def end_workers() -> None:
    """Kill every worker that there is, and let go of what they shared."""
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


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="gpudoctor-")
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", 'read _; rm -rf -- "$0"', folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        assert keeper.stdin
        keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a worker that cannot be killed still holds the pipe
            keeper.wait(_GONE)


def _tracker_apart() -> None:
    usual = util.spawnv_passfds

    def apart(path: Any, argv: Any, kept: Any) -> int:
        null = subprocess.DEVNULL
        return subprocess.Popen(
            argv, executable=path, pass_fds=kept, stdin=null, stdout=null, stderr=null, start_new_session=True
        ).pid

    util.spawnv_passfds = apart  # type: ignore[assignment]
    try:
        resource_tracker.ensure_running()
    finally:
        util.spawnv_passfds = usual


def _end_forkserver() -> None:
    stop = getattr(forkserver._forkserver, "_stop", None)  # noqa: SLF001
    if stop:
        stop()


def _forget_folder() -> None:
    """multiprocessing keeps the name of its folder of sockets, which is gone with ours."""
    multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]  # noqa: SLF001


def _restore(name: str, value: Any) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
