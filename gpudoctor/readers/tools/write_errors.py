"""Files that a program could not write: no space, a read-only disk, a quota; and what df says of their disk."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 6
FACTS = (
    column("write_error.path", "text", "file or folder that a program could not write"),
    column(
        "write_error.why", "text", "the system's words: No space left on device, Read-only file system, or the quota's"
    ),
    column("write_error.mount", "text", "mount point of its file system, by df"),
    column("write_error.used_percent", "int", "how full df shows that file system", "%"),
    column("write_error.inodes_percent", "int", "how many of its inodes df -i shows in use", "%"),
)

_MOST = 5
"""Rows: a full disk fails every write."""
_WHY = r"(?P<why>[Nn]o space left on device|[Rr]ead-only file system|[Dd]isk quota exceeded)"
_PYTHON = Pattern(rf"\[Errno (?:28|30|122)\] {_WHY}: (?P<quote>['\"])(?P<path>[^'\"\n]{{1,400}})(?P=quote)")
_TOOL = Pattern(
    r"\s*(?:cp|mv|tar|mkdir|touch|dd|rsync|tee|ln|install): (?:[a-z ]{3,40}) "
    rf"['\"‘](?P<path>[^'\"‘’\n]{{1,400}})['\"’]: {_WHY}\s*$"
)
_GO = Pattern(
    rf"\b(?:write|open|mkdir|mkdirat|symlink|copy_file_range:? \S{{0,90}}) (?P<path>/[^\s:]{{1,400}}): {_WHY}\s*$"
)
_SIZE = r"[\d.,]+[KMGTPi]*\s+"
_DF = Pattern(rf"\s*\S+\s+(?:\S{{1,20}}\s+)?{_SIZE}{_SIZE}{_SIZE}(?P<used>\d{{1,3}})%\s+(?P<mount>/\S*)\s*$")
_MEMORY = re.compile(r"/(?:dev/|proc/|sys/|(?:torch|psm|sem|pymp|mp)[-_.][^/]*$)")
"""Paths that no disk holds: shared memory, devices, the kernel's own."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``write_error``, each path once."""
    rows: dict[str, dict[str, Fact]] = {}
    for index, line in paste.having("no space left on device", "read-only file system", "disk quota exceeded"):
        match = _PYTHON.search(line) or _TOOL.match(line) or _GO.search(line)
        if match and not _MEMORY.match(match["path"]) and len(rows) < _MOST:
            source = paste.use(index)
            why = match["why"][0].upper() + match["why"][1:]
            rows.setdefault(match["path"], {"path": Known(match["path"], source), "why": Known(why, source)})
    if rows:
        space, inodes = _usage(paste)
        for path, row in rows.items():
            mounts = [mount for mount in {*space, *inodes} if _holds(mount, path)]
            if mounts:
                mount = max(mounts, key=len)
                row["mount"] = Known(mount, (space.get(mount) or inodes[mount])[1])
                for name, usage in (("used_percent", space), ("inodes_percent", inodes)):
                    if mount in usage:
                        row[name] = Known(*usage[mount])
        yield "write_error", tuple(rows.values())


def _holds(mount: str, path: str) -> bool:
    """Whether the path lies below that mount point."""
    return path == mount or path.startswith(f"{mount.rstrip('/')}/")


def _usage(paste: Paste) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]]:
    """Percent in use by mount point, of space and of inodes, each with its source, from tables of df."""
    space: dict[str, tuple[int, str]] = {}
    inodes: dict[str, tuple[int, str]] = {}
    usage = space
    for index, line in enumerate(paste.bare):
        if "Mounted on" in line:
            usage = inodes if "IUse%" in line else space
        elif "%" in line and (match := _DF.fullmatch(line)):
            usage[match["mount"]] = (int(match["used"]), f"line {paste.numbers[index]}")
    return space, inodes
