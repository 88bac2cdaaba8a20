"""Puts a tree back as it was kept: what differs or is gone comes back, what came goes. May be ended and repeated."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.remedy.keeping.store import Store, own
from gpudoctor.remedy.keeping.tree import Entries, Entry, look

MOST_NAMED = 20
"""Paths that are named one by one; the rest is counted."""


class Ended(Exception):  # noqa: N818 - no error: the user wants it so
    """The user ended it; what is put back by then stays so."""


@dataclass
class Restoring:
    """One tree at `root` on its way back. `entries` gives what is there now.

    `foreign` are paths that others made or changed after the run: they are moved into `aside`, never destroyed.
    """

    root: str
    store: Store
    entries: Callable[[], Entries]
    aside: Path
    foreign: frozenset[str] = frozenset()
    heard: Callable[[], None] = lambda: None
    """Called again and again; raises `Ended` to end it."""
    put_aside: list[str] = field(default_factory=list)
    put_back: int = 0
    removed: int = 0

    def restore(self) -> tuple[str, ...]:
        """Put it back; the paths that still differ afterwards. Raises `OSError`: no room, no right.

        A large file that was rewritten in place cannot come back: only its inode was kept, and it stays as it is.
        """
        now = self.entries()
        then = self.store.manifest.entries
        for path in sorted((path for path in now if path not in then), reverse=True):
            self.heard()
            self._remove(path, now[path])
        for path, entry in then.items():
            self.heard()
            if self._same(path, entry, now.get(path)):
                continue
            if entry.kind != "file" or self.store.sound(path):
                self._put(path, entry, now.get(path))
        for path, entry in reversed(then.items()):
            if entry.kind == "folder":
                own(Path(self.root, path), entry)
        self._clear_staging()
        os.sync()  # what was kept is dropped next
        return tuple(f"{path}{self._why(path)}" for path in self.differences())

    def _why(self, path: str) -> str:
        entry = self.store.manifest.entries.get(path)
        spoilt = entry and entry.kind == "file" and not self.store.sound(path)
        return " (rewritten in place: only its package, installed anew, brings it back)" if spoilt else ""

    def differences(self) -> tuple[str, ...]:
        """The paths at which the tree is not as it was kept."""
        now, then = self.entries(), self.store.manifest.entries
        more = [path for path in now if path not in then]
        return (*more, *(path for path, entry in then.items() if not self._same(path, entry, now.get(path))))

    def _same(self, path: str, then: Entry, now: Entry | None) -> bool:
        if now is None or (then.kind, then.mode, then.uid, then.gid) != (now.kind, now.mode, now.uid, now.gid):
            return False
        if then.kind != "file":
            return then.goal == now.goal
        if (then.size, then.mtime) != (now.size, now.mtime):
            return False
        return (then.inode, then.changed) == (now.inode, now.changed) or self.store.holds(path, f"{self.root}/{path}")

    def _remove(self, path: str, now: Entry) -> None:
        place = Path(self.root, path)
        if path in self.foreign and now.kind != "folder":
            self._move_aside(path)
        elif now.kind == "folder":
            with suppress(FileNotFoundError):
                _insisting(place.rmdir, place)
        else:
            _insisting(lambda: place.unlink(missing_ok=True), place)
            self.removed += 1

    def _put(self, path: str, then: Entry, now: Entry | None) -> None:
        place = Path(self.root, path)
        staging = self._staging() / secrets.token_hex(8)  # whole before what is there goes: it may be spoilt
        if then.kind == "link":
            staging.symlink_to(then.goal)
            own(staging, then)
        elif then.kind == "file":
            self.store.take(path, staging)
        if now and (now.kind == "folder" or then.kind == "folder") and now.kind != then.kind:
            self._remove(path, now)
        elif now and now.kind != "folder" and path in self.foreign:
            self._move_aside(path)
        if then.kind == "folder":
            place.mkdir(exist_ok=True, parents=True)
            return
        place.parent.mkdir(exist_ok=True, parents=True)
        _insisting(lambda: staging.replace(place), place)
        staging.unlink(missing_ok=True)  # two names of one inode: rename leaves both
        self.put_back += 1

    def _move_aside(self, path: str) -> None:
        goal = self.aside / path
        goal.parent.mkdir(parents=True, exist_ok=True)
        place = Path(self.root, path)
        _insisting(lambda: place.replace(goal), place)
        self.put_aside.append(path)

    def _staging(self) -> Path:
        folder = self.store.store / "staging"
        folder.mkdir(exist_ok=True)
        return folder

    def _clear_staging(self) -> None:
        folder = self.store.store / "staging"
        with suppress(FileNotFoundError):
            for place in folder.iterdir():
                place.unlink()
            folder.rmdir()


def foreign(after: Entries, now: Entries) -> frozenset[str]:
    """What others made or changed since `after` was read; what Python compiles by itself is nobody's."""

    def mine(path: str, entry: Entry) -> bool:
        then = after.get(path)
        return bool(
            then and (then.kind, then.size, then.mtime, then.goal) == (entry.kind, entry.size, entry.mtime, entry.goal)
        )

    return frozenset(
        path
        for path, entry in now.items()
        if not mine(path, entry) and entry.kind != "folder" and not path.endswith(".pyc")
    )


def named(paths: Iterable[str]) -> str:
    """The first of them, and how many more."""
    all_of_them = list(paths)
    more = len(all_of_them) - MOST_NAMED
    said = "\n".join(f"  {path!r}" if not path.isprintable() else f"  {path}" for path in all_of_them[:MOST_NAMED])
    return f"{said}\n  and {more} more" if more > 0 else said


def _insisting(act: Callable[[], object], place: Path) -> None:
    """Act in a folder that may be read-only to its owner; its mode is put right at the end."""
    try:
        act()
    except PermissionError:
        folder = look(str(place.parent))
        if not folder or folder.mode & 0o300 == 0o300:
            raise
        os.chmod(place.parent, folder.mode | 0o700)  # noqa: PTH101
        act()
