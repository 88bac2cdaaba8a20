"""The state of an environment from before a run, kept so that it can be put back without the network.

Each tree of the environment has a hidden folder with a store for each run. Where the prefix is not the environment's
own, files that lie outside its site-packages (commands, data of wheels) are kept one by one. Putting a tree back, what
differs or is gone comes back and what came goes; that may be ended and repeated.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpudoctor.core import system
from gpudoctor.core.document import object_from_json
from gpudoctor.core.errors import DoctorError, DocumentError
from gpudoctor.core.frozen import frozen, replace
from gpudoctor.fixes.backup import environment, tree
from gpudoctor.fixes.backup.environment import Environment, Lock
from gpudoctor.fixes.backup.store import Manifest, Store, StoreWriter, digest_of, load_manifest, set_owner_and_mode
from gpudoctor.fixes.backup.tree import STORES, Entries, Entry, entry_of, is_below
from gpudoctor.fixes.records import Journal
from gpudoctor.target import system_paths

_LOOSE = "-loose"
_RUN = re.compile(r"\d{8}-\d{6}(-\d\d)?")
MOST_BACKUPS = 3
"""Runs of an environment whose former state is kept; that of older ones is dropped when another begins."""


@frozen
class Part:
    """One kept tree, stored at `store`. `loose`: single files of the environment outside its trees.
    `digest` is the SHA-256 of its manifest.
    """

    root: str
    store: str
    loose: bool = False
    digest: str = ""

    @property
    def stores(self) -> list[Path]:
        """Folders with the copies of this tree from all runs, oldest first."""
        ending = _LOOSE if self.loose else ""
        places = (place for place in Path(self.store).parent.iterdir() if place.name.endswith(_LOOSE) == self.loose)
        return sorted(place for place in places if _RUN.fullmatch(place.name.removesuffix(ending)))


@frozen
class Backup:
    """Copy of an environment as it was before the run with that id."""

    run: str
    environment: Environment
    lock: Lock
    parts: tuple[Part, ...]
    files: int = 0
    size: int = 0

    @property
    def complete(self) -> bool:
        """True if all parts of the copy still have their manifest on disk."""
        return all(Path(part.store, "manifest").is_file() for part in self.parts)


def create(run: str, target: Environment) -> Backup:
    """Write a copy of the environment to disk; `OSError` or `DoctorError` if that fails, and nothing is then left."""
    parts = list(_writable_parts(run, target))
    if there := next((part.store for part in parts if os.path.lexists(part.store)), ""):
        raise DoctorError(f"{there}: a run of another user began in the same second; try again. Nothing was changed")
    files = size = 0
    try:
        for place, part in enumerate(parts):
            entries = StoreWriter(part.root, Path(part.store)).keep(_current_entries(part, target)).entries
            parts[place] = replace(part, digest=digest_of(Path(part.store, "manifest")))
            files += len(entries)
            size += sum(entry.size for entry in entries.values())
    except BaseException:
        for part in parts:
            shutil.rmtree(part.store, ignore_errors=True)
        raise
    return Backup(run, target, environment.installed(target), tuple(parts), files, size)


def _writable_parts(run: str, target: Environment) -> Iterator[Part]:
    """Parts of an environment to keep, for run `run`: its trees that we may write to and, where the prefix is not its
    own and there is such a tree, its files outside these.

    Creates each tree, and the hidden folder in it for the copies of all runs, where they are missing; the parts'
    `store`, a folder in that one, is not created.
    """
    first = ""
    for root in target.trees:
        with suppress(OSError):
            folder = tree.kept_folder(root)
            if os.access(folder, os.W_OK):
                first = first or f"{folder}/{run}"
                yield Part(root, f"{folder}/{run}")
    if not target.own and first:
        yield Part(_loose_root(target), f"{first}{_LOOSE}", loose=True)


def _current_entries(part: Part, target: Environment) -> Entries:
    """Entries of the part's files as they are on disk now, by relative path."""
    return tree.entries_of(_loose_files(target), part.root) if part.loose else tree.walk(part.root)


