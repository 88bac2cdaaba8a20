"""Reading small files into facts: a missing file is absent, a refused or damaged one is unread."""

from __future__ import annotations

import os
import re

from gpudoctor.core.fact import Absent, Fact, Known, Reason, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.target import Target


def text(target: Target, path: str, limit: int = 1 << 20) -> str | Absent | Unread:
    """The file's text, at most `limit` bytes, without surrounding white space and NULs.

    Absent if it is missing, unread if it may not be read.
    """
    try:
        return target.read(path, limit).strip("\0 \t\r\n")
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"no {path}", Reason.MISSING)
    except OSError as error:
        return refusal(path, error)


def refusal(path: str, error: OSError) -> Unread:
    """The operating system's error as an `Unread` with the path."""
    reason = Reason.DENIED if isinstance(error, PermissionError) else Reason.FAILED
    return Unread(f"{path}: {error.strerror or type(error).__name__}", reason=reason)


def as_unread(absence: Absent | Unread) -> Unread:
    """The reason of `absence` as an `Unread`, for a file whose absence tells nothing."""
    return Unread(absence.why, reason=absence.reason)


def names(target: Target, folder: str) -> list[str] | Absent | Unread:
    """The sorted names in a folder, maybe none; absent if there is no such folder, unread if it cannot be listed."""
    try:
        found = target.listing(folder)
        return found if found or target.exists(folder) else Absent(f"no {folder}", Reason.MISSING)
    except OSError as error:
        return refusal(folder, error)


def names_in(target: Target, folder: str) -> list[str]:
    """The sorted names in a folder; empty if it is missing or cannot be listed."""
    found = names(target, folder)
    return found if isinstance(found, list) else []


def path_exists(target: Target, path: str) -> bool | Unread:
    """True if the path exists, links followed; unread if that cannot be told."""
    try:
        return target.exists(path)
    except OSError as error:
        return refusal(path, error)


def resolve_path(target: Target, path: str) -> str:
    """The path with links followed; empty if it cannot be resolved."""
    try:
        return target.link(path)
    except OSError:
        return ""


def line(target: Target, path: str) -> Fact:
    """The file's first line, stripped; absent if the file is missing, unread if it is empty or may not be read."""
    found = text(target, path, 4096)
    if not isinstance(found, str):
        return found
    first = found.partition("\n")[0].strip()
    return Known(first, path) if first else Unread(f"{path} is empty", reason=Reason.MALFORMED)


def number(target: Target, path: str) -> Fact:
    """The whole number that the file starts with; absent if the file is missing, unread if it starts with none."""
    found = text(target, path, 64)
    if not isinstance(found, str):
        return found
    match = re.match(r"-?\d+", found)
    malformed = Unread(f"{path} holds {found[:20]!r}, not a number", reason=Reason.MALFORMED)
    return Known(int(match[0]), path) if match else malformed


def list_length(listed: str) -> int:
    """How many numbers the kernel's list ``0-3,8`` has; raises `ValueError` for anything else."""
    spans = [[int(number) for number in part.split("-")] for part in listed.split(",")]
    return sum(span[-1] - span[0] + 1 for span in spans)


def usable(target: Target, path: str) -> bool:
    """True if this user may open the path for reading and writing, by its permissions; False also if it is missing."""
    try:
        place = target.path(path)
    except OSError:
        return False
    if os.access in os.supports_effective_ids:
        return os.access(place, os.R_OK | os.W_OK, effective_ids=True)
    return os.access(place, os.R_OK | os.W_OK)


# ---- Control groups, in both versions ----

CGROUPS = "/sys/fs/cgroup"
NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes "no limit" as the largest whole number of pages."""


def folders(cgroup_file: str, controller: str) -> list[str]:
    """The cgroup folders that may hold this process's limits, its own first, then each parent.

    `cgroup_file`: text of /proc/self/cgroup: ``0::/user.slice`` in version 2, ``4:memory:/docker/ab12`` in version 1.
    In a container the path may be the host's, which is not mounted here: the last folder, the mount, is then its own.
    Beside version 1, systemd mounts version 2 as ``unified``. A path that begins with ``/..`` is outside the root that
    this cgroup namespace shows: no folder here is of it.
    """
    version1 = re.search(rf"^\d+:(?:[^:\n]*,)?{controller}(?:,[^:\n]*)?:(/.*)$", cgroup_file, re.M)
    version2 = re.search(r"^0::(/.*)$", cgroup_file, re.M)
    out: list[str] = []
    mounts = [(version1, f"{CGROUPS}/{controller}"), (version2, CGROUPS)]
    if re.search(r"^[1-9]", cgroup_file, re.M):
        mounts.insert(1, (version2, f"{CGROUPS}/unified"))
    for match, mount in mounts:
        if match and match[1].startswith("/.."):
            continue
        inside = match[1].rstrip("/") if match else None
        while inside:
            out.append(mount + inside)
            inside = inside.rpartition("/")[0]
        out += [mount] if match else []
    return out


def cpu_quota(target: Target, folder: str) -> float | None:
    """How many processors the folder's quota lets its processes use; None if it sets none.

    ``cpu.max`` holds ``200000 100000``, or ``max 100000`` without a quota; version 1 has a file for each number.
    """
    found = text(target, f"{folder}/cpu.max", 64)
    if not isinstance(found, str):
        parts = [text(target, f"{folder}/cpu.cfs_{name}_us", 64) for name in ("quota", "period")]
        found = " ".join(part if isinstance(part, str) else "" for part in parts)
    match = re.fullmatch(r"(\d{1,15}) (\d{1,15})", found)
    return int(match[1]) / max(1, int(match[2])) if match else None


# ---- Mounted file systems, by a mountinfo file ----

_REMOTE = pattern(r"nfs|cifs|smb|lustre|gpfs|ceph|gluster|beegfs|fuse|9p|afs|panfs|pvfs|orangefs|virtiofs", re.I)
"""Kinds of file systems that somebody else serves: a look at them may wait for ever."""

_MOUNT = pattern(r"^\S+ \S+ \S+ \S+ (\S+) (\S+) [^\n]*?- (\S+) (\S*) (\S+)", re.M)


@frozen
class Mount:
    """A mounted file system; `source` is what the kernel was told to mount."""

    point: str
    kind: str
    source: str
    read_only: bool

    @property
    def remote(self) -> bool:
        """True if its type is that of a network file system or of FUSE, so that access may hang."""
        return bool(_REMOTE.search(self.kind))


def mount_in(listed: str, path: str) -> Mount | None:
    """The file system that holds the path, by the text of a mountinfo file; None where none does."""
    best: Mount | None = None
    for match in _MOUNT.finditer(listed):
        point, source = (re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), match[at]) for at in (1, 4))
        inside = path == point or path.startswith(f"{point.rstrip('/')}/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point, match[3], source, "ro" in f"{match[2]},{match[5]}".split(","))
    return best
