"""The journals of runs: a folder each, whose ``run.json`` says at any moment what was done and what is half done.

What is done by them is done with our rights: only what this user or root wrote is read, where nobody else can write,
and each document has a digest of its content, its name and its run.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor import durable, trusted
from gpudoctor.model import run as runs
from gpudoctor.model.errors import DoctorError, DocumentError, UsageError
from gpudoctor.model.run import Run
from gpudoctor.state import HISTORY

MOST_RUNS = 200
"""Journals that are kept; the oldest go, save those by which a run can still be taken back."""
_RESERVES, _RESERVE = 4, 256 << 10
"""How often room is given back for one more record, and bytes each time."""
_PLENTY = 64 << 20
_NAME = re.compile(r"\d{8}-\d{6}(-\d\d)?")
_MOST = 64 << 20
"""Bytes of a journal that are read at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal as it lies there. `run` is None where it cannot be read, and `trouble` says why."""

    id: str
    run: Run | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Journals:
    """All runs of one user, in `folder`, one folder each."""

    folder: Path

    def begin(self) -> Journal:
        """A journal of its own for a run that begins now; raises `DoctorError` where none can be written."""
        name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if found := trusted.doubt(self.folder):
                raise DoctorError(f"no record can be kept in {self.folder}: {found}; nothing was run. {found.cure}")
            for number in range(1, 100):
                mine = name if number == 1 else f"{name}-{number:02}"
                with contextlib.suppress(FileExistsError):
                    (self.folder / mine).mkdir(mode=0o700)
                    durable.settle(self.folder)
                    return Journal(mine, self.folder / mine)
        except OSError as error:
            raise DoctorError(
                f"no record can be kept in {self.folder}: {error.strerror}; nothing was run. "
                "GPUDOCTOR_STATE names another folder"
            ) from error
        raise DoctorError(f"{self.folder}: a hundred runs began in this second; nothing was run")

    def list(self) -> tuple[Entry, ...]:
        """Every journal, the newest first; what is none is not listed, what is broken is, with its trouble."""
        try:
            names = sorted((place.name for place in self.folder.iterdir() if place.is_dir()), reverse=True)
        except OSError:
            return ()
        return tuple(self._entry(name) for name in names if not name.startswith(".") and name != HISTORY)

    def load(self, name: str) -> Run:
        """The run of that id, or of the only one that begins so; raises `UsageError` or `DocumentError`."""
        return self.journal(name).read()

    def journal(self, name: str) -> Journal:
        """The journal of that id, or of the only one that begins so; raises `UsageError` where there is none."""
        names = [entry.id for entry in self.list()]
        fits = [name] if name in names else [item for item in names if name and item.startswith(name)]
        if len(fits) != 1:
            known = f"; the last one is {names[0]}" if names else f"; there is none in {self.folder}"
            raise UsageError(f"{name!r} is {'no run' if not fits else 'more than one run'}{known}")
        return Journal(fits[0], self.folder / fits[0])

    def prune(self, needed: Callable[[Journal], bool], most: int = MOST_RUNS) -> None:
        """Remove the oldest journals beyond so many, save those that are needed and what is no journal of ours."""
        for entry in self.list()[most:]:
            journal = Journal(entry.id, self.folder / entry.id)
            if _NAME.fullmatch(entry.id) and not needed(journal):
                shutil.rmtree(journal.folder, ignore_errors=True)

    def _entry(self, name: str) -> Entry:
        try:
            return Entry(name, Journal(name, self.folder / name).read())
        except DocumentError as error:
            return Entry(name, None, str(error))


@dataclass(frozen=True, slots=True)
class Journal:
    """The record of one run; beside ``run.json`` lies what is needed to take it back."""

    id: str
    folder: Path

    def write(self, run: Run) -> None:
        """Have it on disk before this returns; raises `OSError`, and then the former record stands."""
        try:
            self.put("run.json", run.to_json())
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.release(1):
                raise
            self.put("run.json", run.to_json())

    def reserve(self) -> None:
        """Hold room for the records of this run's end and of its undo: a step may fill the disk. Raises `OSError`."""
        for number in range(_RESERVES):
            durable.write(self.folder / f"reserve-{number}", os.urandom(_RESERVE))

    def settle(self) -> None:
        """The run is over: where there is plenty of room for its undo, none is held."""
        with contextlib.suppress(OSError):
            found = os.statvfs(self.folder)
            if found.f_bavail * found.f_frsize > _PLENTY:
                self.release()

    def release(self, most: int = 0) -> bool:
        """Give back so much of the room that was held, all for 0; whether there was any."""
        places = sorted(self.folder.glob("reserve-*"))[: most or None]
        for place in places:
            place.unlink(missing_ok=True)
        return bool(places)

    def read(self) -> Run:
        """The run as it was last written; raises `DocumentError`."""
        run = runs.from_json(self.document("run.json"))
        if run.id != self.id:
            raise DocumentError(f"{self.folder}: the journal of another run, {run.id[:40]!r}")
        return run

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document beside the run; raises `OSError`."""
        signed = {**document, "digest": self._digest(name, document)}
        durable.put(self.folder / name, json.dumps(signed).encode(), 0o600)
        durable.settle(self.folder)

    def document(self, name: str) -> dict[str, Any]:
        """A document that was kept; raises `DocumentError` where it is not there, changed, or not ours."""
        place = self.folder / name
        try:
            raw = json.loads(self._read(place))
        except FileNotFoundError as error:
            raise DocumentError(f"{self.folder}: no {name} in it") from error
        except OSError as error:
            raise DocumentError(f"{place}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"{place}: no JSON") from error
        if not isinstance(raw, dict) or raw.pop("digest", None) != self._digest(name, raw):
            raise DocumentError(f"{place}: it was changed since it was written, and nothing is done by it")
        return raw

    def _read(self, place: Path) -> bytes:
        if found := trusted.doubt(self.folder):
            raise DocumentError(f"{place}: {found}, so nothing is done by it: {found.cure}")
        with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                raise DocumentError(f"{place}: no plain file")
            if seen.st_uid not in (0, os.geteuid()):
                raise DocumentError(f"{place}: belongs to user {trusted.name_of(seen.st_uid)}: nothing is done by it")
            if seen.st_mode & 0o022:
                raise DocumentError(f"{place}: others can write to it, so nothing is done by it")
            return file.read(_MOST)

    def _digest(self, name: str, document: Mapping[str, Any]) -> str:
        """Of the content, bound to the name and the run: a document of another run is none of this one."""
        content = json.dumps([self.id, name, document], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def has(self, name: str) -> bool:
        """Whether such a document was kept."""
        return os.path.lexists(self.folder / name)


def now() -> str:
    """This moment, as runs say it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
