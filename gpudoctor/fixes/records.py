"""What was run: journals that outlast a crash, the locks of who runs one now, and what can still be taken back.

A journal is a folder whose ``run.json`` says at any moment what was done and what is half done. What is done by them is
done with our rights: only what this user or root wrote is read, where nobody else can write, and each document has a
digest of its content, its name and its run.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.core import files, system
from gpudoctor.core import run as runs
from gpudoctor.core.errors import DoctorError, DocumentError, UsageError
from gpudoctor.core.files import HISTORY
from gpudoctor.core.language import say
from gpudoctor.core.run import Run
from gpudoctor.fixes.backup import tree
from gpudoctor.fixes.backup.environment import Environment
from gpudoctor.target import system_paths

MOST_RUNS = 200
"""Journals that are kept; the oldest go, save those by which a run can still be taken back."""
_RESERVES, _RESERVE = 4, 256 << 10
"""How often room is given back for one more record, and bytes each time."""
_FREE_BYTES = 64 << 20
_NAME = re.compile(r"\d{8}-\d{6}(-\d\d)?")
_MOST_JOURNAL_BYTES = 64 << 20
"""Bytes of a journal that are read at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal in the folder; `run` is None if it cannot be read, and `trouble` says why."""

    id: str
    run: Run | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Journals:
    """All journals of one user, one folder each below `folder`."""

    folder: Path

    def begin(self) -> Journal:
        """New journal folder for a run that starts now; `DoctorError` if it cannot be made, or others can write
        there.
        """
        name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if found := files.doubt(self.folder):
                raise DoctorError(
                    say(
                        "no record can be kept in {folder}: {found}; nothing was run. {cure}",
                        folder=self.folder,
                        found=found,
                        cure=found.cure,
                    )
                )
            for number in range(1, 100):
                mine = name if number == 1 else f"{name}-{number:02}"
                with contextlib.suppress(FileExistsError):
                    (self.folder / mine).mkdir(mode=0o700)
                    system.sync_folder(self.folder)
                    return Journal(mine, self.folder / mine)
        except OSError as error:
            raise DoctorError(
                say(
                    "no record can be kept in {folder}: {why}; nothing was run. GPUDOCTOR_STATE names another folder",
                    folder=self.folder,
                    why=error.strerror,
                )
            ) from error
        raise DoctorError(say("{folder}: a hundred runs began in this second; nothing was run", folder=self.folder))

    def list(self) -> tuple[Entry, ...]:
        """All journals, newest first; an unreadable one has `trouble` set and no `run`. Empty if there is no folder."""
        try:
            names = sorted((place.name for place in self.folder.iterdir() if place.is_dir()), reverse=True)
        except OSError:
            return ()
        return tuple(self._entry(name) for name in names if not name.startswith(".") and name != HISTORY)

    def load(self, name: str) -> Run:
        """Run with that id or unique prefix; `UsageError` if there is not exactly one, `DocumentError` if
        unreadable.
        """
        return self.journal(name).read()

    def journal(self, name: str) -> Journal:
        """Journal with that id or unique prefix; raises `UsageError` if there is not exactly one."""
        names = [entry.id for entry in self.list()]
        fits = [name] if name in names else [item for item in names if name and item.startswith(name)]
        if len(fits) != 1:
            sentence = "; the last one is {id}" if names else "; there is none in {folder}"
            known = say(sentence, id=names[0] if names else "", folder=self.folder)
            raise UsageError(
                say(
                    "{name} is {what}{known}",
                    name=repr(name),
                    what=say("no run" if not fits else "more than one run"),
                    known=known,
                )
            )
        return Journal(fits[0], self.folder / fits[0])

    def prune(self, needed: Callable[[Journal], bool], most: int = MOST_RUNS) -> None:
        """Delete the oldest journals beyond `most`, except those for which `needed` is true."""
        for entry in self.list()[most:]:
            journal = Journal(entry.id, self.folder / entry.id)
            if _NAME.fullmatch(entry.id) and not needed(journal):
                shutil.rmtree(journal.folder, ignore_errors=True)

    def _entry(self, name: str) -> Entry:
        """Entry of one journal folder; `run` is None, with `trouble` set, if it cannot be read."""
        try:
            return Entry(name, Journal(name, self.folder / name).read())
        except DocumentError as error:
            return Entry(name, None, str(error))


@dataclass(frozen=True, slots=True)
class Journal:
    """Record of one run: a folder with ``run.json`` and the documents needed to undo it."""

    id: str
    folder: Path

    def write(self, run: Run) -> None:
        """Write the run to ``run.json``; if the disk is full, delete one of the files that reserve space and try once
        more. Raises `OSError`, and then the former record remains.
        """
        try:
            self.put("run.json", run.to_json())
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.release(1):
                raise
            self.put("run.json", run.to_json())

    def reserve(self) -> None:
        """Reserve disk space for later records of this run and its undo. Raises `OSError`, also if the disk is full."""
        for number in range(_RESERVES):
            files.write(self.folder / f"reserve-{number}", os.urandom(_RESERVE))

    def settle(self) -> None:
        """Release the journal's reserved space if the disk has plenty free; errors are ignored."""
        with contextlib.suppress(OSError):
            if system.disk_space(self.folder)[1] > _FREE_BYTES:
                self.release()

    def release(self, most: int = 0) -> bool:
        """Delete `most` of the files that reserve space, or all for 0; True if there was any."""
        places = sorted(self.folder.glob("reserve-*"))[: most or None]
        for place in places:
            place.unlink(missing_ok=True)
        return bool(places)

    def read(self) -> Run:
        """The run as last written to the journal; raises `DocumentError` if it cannot be read or is another run's."""
        run = runs.from_json(self.document("run.json"))
        if run.id != self.id:
            raise DocumentError(
                say("{folder}: the journal of another run, {id}", folder=self.folder, id=repr(run.id[:40]))
            )
        return run

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a document under that name in the journal, with its digest; raises `OSError`."""
        signed = {**document, "digest": self._digest(name, document)}
        files.put(self.folder / name, json.dumps(signed).encode(), 0o600)
        system.sync_folder(self.folder)

    def document(self, name: str) -> dict[str, Any]:
        """A document stored in the journal; `DocumentError` if missing, modified, or not owned by us or root."""
        place = self.folder / name
        try:
            raw = json.loads(self._read(place))
        except FileNotFoundError as error:
            raise DocumentError(say("{folder}: no {name} in it", folder=self.folder, name=name)) from error
        except OSError as error:
            raise DocumentError(f"{place}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise DocumentError(say("{place}: no JSON", place=place)) from error
        digest = raw.pop("digest", None) if isinstance(raw, dict) else ""
        if digest != self._digest(name, raw) and not (digest is None and self._is_of_1_0()):
            raise DocumentError(
                say("{place}: it was changed since it was written, and nothing is done by it", place=place)
            )
        document: dict[str, Any] = raw
        return document

    def _is_of_1_0(self) -> bool:
        """True if none of the journal's documents has a digest, as gpudoctor 1.0 wrote them."""
        return not any(b'"digest": "' in self._read(place) for place in self.folder.glob("*.json"))

    def _read(self, place: Path) -> bytes:
        """First 64 MiB of a plain file that only we or root can write; raises `DocumentError` for any other,
        `OSError`.
        """
        if found := files.doubt(self.folder):
            raise DocumentError(
                say("{place}: {found}, so nothing is done by it: {cure}", place=place, found=found, cure=found.cure)
            )
        with open(os.open(place, system.READ | system.NO_FOLLOW | system.NON_BLOCKING), "rb") as file:  # noqa: PTH123
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                raise DocumentError(say("{place}: no plain file", place=place))
            if seen.st_uid not in (0, system.user_id()):
                raise DocumentError(
                    say(
                        "{place}: belongs to user {user}: nothing is done by it",
                        place=place,
                        user=files.user_name(seen.st_uid),
                    )
                )
            if seen.st_mode & 0o022 and not system.ACCESS_IS_LISTED:
                raise DocumentError(say("{place}: others can write to it, so nothing is done by it", place=place))
            return file.read(_MOST_JOURNAL_BYTES)

    def _digest(self, name: str, document: Mapping[str, Any]) -> str:
        """SHA-256 of the document together with its name and the run's id."""
        content = json.dumps([self.id, name, document], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def has(self, name: str) -> bool:
        """True if the journal has a document of that name, readable or not."""
        return os.path.lexists(self.folder / name)


def now() -> str:
    """Current UTC time, ``2026-11-28T14:00:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# ---- One run at a time: on this machine for each user, and in each environment for all of them ----
# The lock of an environment is a file in it that all those can open who can change it. The kernel lets go of it when
# its holder ends, however that is; what the file then says is of a run that was cut off.


@contextmanager
def hold_lock(scope: str, place: Path, run: str) -> Iterator[None]:
    """Hold an exclusive lock on the file within the context; raises `DoctorError` naming the holder if it is taken.
    `scope` is for messages: ``on this machine``. `run` describes the run to others who wait. Warns if another user's
    run was cut off while it held the lock.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = _open_lock(place)
    except OSError as error:
        raise DoctorError(say("{place}: {why}; nothing was run", place=place, why=error.strerror)) from error
    try:
        try:
            system.lock(handle)
        except BlockingIOError:
            raise DoctorError(
                say(
                    "another run is under way {scope}: {what}; wait for it",
                    scope=scope,
                    what=_holder_note(handle) or say("of another gpudoctor"),
                )
            ) from None
        user = files.user_name(system.user_id())
        former = _holder_note(handle)  # one without a user is of 1.0, which left it there; our own are in our journals
        if ", user " in former and f", user {user}, process" not in former:
            files.warn_once(
                f"a run was cut off {scope}: {former}; gpudoctor fix --undo last, as that user, takes it back"
            )
        os.ftruncate(handle, 0)
        system.write_at(handle, f"run {run}, user {user}, process {os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _open_lock(place: Path) -> int:
    """Descriptor of the lock file, created if missing, not locked yet; raises `OSError`, also if it is no plain
    file.
    """
    flags = system.READ_WRITE | system.NO_FOLLOW | system.NON_BLOCKING
    try:
        handle = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        handle = os.open(place, flags)
    else:
        tree.share_like_parent(place, os.stat(place.parent))  # noqa: PTH116
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no plain file")
    return handle


def _holder_note(handle: int) -> str:
    """Text that the holder wrote into the lock file, made printable; it is untrusted."""
    text = system.read_at(handle, 200, 0).decode("utf-8", "replace").strip()
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def is_locked(place: Path) -> bool:
    """True if the lock is held by a process now; False also if it cannot be opened."""
    try:
        with place.open("rb") as file:
            system.lock(file.fileno(), shared=True)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever held it, or it is not ours to know
        return False
    return False


def machine_lock(journals: Path) -> Path:
    """Lock file for all runs of this user (root's: all changes to the system)."""
    return journals / ".lock"


def environment_lock(target: Environment) -> Path:
    """Path of the environment's lock file, in its first writable tree; `DoctorError` if the folder cannot be made."""
    mine = (place for place in target.trees if os.access(tree.nearest_existing(place), os.W_OK))
    root = next(mine, target.trees[0])
    try:
        return tree.kept_folder(root) / "lock"
    except OSError as error:
        raise DoctorError(
            say("{root}: {why}; nothing was run", root=Path(root, tree.STORES), why=error.strerror)
        ) from error


# ---- What earlier runs mean for the next one ----
# Which was ended from outside, and which can still be taken back.


def unfinished(journals: Journals) -> Run | None:
    """The newest readable run if it was interrupted (neither over nor under way) and its environment still exists; else
    None.
    """
    run = next((entry.run for entry in journals.list() if entry.run), None)
    if not run or run.over or is_locked(machine_lock(journals.folder)):
        return None
    return run if not run.plan.environment or os.path.isdir(run.plan.environment) else None  # noqa: PTH112


def last_undoable(entries: Sequence[Entry]) -> Run:
    """The newest run that can be undone; raises `UsageError` if there is none."""
    for entry in entries:
        if entry.run and undo_state(entry.run, entries) == POSSIBLE:
            return entry.run
    raise UsageError(say("there is no run to take back; gpudoctor fix --runs lists them all"))


POSSIBLE = "can be taken back"


def undo_state(run: Run, entries: Sequence[Entry]) -> str:
    """Whether the run can be undone: `POSSIBLE`, ``was taken back`` or ``changed nothing``; ``""`` for an undo."""
    if run.undoes:
        return ""
    if any(entry.run and entry.run.undoes == run.id and entry.run.outcome == "undone" for entry in entries):
        return "was taken back"
    return POSSIBLE if run.changed or not run.over else "changed nothing"


def python_of(run: Run) -> str | None:
    """Path of the Python of the environment that the run's plan changes, be it gone or not; None if it changes none."""
    found = list(system_paths.interpreters(run.plan.environment)) if run.plan.environment else [None]
    return next((python for python in found if python and os.path.isfile(python)), found[0])  # noqa: PTH113
