"""A machine that is not here: its record, laid out as a tree, answers as the machine did."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.model.errors import DocumentError
from gpudoctor.target import Answer, Watch
from gpudoctor.target._transcripts import transcript
from gpudoctor.target.local import Local
from gpudoctor.target.record import Command, Record

_BIN = "/usr/bin"


class Recorded(Local):
    """Files from a temporary tree, programs from the record; whatever was not recorded is refused, saying so.

    Use as a context manager: the tree goes when it ends.
    """

    def __init__(self, record: Record, level: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gpudoctor-record-")
        try:
            lay_out(record, Path(self._folder.name))
        except (OSError, ValueError) as error:
            self._folder.cleanup()
            why = getattr(error, "strerror", None) or error
            raise DocumentError(f"the record's files cannot be laid out: {why}") from error
        super().__init__(level or record.level, root=self._folder.name, environ=record.environ)
        self.name = record.name
        self._record = record
        self._programs = {command.argv[0].rpartition("/")[2] for command in record.commands}

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def python(self) -> str | None:
        """The interpreter that was diagnosed when the record was made."""
        return self._record.python

    def meanwhile(self, kernel: str, gpu: int) -> Mapping[str, Any] | None:
        """What NVML said of that GPU while that kernel ran there."""
        seen = (self._record.kernels or {}).get("meanwhile") or ()
        return next((one for one in seen if (one.get("kernel"), one.get("gpu")) == (kernel, gpu)), None)

    def path(self, path: str) -> Path:
        place = super().path(path)
        spots = {path, self._spot(place)}
        if any(spot == shut or spot.startswith(f"{shut}/") for shut in self._record.denied for spot in spots):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not spots.isdisjoint(self._record.left_out):
            raise OSError(errno.ENODATA, "left out of the record", path)
        return place

    def exists(self, path: str) -> bool:
        return self._spot(super().path(path)) in self._record.left_out or super().exists(path)

    def _spot(self, place: Path) -> str:
        """Where a file of the tree lies on the machine."""
        return f"/{place.relative_to(self._root)}".removesuffix("/.")

    def space(self, path: str) -> tuple[int, int]:
        if path in self._record.space:
            return self._record.space[path]
        raise OSError(errno.ENODATA, "its size was not recorded", path)

    def modified(self, path: str) -> float:
        if path in self._record.times:
            return self._record.times[path]
        raise OSError(errno.ENODATA, "when it was written was not recorded", path)

    def which(self, program: str) -> str | None:
        folders = self.environ.get("PATH", os.defpath).split(":")
        return next((f"{folder}/{program}" for folder in folders if self.exists(f"{folder}/{program}")), None)

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,  # noqa: ARG002 - a record knows one answer
        stdin: str = "",  # noqa: ARG002
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        argv = [word.removeprefix(self._folder.name) for word in argv]
        said = transcript(self._record, argv)
        if said is None:
            said = next((one for one in self._record.commands if _same(one.argv, argv)), None)
        if said is None:
            raise OSError(errno.ENODATA, f"what {argv[0]} answers was not recorded")
        patience = timeout if silence is None or not said.out else min(timeout, silence)
        seconds = patience if said.hangs else 0.0
        if watch:
            for line in said.out[:limit].split("\n"):
                watch(line)
        return Answer(tuple(argv), None if said.hangs else said.status, said.out[:limit], said.err[:limit], seconds)


def _same(recorded: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether the record's command is the one asked: a program is the same by its name, wherever it lies."""
    return recorded[0].rpartition("/")[2] == asked[0].rpartition("/")[2] and tuple(recorded[1:]) == tuple(asked[1:])


def lay_out(record: Record, root: Path, program: Callable[[str], bytes] = lambda _: b"") -> None:
    """Write the record's files, folders, links and device nodes (as plain files with their mode) under `root`.

    `program` gives the content of a recorded command's file, so that ``which`` finds it.
    """
    made: set[Path] = set()
    for path, content in _contents(record, program):
        place = root / path[1:]
        if place.parent not in made:
            place.parent.mkdir(parents=True, exist_ok=True)
            made.add(place.parent)
        place.write_bytes(content)
        if path.startswith(f"{_BIN}/"):
            place.chmod(0o755)
    for path, sparse in record.sparse.items():
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.truncate(sparse.size)
            for offset, data in sparse.parts:
                file.seek(offset)
                file.write(data)
    for path in record.left_out:
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    for path in record.folders:
        (root / path[1:]).mkdir(parents=True, exist_ok=True)
    for path, word in record.devices.items():
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        place.chmod(int(word.rpartition(" ")[2], 8))
    for path, goal in record.links.items():  # last: nothing may be written through them
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(goal)


def _contents(record: Record, program: Callable[[str], bytes]) -> Iterator[tuple[str, bytes]]:
    yield from record.files.items()
    taken = {*record.files, *record.sparse, *record.left_out, *record.links}
    for name in sorted({_place(command) for command in record.commands} - taken):
        yield name, program(name)


def _place(command: Command) -> str:
    return command.argv[0] if command.argv[0].startswith("/") else f"{_BIN}/{command.argv[0]}"
