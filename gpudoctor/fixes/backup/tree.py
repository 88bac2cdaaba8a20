"""What lies in a folder, as the file system tells it: names, kinds, modes, sizes, times and inodes; no contents."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from gpudoctor.core import files, system
from gpudoctor.target import system_paths

Kind = Literal["file", "link", "folder"]
STORES = ".gpudoctor-kept"
"""The folder in each tree that holds what is kept of it; no part of the tree."""
_CONDAS = ("pkgs", "envs")
"""In the prefix of a conda: its cache and its other environments, no part of this one."""


class Entry(NamedTuple):
    """One file, link or folder. Times are in ns; `changed` is the ctime, `goal` the target of a link."""

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


def kept_folder(root: str) -> Path:
    """Folder in the tree that holds its kept copies, created if missing with permissions after the tree's: whoever may
    change the tree, and nobody else, can use it. Raises `OSError`, also for a link or another user's folder.
    """
    folder = Path(root, STORES)
    Path(root).mkdir(parents=True, exist_ok=True)
    above = os.stat(root)  # noqa: PTH116
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        seen = os.lstat(folder)
        theirs = seen.st_uid not in (0, system.user_id(), above.st_uid) and not above.st_mode & 0o022
        if theirs or not stat.S_ISDIR(seen.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link, or another user's folder", str(folder)) from None
        return folder
    share_like_parent(folder, above, execute=True)
    return folder


def nearest_existing(place: str) -> Path:
    """The path, or its nearest existing parent; ``/`` for an invalid path."""
    try:
        folder = Path(os.path.abspath(place))  # noqa: PTH100
        return next(path for path in (folder, *folder.parents) if path.exists())
    except (OSError, ValueError):
        return Path(os.path.abspath(os.sep))  # noqa: PTH100


def is_below(place: str, folders: Iterable[str]) -> bool:
    """True if the path is inside one of the folders, as this system compares names."""
    name = os.path.normcase(place)
    return any(name.startswith(os.path.join(os.path.normcase(folder), "")) for folder in folders if folder)  # noqa: PTH118


def share_like_parent(place: Path, above: os.stat_result, execute: bool = False) -> None:
    """Give a new file the group of the folder `above` (as root its owner as well), with access for its owner, and for
    group or world where that folder lets them write. Failures are ignored.
    """
    with suppress(OSError):
        owner = above.st_uid if system.is_root() else -1
        system.give_to(place, owner, above.st_gid)
    own = 0o700 if execute else 0o600
    mode = own
    if above.st_mode & 0o020 and os.lstat(place).st_gid == above.st_gid:
        mode |= own >> 3
    if above.st_mode & 0o002:
        mode |= own >> 6
    with suppress(OSError):
        place.chmod(mode)


def ownership_doubt(place: str) -> str:
    """Reason why the path may be under another user's control: a link, another owner, writable by others; else ``""``.
    A missing path gives ``""``.
    """
    try:
        seen = os.lstat(place)
    except OSError:
        return ""
    if stat.S_ISLNK(seen.st_mode):
        return f"{place} is a link"
    if seen.st_uid not in (0, system.user_id()):
        return f"{place} belongs to user {files.user_name(seen.st_uid)}"
    return f"{place} can be written to by others" if seen.st_mode & 0o022 and not system.ACCESS_IS_LISTED else ""


def walk(root: str) -> Entries:
    """All entries of a tree by path, links not followed; none if it does not exist. Without sockets and devices, kept
    copies, and a conda's cache and other environments.
    """
    found: Entries = {}
    left_out = (STORES, *(_CONDAS if os.path.isdir(f"{root}/conda-meta") else ()))  # noqa: PTH112
    below = [""]
    while below:
        folder = below.pop()
        for name in _names(f"{root}/{folder}"):
            if not folder and name in left_out:
                continue
            path = f"{folder}/{name}" if folder else name
            entry = entry_of(f"{root}/{path}")
            if entry:
                found[path] = entry
                if entry.kind == "folder":
                    below.append(path)
    return found


def entries_of(paths: Iterable[str], root: str) -> Entries:
    """Entries of files and links by their path below `root`; missing ones and those elsewhere are left out."""
    below = (path for path in sorted(set(paths)) if is_below(path, [root]))
    found = ((system_paths.spelled(path[len(root) :]), entry_of(path)) for path in below)
    return {path: entry for path, entry in found if entry and entry.kind != "folder"}


def entry_of(path: str) -> Entry | None:
    """Entry of the path; None if missing or of another kind. Raises `OSError` if it may not be read."""
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
    """Kind of a file by its mode (``st_mode``): file, link or folder; None for devices, sockets and pipes."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else None


def _names(folder: str) -> Iterator[str]:
    """Sorted names of what is in a folder; none if it does not exist."""
    try:
        with os.scandir(folder) as found:
            yield from sorted(item.name for item in found)
    except (FileNotFoundError, NotADirectoryError):
        return