def _loose_root(target: Environment) -> str:
    """What paths of files outside the environment's trees are relative to: ``/``, or the drive on Windows."""
    return Path(target.prefix).anchor


def _loose_files(target: Environment) -> Iterator[str]:
    """Paths of the environment's files outside its trees: those in a package's RECORD, and scripts that run its Python.
    Of the former only those below prefix and user base, since a RECORD may name any path.
    """
    homes = _allowed_bases(target)
    for item in environment.installed(target):
        listed = environment.record_of(item)
        yield from (path for path in listed if is_below(path, homes) and not is_below(path, target.trees))
    for folder in filter(None, (target.scripts, target.user_scripts)):
        with suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208
            paths = (os.path.join(folder, name) for name in names)  # noqa: PTH118
            yield from (path for path in paths if _runs_python(path, target))


def _allowed_bases(target: Environment) -> tuple[str, ...]:
    """Folders below which files outside the environment's trees may be touched: prefix and user base, never a root."""
    bases = (target.prefix, os.path.dirname(target.user_scripts))  # noqa: PTH120
    return tuple(base for base in bases if base and base != Path(base).anchor)


def _runs_python(place: str, target: Environment) -> bool:
    """True if the file's shebang names a program in that environment's folder of scripts or of its Python."""
    with suppress(OSError), open(place, "rb") as file:  # noqa: PTH123
        first = file.readline(1024)
        program = os.fsdecode(first[2:].strip()) if first.startswith(b"#!") else ""
        return bool(program) and os.path.dirname(program) in (target.scripts, os.path.dirname(target.python))  # noqa: PTH120
    return False


def note_after(copy: Backup) -> None:
    """Store how the run left the environment, so that later changes are known as others'. Raises `OSError`."""
    for part in copy.parts:
        Manifest(_current_entries(part, copy.environment), {}, {}).save(Path(part.store, "after"))


def check(copy: Backup) -> None:
    """Raise `DocumentError` if the copy has paths outside its environment, or other users could change it."""
    target = copy.environment
    allowed = (*_allowed_bases(target), target.scripts, target.user_scripts)
    for part in copy.parts:
        own = part.root == _loose_root(target) if part.loose else part.root in target.trees
        folder = Path(part.store).parent
        named = Path(part.store).name == f"{copy.run}{_LOOSE if part.loose else ''}"
        if not own or not named or folder not in [Path(root, STORES) for root in target.trees]:
            raise DocumentError(f"the record of run {copy.run} names {part.store}, outside {target.prefix}")
        for place in (part.store, *(f"{part.store}/{name}" for name in ("manifest", "small", "large"))):
            if why := tree.ownership_doubt(place):
                raise DocumentError(f"what was kept before run {copy.run} is not put back: {why}")
        for path in load_manifest(Path(part.store, "manifest"), part.digest).entries:
            inside = not part.loose or is_below(f"{part.root}{path}", allowed)
            odd = any(word in ("", ".", "..") for word in system_paths.spelled(path).split("/"))
            if not inside or odd or os.path.splitdrive(path)[0]:
                raise DocumentError(f"the record of run {copy.run} names {path[:80]!r}, outside {target.prefix}")


def restore(copy: Backup, undo: str, check_end: Callable[[], None], say: Callable[[str], None]) -> tuple[str, ...]:
    """Put the kept environment back; returns the paths that still differ. `undo` is the id of the run doing it; `say`
    receives progress text. Raises `OSError`, `DocumentError` if a copy is gone or doubtful, and what `check_end`
    raises; it may then be repeated.
    """
    check(copy)
    left: list[str] = []
    for part in sorted(copy.parts, key=lambda part: not part.loose):  # the RECORDs in the trees tell of loose files
        with Store(Path(part.store), part.digest) as store:
            back = _prepare_restoring(part, store, copy.environment, undo, check_end)
            left += [os.path.join(part.root, path) for path in back.restore()]  # noqa: PTH118
        say(f"{part.root}: {back.put_back} put back, {back.removed} removed\n")
        if back.put_aside:
            say(f"Changed or added after the run, so moved to {back.aside}:\n{listing(back.put_aside)}\n")
    return tuple(left)


