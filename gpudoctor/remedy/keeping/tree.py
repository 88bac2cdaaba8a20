"""What lies in a folder, as the file system tells it: names, kinds, modes, sizes, times and inodes; no contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

Kind = Literal["file", "link", "folder"]
HIDDEN = ".gpudoctor-kept"
"""The folder in each tree that holds what is kept of it; no part of the tree."""
_CONDAS = ("pkgs", "envs")
"""In the prefix of a conda: its cache and its other environments, no part of this one."""


class Entry(NamedTuple):
    """One file, link or folder. Times are in ns; `changed` is the ctime, which nobody can set; `goal` a link's."""

    kind: Kind
    mode: int
    size: int
    mtime: int
    inode: int
    changed: int
    uid: int
    gid: int
    goal: str = ""


Entries = dict[str, Entry]
"""By path relative to the tree's root, parents before what is in them. Bytes that are no UTF-8 are surrogates."""


def walk(root: str) -> Entries:
    """All of a tree; empty where there is none. Links are not followed, sockets and devices not listed."""
    found: Entries = {}
    left_out = (HIDDEN, *(_CONDAS if os.path.isdir(f"{root}/conda-meta") else ()))  # noqa: PTH112
    below = [""]
    while below:
        folder = below.pop()
        for name in _names(f"{root}/{folder}"):
            if not folder and name in left_out:
                continue
            path = f"{folder}/{name}" if folder else name
            entry = look(f"{root}/{path}")
            if entry:
                found[path] = entry
                if entry.kind == "folder":
                    below.append(path)
    return found


def listed(paths: Iterable[str]) -> Entries:
    """Files and links by their absolute paths, without the leading slash; what is not there is not listed."""
    found = ((path.lstrip("/"), look(path)) for path in sorted(set(paths)))
    return {path: entry for path, entry in found if entry and entry.kind != "folder"}


def look(path: str) -> Entry | None:
    """That entry; None where there is none, or one of another kind. Raises `OSError` where it may not be seen."""
    try:
        found = os.lstat(path)
        kind = _kind(found.st_mode)
        goal = os.readlink(path) if kind == "link" else ""  # noqa: PTH115 - names that are no UTF-8, too
    except (FileNotFoundError, NotADirectoryError):
        return None
    if kind is None:
        return None
    mode = stat.S_IMODE(found.st_mode)
    size = found.st_size if kind == "file" else 0
    times = (found.st_mtime_ns, found.st_ino, found.st_ctime_ns)
    return Entry(kind, mode, size, *times, found.st_uid, found.st_gid, goal)


def _kind(mode: int) -> Kind | None:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else None


def _names(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            yield from sorted(item.name for item in found)
    except (FileNotFoundError, NotADirectoryError):
        return
