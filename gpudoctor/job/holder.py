"""Who listens on a port of this machine: from /proc, which tells the process only to its owner and to root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"


def holder(port: int) -> str:
    """``python (pid 4711)``; ``another program`` where it is not ours to know."""
    inodes = set(_inodes(port))
    for pid in _pids():
        for target in _open_files(pid):
            if target.startswith("socket:[") and target[8:-1] in inodes:
                return f"{_name(pid)} (pid {pid})"
    return "another program"


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _pids() -> list[str]:
    with contextlib.suppress(OSError):
        return [folder.name for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    return []


def _open_files(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(file.readlink())


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"