def _prepare_restoring(
    part: Part, store: Store, target: Environment, undo: str, check_end: Callable[[], None]
) -> Restoring:
    """Restoring of one part, with the paths that others changed since the last run; none if that run was killed."""

    current_entries = partial(_current_entries, part, target)
    newest = part.stores[-1] / "after"  # without it the last run was killed, and who changed what is not known
    others = changed_by_others(load_manifest(newest).entries, current_entries()) if newest.is_file() else frozenset()
    aside = Path(part.store).with_name(f"aside-{undo}{_LOOSE if part.loose else ''}")
    return Restoring(part.root, store, current_entries, aside, others, check_end)


def drop(copy: Backup) -> None:
    """Delete a run's copy of the environment; the run can then no longer be undone. Errors are ignored."""
    for part in copy.parts:
        shutil.rmtree(part.store, ignore_errors=True)


def is_undoable(journal: Journal) -> bool:
    """True if the run's copy of the environment still exists on disk, so that it can be undone."""
    try:
        return journal.has("kept.json") and object_from_json(Backup, journal.document("kept.json")).complete
    except DocumentError:
        return False


def prune(target: Environment, last: int = MOST_BACKUPS) -> tuple[str, ...]:
    """Delete the environment's copies but the `last` whole ones; ids of the runs whose whole copies were deleted."""
    dropped: set[str] = set()
    for part in _writable_parts("00000000-000000", target):
        whole = [place for place in part.stores if (place / "manifest").is_file()]
        for place in part.stores:
            if place not in whole[-last:]:
                dropped |= {place.name.removesuffix(_LOOSE)} if place in whole else set()
                shutil.rmtree(place, ignore_errors=True)
    return tuple(sorted(dropped))


# ---- One tree put back as it was kept ----

MOST_NAMED = 20
"""Paths that are named one by one; the rest is counted."""


class RestoreEndedError(Exception):
    """The user ended the restore; what was put back by then stays."""


