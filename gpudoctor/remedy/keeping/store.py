"""The kept contents of one tree: small files as copies in one file, large ones as links to their inodes.

A link costs nothing and keeps the file when an installer replaces it; a file that is rewritten in place takes its link
along, which its size and time tell. Where the file system can clone (btrfs, XFS), a clone stands for the link. Where it
can do neither, large files are copied.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gpudoctor import durable
from gpudoctor.model.errors import DoctorError, DocumentError
from gpudoctor.remedy.keeping import manifest
from gpudoctor.remedy.keeping.manifest import Large, Manifest, Small
from gpudoctor.remedy.keeping.tree import Entries, Entry, look

SMALL = 64 << 10
"""Bytes from which on a file is linked: smaller ones may be edited in place, and cost little to copy."""
SPARE = 64 << 20
"""Bytes that stay free on the file system."""
_FICLONE = 0x40049409


class Keeping:
    """Fills a store with the contents of a tree at `root`."""

    def __init__(self, root: str, store: Path) -> None:
        self.root, self.store = root, store
        self._clones = True
        self._numbers = 0

    def keep(self, entries: Entries) -> Manifest:
        """Keep all of them; the manifest is on disk when this returns. Raises `OSError`, `DoctorError` without room."""
        self._check_room(sum(entry.size for entry in entries.values() if entry.size < SMALL))
        self.store.mkdir(parents=True, mode=0o700)
        (self.store / "large").mkdir(mode=0o700)
        small: dict[str, Small] = {}
        large: dict[str, Large] = {}
        there: Entries = {}
        with (self.store / "small").open("xb") as blob:
            os.fchmod(blob.fileno(), 0o600)
            for path, entry in entries.items():
                with suppress(FileNotFoundError):  # it went while we were reading
                    there[path] = self._hold(path, entry, blob, small, large)
            blob.flush()
            os.fsync(blob.fileno())
        durable.settle(self.store / "large")
        kept = Manifest(there, small, large)
        kept.save(self.store / "manifest")
        return kept

    def _hold(self, path: str, entry: Entry, blob: BinaryIO, small: dict[str, Small], large: dict[str, Large]) -> Entry:
        """Keep one; the entry as it is afterwards, for a link changes its inode's ctime."""
        if entry.kind != "file":
            return entry
        place = f"{self.root}/{path}"
        content = _content(place) if entry.size < SMALL else None
        if content is None:
            self._numbers += 1
            large[path] = Large(self._numbers, self._hold_large(place, entry, self.store / f"large/{self._numbers}"))
            return look(place) or entry
        small[path] = Small(blob.tell(), hashlib.sha256(content).hexdigest())
        blob.write(content)
        return entry._replace(size=len(content))

    def _hold_large(self, place: str, entry: Entry, goal: Path) -> bool:
        """Whether it was linked, not copied."""
        if self._clones and clone(place, goal):
            shutil.copystat(place, goal)
            return False
        self._clones = False
        try:
            os.link(place, goal, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, a foreign file, too many links, or none at all there
            self._check_room(entry.size)
            shutil.copy2(place, goal, follow_symlinks=False)
            return False
        return True

    def _check_room(self, size: int) -> None:
        found = os.statvfs(self.store.parent)
        if found.f_bavail * found.f_frsize < size + SPARE:
            raise DoctorError(
                f"no room to keep {self.root} as it is: {size >> 20} MiB and {SPARE >> 20} MiB to spare are needed on "
                "its file system. Nothing was changed"
            )


class Store:
    """What was kept of a tree, to take from, in a ``with``."""

    def __init__(self, store: Path, digest: str = "") -> None:
        """Raises `DocumentError` where it is gone, broken, or its list is not the one of that digest."""
        self.store = store
        self.manifest = manifest.load(store / "manifest", digest)
        try:
            self._blob = (store / "small").open("rb")
        except OSError as error:
            raise DocumentError(f"{store / 'small'}: {error.strerror}") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._blob.close()

    def holds(self, path: str, now: str) -> bool:
        """Whether the file at `now` has the content that was kept for `path`."""
        small = self.manifest.small.get(path)
        if small:
            content = _content(now)
            return content is not None and hashlib.sha256(content).hexdigest() == small.digest
        mine, there = self._large(path), look(now)
        kept = look(str(mine))
        if not kept or not there or not self.sound(path):
            return False
        return kept.inode == there.inode or _equal(mine, Path(now))

    def sound(self, path: str) -> bool:
        """Whether its content is as it was when it was kept."""
        if path in self.manifest.small:
            return True
        then, kept = self.manifest.entries[path], look(str(self._large(path)))
        return bool(kept and (kept.size, kept.mtime) == (then.size, then.mtime))

    def take(self, path: str, goal: Path) -> None:
        """Put its content, mode, owner and time at `goal`, where nothing is yet; the store stays whole."""
        entry, small = self.manifest.entries[path], self.manifest.small.get(path)
        if small:
            self._blob.seek(small.offset)
            content = self._blob.read(entry.size)
            if hashlib.sha256(content).hexdigest() != small.digest:
                raise DocumentError(f"{self.store / 'small'}: what was kept of {path[:80]!r} was changed since")
            goal.write_bytes(content)
        elif self.manifest.large[path].linked:
            os.link(self._large(path), goal)
        elif not clone(str(self._large(path)), goal):
            shutil.copyfile(self._large(path), goal)
        own(goal, entry)
        os.utime(goal, ns=(entry.mtime, entry.mtime))

    def _large(self, path: str) -> Path:
        return self.store / f"large/{self.manifest.large[path].number}"


def own(place: Path, entry: Entry) -> None:
    """Give it the owner and the mode of that entry, as far as we may."""
    there = look(str(place))
    if there and (there.uid, there.gid) != (entry.uid, entry.gid):
        with suppress(PermissionError):
            os.chown(place, entry.uid, entry.gid, follow_symlinks=False)
    if entry.kind != "link" and there and there.mode != entry.mode:
        place.chmod(entry.mode)


def clone(place: str, goal: Path) -> bool:
    """Make a file that shares the blocks of another until one is written to; False where that cannot be done."""
    try:
        with open(place, "rb") as source, goal.open("xb") as file:  # noqa: PTH123 - names that are no UTF-8, too
            fcntl.ioctl(file.fileno(), _FICLONE, source.fileno())
    except OSError:
        with suppress(OSError):
            goal.unlink()
        return False
    return True


def _content(place: str) -> bytes | None:
    """What is in it; None where we may not read."""
    try:
        with open(place, "rb") as file:  # noqa: PTH123
            return file.read()
    except PermissionError:
        return None


def _equal(one: Path, other: Path) -> bool:
    import filecmp

    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False
