"""Processes of this machine by /proc, for our own children and for jobs: what is gone or refused reads as empty.

Read directly, for there are thousands: what belongs to the machine that is diagnosed is read through a `Target`.
"""

from __future__ import annotations

import os
from collections.abc import Collection

_MOST_ANCESTORS = 64


def first_bytes(path: str) -> bytes:
    """The first 4096 bytes of a file, by one read; empty where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(handle, 4096)
    except OSError:
        return b""
    finally:
        os.close(handle)


def text(path: str, limit: int = 1 << 20) -> str:
    """The first `limit` bytes of a file as stripped text, not UTF-8 replaced; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - many
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def names(folder: str) -> list[str]:
    """The names in a folder, unsorted; empty where it cannot be listed."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def link(path: str) -> str:
    """The target of a symbolic link as text, unresolved; empty where it is no link or cannot be read."""
    try:
        return os.readlink(path)  # noqa: PTH115 - text, not a path of ours
    except OSError:
        return ""


def stat_fields(path: str) -> list[bytes]:
    """Name, state, parent, ... of a /proc stat file: its fields from the second on, by proc(5); empty if unreadable."""
    head, _, rest = first_bytes(path).rpartition(b")")
    return [head.partition(b"(")[2], *rest.split()] if rest else []


def parent(pid: int) -> int:
    """The process id of the process's parent; 0 where it is gone."""
    fields = stat_fields(f"/proc/{pid}/stat")
    return int(fields[2]) if len(fields) > 2 else 0


def is_within(pid: int, ancestors: Collection[int]) -> bool:
    """Whether that process is one of `ancestors` or descends from one, over at most 64 generations."""
    for _ in range(_MOST_ANCESTORS):
        if pid in ancestors:
            return True
        if pid <= 1:
            return False
        pid = parent(pid)
    return False
