"""What this process holds: memory, threads, files, children, and files left in its temporary folder."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
MARK = "GPUDOCTOR_SOAK"
"""A variable that every process started from here carries, whatever group it is in."""


class Held(NamedTuple):
    """MiB in memory, and the names of all else."""

    mib: float
    threads: tuple[str, ...]
    files: tuple[str, ...]
    processes: tuple[str, ...]
    left: tuple[str, ...]


def held(folder: Path, patience: float = 600.0) -> Held:
    """Now, once the threads and children that are on their way out have had `patience` seconds."""
    deadline = time.monotonic() + patience
    while (threading.active_count() > 1 or _processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    gc.collect()
    names = (thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    left = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    _give_back()
    return Held(_mib(), tuple(sorted(names)), _files(), _processes(), tuple(sorted(left)))


def leaks(before: Held, after: Held, limit: float) -> list[str]:
    """What is held afterwards and was not before, and memory beyond `limit` MiB more."""
    found = [f"still there: {one}" for one in (*after.threads, *after.processes)]
    found += [
        f"left: {one}" for kind in ("files", "left") for one in set(getattr(after, kind)) - set(getattr(before, kind))
    ]
    growth = after.mib - before.mib
    return [*found, *([f"memory grew by {growth:.1f} MiB"] if growth > limit else [])]


def _give_back() -> None:
    """Have the C library return what is free: how much of it is kept says nothing of what we hold."""
    with contextlib.suppress(AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def _mib() -> float:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE / (1 << 20)


def _files() -> tuple[str, ...]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        try:
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")  # noqa: PTH115
        except OSError:
            continue  # the one that listed them
    return tuple(sorted(found))


def _processes() -> tuple[str, ...]:
    """Our children, zombies too, and every process that carries our mark."""
    sign = f"{MARK}={os.getpid()}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            state, parent = (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() or sign in (place / "environ").read_bytes().split(b"\0"):
                found.append(f"{place.name} {state} {(place / 'cmdline').read_bytes()[:80]!r}")
        except OSError:
            continue  # it ended, or is another user's
    return tuple(found)
