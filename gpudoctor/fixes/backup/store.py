"""The kept contents of one tree: small files as copies in one file, large ones as links to their inodes.

A link costs nothing and keeps the file when an installer replaces it; a file that is rewritten in place takes its link
along, which its size and time tell. Where the file system can clone (btrfs, XFS), a clone stands for the link. Where it
can do neither, large files are copied. A manifest lists what is kept, and where each content lies.
"""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gpudoctor.core import files, system
from gpudoctor.core.errors import DoctorError, DocumentError
from gpudoctor.fixes.backup.tree import Entries, Entry, entry_of

_FORMAT = 1


class Small(NamedTuple):
    """Content stored in the common file: its offset and SHA-256."""

    offset: int
    digest: str


class Large(NamedTuple):
    """Content stored in a numbered file. `linked`: it is a hard link to the tree's own inode."""

    number: int
    linked: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Kept entries by path; the content of each file is in `small` or `large`."""

    entries: Entries
    small: dict[str, Small]
    large: dict[str, Large]

    def save(self, place: Path) -> None:
        """Write the manifest to disk (gzip JSON); raises `OSError`."""
        document = {"form": _FORMAT, "entries": self.entries, "small": self.small, "large": self.large}
        files.put(place, gzip.compress(json.dumps(document).encode(), 1), 0o600)
        system.sync_folder(place.parent)


def digest_of(place: Path) -> str:
    """SHA-256 of the file, hexadecimal; raises `OSError`."""
    return hashlib.sha256(place.read_bytes()).hexdigest()


def load_manifest(place: Path, expected: str = "") -> Manifest:
    """Manifest in a file; `DocumentError` if unreadable, malformed, or not of the SHA-256 `expected`, if given."""
    document = _read_document(place, expected)
    try:
        return Manifest(
            _decoded_items(document["entries"], Entry._make),
            _decoded_items(document["small"], Small._make),
            _decoded_items(document["large"], Large._make),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DocumentError(f"{place}: not a whole list of what was kept") from error


def _decoded_items(raw: dict[str, Any], make: Callable[[Any], Any]) -> dict[str, Any]:
    """The items by path, each made from its JSON list by `make`."""
    return {path: make(item) for path, item in raw.items()}


def _read_document(place: Path, expected: str) -> dict[str, Any]:
    """JSON document of a manifest file; `DocumentError` if unreadable, malformed or not of the SHA-256 `expected`."""
    try:
        data = place.read_bytes()
        if expected and hashlib.sha256(data).hexdigest() != expected:
            raise DocumentError(f"{place}: it was changed since it was written, and nothing is put back by it")
        document = json.loads(gzip.decompress(data))
    except (OSError, ValueError, EOFError) as error:
        raise DocumentError(f"{place}: {getattr(error, 'strerror', None) or 'broken'}") from error
    if not isinstance(document, dict) or document.get("form") != _FORMAT:
        raise DocumentError(f"{place}: no list of what was kept")
    return document


# ---- Contents ----

LARGE_BYTES = 64 << 10
"""Bytes from which on a file is linked: smaller ones may be edited in place, and cost little to copy."""
SPARE_BYTES = 64 << 20
"""Bytes that stay free on the file system."""


class StoreWriter:
    """Fills a store with the contents of a tree at `root`."""

    def __init__(self, root: str, store: Path) -> None:
        """`root` is the tree, `store` the folder to create for its contents."""
        self.root, self.store = root, store
        self._clones = True
        self._numbers = 0

    def keep(self, entries: Entries) -> Manifest:
        """Store the contents of all entries and their manifest, which is on disk on return. Raises `OSError`, and
        `DoctorError` if the disk lacks room.
        """
        self._check_room(sum(entry.size for entry in entries.values() if entry.size < LARGE_BYTES))
        self.store.mkdir(parents=True, mode=0o700)
        (self.store / "large").mkdir(mode=0o700)
        small: dict[str, Small] = {}
        large: dict[str, Large] = {}
        there: Entries = {}
        with (self.store / "small").open("xb") as blob:
            (self.store / "small").chmod(0o600)
            for path, entry in entries.items():
                with suppress(FileNotFoundError):  # it went while we were reading
                    there[path] = self._keep_entry(path, entry, blob, small, large)
            blob.flush()
            os.fsync(blob.fileno())
        system.sync_folder(self.store / "large")
        kept = Manifest(there, small, large)
        kept.save(self.store / "manifest")
        return kept

    def _keep_entry(
        self, path: str, entry: Entry, blob: BinaryIO, small: dict[str, Small], large: dict[str, Large]
    ) -> Entry:
        """Store a file's content, in `blob`, or as clone, link or copy if large or unreadable; nothing of other kinds.

        Returns the entry as it is afterwards, since a hard link changes its inode's ctime.
        """
        if entry.kind != "file":
            return entry
        place = f"{self.root}/{path}"
        content = _read_content(place) if entry.size < LARGE_BYTES else None
        if content is None:
            self._numbers += 1
            large[path] = Large(self._numbers, self._keep_large(place, entry, self.store / f"large/{self._numbers}"))
            return entry_of(place) or entry
        small[path] = Small(blob.tell(), hashlib.sha256(content).hexdigest())
        blob.write(content)
        return entry._replace(size=len(content))

    def _keep_large(self, place: str, entry: Entry, goal: Path) -> bool:
        """Store a large file by clone, hard link or copy, whichever works first; True if it was linked."""
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
        """Raise `DoctorError` if fewer than `size` plus `SPARE_BYTES` bytes are free."""
        if system.disk_space(self.store.parent)[1] < size + SPARE_BYTES:
            raise DoctorError(
                f"no room to keep {self.root} as it is: {size >> 20} MiB and {SPARE_BYTES >> 20} MiB to spare are "
                "needed on its file system. Nothing was changed"
            )


class Store:
    """Read access to the kept contents of a tree; a context manager."""

    def __init__(self, store: Path, digest: str = "") -> None:
        """Raises `DocumentError` where it is gone, broken, or its list is not the one of that digest."""
        self.store = store
        self.manifest = load_manifest(store / "manifest", digest)
        try:
            self._blob = (store / "small").open("rb")
        except OSError as error:
            raise DocumentError(f"{store / 'small'}: {error.strerror}") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._blob.close()

    def holds(self, path: str, now: str) -> bool:
        """True if the file at `now` has the content that is kept for `path`."""
        small = self.manifest.small.get(path)
        if small:
            content = _read_content(now)
            return content is not None and hashlib.sha256(content).hexdigest() == small.digest
        mine, there = self._large_file(path), entry_of(now)
        kept = entry_of(str(mine))
        if not kept or not there or not self.sound(path):
            return False
        return kept.inode == there.inode or _same_content(mine, Path(now))

    def sound(self, path: str) -> bool:
        """True if the kept content of `path` is still what it was; small files are checked when they are extracted."""
        if path in self.manifest.small:
            return True
        then, kept = self.manifest.entries[path], entry_of(str(self._large_file(path)))
        return bool(kept and (kept.size, kept.mtime) == (then.size, then.mtime))

    def extract(self, path: str, goal: Path) -> None:
        """Write the kept content of `path` to the new file `goal` (a hard link if the store has one), with mode, owner
        and time; the store is unchanged. Raises `DocumentError` if a small content was changed since.
        """
        entry, small = self.manifest.entries[path], self.manifest.small.get(path)
        if small:
            self._blob.seek(small.offset)
            content = self._blob.read(entry.size)
            if hashlib.sha256(content).hexdigest() != small.digest:
                raise DocumentError(f"{self.store / 'small'}: what was kept of {path[:80]!r} was changed since")
            goal.write_bytes(content)
        elif self.manifest.large[path].linked:
            os.link(self._large_file(path), goal)
        elif not clone(str(self._large_file(path)), goal):
            shutil.copyfile(self._large_file(path), goal)
        set_owner_and_mode(goal, entry)
        os.utime(goal, ns=(entry.mtime, entry.mtime))

    def _large_file(self, path: str) -> Path:
        """Path in the store of the kept content of a large file."""
        return self.store / f"large/{self.manifest.large[path].number}"


def set_owner_and_mode(place: Path, entry: Entry) -> None:
    """Give the file the owner and mode of the entry; an owner that we may not set stays."""
    there = entry_of(str(place))
    if there and (there.uid, there.gid) != (entry.uid, entry.gid):
        with suppress(PermissionError):
            system.give_to(place, entry.uid, entry.gid)
    if entry.kind != "link" and there and there.mode != entry.mode:
        place.chmod(entry.mode)


def clone(place: str, goal: Path) -> bool:
    """Create `goal` as a copy-on-write clone of `place`; False, and no `goal`, if that fails or is not supported."""
    try:
        with open(place, "rb") as source, goal.open("xb") as file:  # noqa: PTH123 - names that are no UTF-8, too
            system.clone(source.fileno(), file.fileno())
    except OSError:
        with suppress(OSError):
            goal.unlink()
        return False
    return True


def _read_content(place: str) -> bytes | None:
    """Content of a file; None if it may not be read."""
    try:
        with open(place, "rb") as file:  # noqa: PTH123
            return file.read()
    except PermissionError:
        return None


def _same_content(a: Path, b: Path) -> bool:
    """True if both files have the same bytes; False if either cannot be read."""
    try:
        return filecmp.cmp(a, b, shallow=False)
    except OSError:
        return False
