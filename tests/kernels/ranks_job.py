"""A job for ranks, which does what each rank is asked to do. Standard library only: ranks import it by its name."""

from __future__ import annotations

import mmap
import os
import signal
import time
from pathlib import Path
from typing import Any

from gpudoctor_kernels._kernel import CannotRun  # type: ignore[import-not-found]


def rank(me: Any) -> dict[str, Any]:
    """Of ``{"do": [...]}`` the one of this rank."""
    me.step("begin")
    todo = me.ask["do"][me.rank]
    if todo == "wait":
        me.step("wait for the others")
        Path(me.ask["waiting"]).touch()
        time.sleep(600)
    while "waiting" in me.ask and not Path(me.ask["waiting"]).exists():
        time.sleep(0.01)
    if todo == "share":
        with Path(f"/dev/shm/nccl-{os.getpid()}").open("w+b") as file:
            file.truncate(4096)
            shared = mmap.mmap(file.fileno(), 4096)
            me.note(path=file.name)
            time.sleep(600 if shared else 0)
    if todo == "hang":
        time.sleep(600)
    if todo == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if todo == "leave":
        os.write(2, b"\nsome library: fatal\n")
        os._exit(3)
    if todo == "give up":
        os.write(2, b"[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)\n")
        os.abort()
    if "memory" in todo:
        raise RuntimeError(todo)
    if todo == "raise":
        raise ValueError("bad link")
    if todo == "cannot":
        raise CannotRun("nothing to do here")
    os.write(1, b"what libraries print is no answer\n")
    return {
        "rank": me.rank,
        "count": me.count,
        "pid": os.getpid(),
        "noisy": os.environ.get("NOISY"),
        "threads": os.environ["OMP_NUM_THREADS"],
    }