@dataclass
class Restoring:
    """Restores one tree at `root`; `entries` lists what is there now.
    `foreign` are paths that others changed after the run: they are moved to `aside`, never deleted.
    """

    root: str
    store: Store
    entries: Callable[[], Entries]
    aside: Path
    foreign: frozenset[str] = frozenset()
    check_end: Callable[[], None] = lambda: None
    """Called again and again; raises `RestoreEndedError` to end it."""
    put_aside: list[str] = field(default_factory=list)
    put_back: int = 0
    removed: int = 0

    def restore(self) -> tuple[str, ...]:
        """Put the tree back as it was kept; returns the paths that still differ. Raises `OSError`.
        A large file that was rewritten in place cannot be restored, since only its inode was kept; it stays as it is.
        """
        now = self.entries()
        then = self.store.manifest.entries
        for path in sorted((path for path in now if path not in then), reverse=True):
            self.check_end()
            self._remove(path, now[path])
        for path, entry in then.items():
            self.check_end()
            if self._is_unchanged(path, entry, now.get(path)):
                continue
            if entry.kind != "file" or self.store.sound(path):
                self._put_back_entry(path, entry, now.get(path))
        for path, entry in reversed(then.items()):
            if entry.kind == "folder":
                set_owner_and_mode(Path(self.root, path), entry)
        shutil.rmtree(self.store.store / "staging", ignore_errors=True)
        system.sync_all()  # what was kept is dropped next
        return tuple(f"{path}{self._reason_lost(path)}" for path in self.differences())

    def _reason_lost(self, path: str) -> str:
        """Note for a path whose kept content was overwritten; ``""`` for other paths."""
        entry = self.store.manifest.entries.get(path)
        spoilt = entry and entry.kind == "file" and not self.store.sound(path)
        return " (rewritten in place: only its package, installed anew, brings it back)" if spoilt else ""

    def differences(self) -> tuple[str, ...]:
        """Paths that were added, and those missing or not as they were kept."""
        now, then = self.entries(), self.store.manifest.entries
        more = [path for path in now if path not in then]
        return (*more, *(path for path, entry in then.items() if not self._is_unchanged(path, entry, now.get(path))))

    def _is_unchanged(self, path: str, then: Entry, now: Entry | None) -> bool:
        """True if what is there `now` has the kept kind, mode and owner and, of a link, goal; of a file size,
        modification time and content (taken as the same where inode and ctime are).
        """
        if now is None or (then.kind, then.mode, then.uid, then.gid) != (now.kind, now.mode, now.uid, now.gid):
            return False
        if then.kind != "file":
            return then.goal == now.goal
        if (then.size, then.mtime) != (now.size, now.mtime):
            return False
        return (then.inode, then.changed) == (now.inode, now.changed) or self.store.holds(path, f"{self.root}/{path}")

    def _remove(self, path: str, now: Entry) -> None:
        """Remove what was not there before: a file changed by others is moved aside, a folder must be empty."""
        place = Path(self.root, path)
        if path in self.foreign and now.kind != "folder":
            self._move_aside(path)
        elif now.kind == "folder":
            with suppress(FileNotFoundError):
                _with_write_permission(place.rmdir, place)
        else:
            _with_write_permission(lambda: place.unlink(missing_ok=True), place)
            self.removed += 1

    def _put_back_entry(self, path: str, then: Entry, now: Entry | None) -> None:
        """Put back one file, link or folder as it was kept; a file changed by others is moved aside first."""
        place = Path(self.root, path)
        staging = self.store.store / "staging" / secrets.token_hex(8)  # whole before what is there goes: may be spoilt
        staging.parent.mkdir(exist_ok=True)
        if then.kind == "link":
            staging.symlink_to(then.goal)
            set_owner_and_mode(staging, then)
        elif then.kind == "file":
            self.store.extract(path, staging)
        if now and (now.kind == "folder" or then.kind == "folder") and now.kind != then.kind:
            self._remove(path, now)
        elif now and now.kind != "folder" and path in self.foreign:
            self._move_aside(path)
        if then.kind == "folder":
            place.mkdir(exist_ok=True, parents=True)
            return
        place.parent.mkdir(exist_ok=True, parents=True)
        _with_write_permission(lambda: system.replace(staging, place), place)
        staging.unlink(missing_ok=True)  # two names of one inode: rename leaves both
        self.put_back += 1

    def _move_aside(self, path: str) -> None:
        """Move a file from the tree to the same relative path below the folder `aside`, and note it in `put_aside`."""
        goal = self.aside / path
        goal.parent.mkdir(parents=True, exist_ok=True)
        place = Path(self.root, path)
        _with_write_permission(lambda: place.replace(goal), place)
        self.put_aside.append(path)


def changed_by_others(after: Entries, now: Entries) -> frozenset[str]:
    """Paths that are there `now` and differ from the state `after` the run; folders and .pyc files do not count."""
    left = {path: (entry.kind, entry.size, entry.mtime, entry.goal) for path, entry in after.items()}
    return frozenset(
        path
        for path, entry in now.items()
        if (entry.kind, entry.size, entry.mtime, entry.goal) != left.get(path)
        and entry.kind != "folder"
        and not path.endswith(".pyc")
    )


def listing(paths: Iterable[str]) -> str:
    """The first 20 paths, one per indented line, and how many more there are."""
    all_of_them = list(paths)
    more = len(all_of_them) - MOST_NAMED
    lines = "\n".join(f"  {path!r}" if not path.isprintable() else f"  {path}" for path in all_of_them[:MOST_NAMED])
    return f"{lines}\n  and {more} more" if more > 0 else lines


def _with_write_permission(act: Callable[[], object], place: Path) -> None:
    """Call `act`; on `PermissionError` make the folder of `place` (on Windows: `place`) writable if it was read-only to
    its owner, and call again. Else the error is raised.
    """
    try:
        act()
    except PermissionError:
        shut = place if system.ACCESS_IS_LISTED else place.parent
        there = entry_of(str(shut))
        if not there or there.mode & 0o300 == 0o300 or (system.ACCESS_IS_LISTED and there.mode & 0o200):
            raise
        os.chmod(shut, there.mode | 0o700)  # noqa: PTH101
        act()
