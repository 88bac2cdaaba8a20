"""A file that tells which of its parts are read."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
"""Refusals that say that there is no such file."""

_MOST_OF_RING = 8 << 20


@dataclass(slots=True)
class Parts:
    """What was read of a file of `size` bytes: offsets and bytes, as they came."""

    size: int
    read: list[tuple[int, bytes]] = field(default_factory=list)

    def note(self, offset: int, data: bytes) -> None:
        if data:
            self.read.append((offset, data))

    def joined(self) -> list[tuple[int, bytes]]:
        """The parts in order, those that touch or overlap as one."""
        out: list[tuple[int, bytearray]] = []
        for offset, data in sorted(self.read, key=lambda part: part[0]):
            end = out[-1][0] + len(out[-1][1]) if out else -1
            if offset <= end:
                out[-1][1].extend(data[end - offset :])
            else:
                out.append((offset, bytearray(data)))
        return [(offset, bytes(data)) for offset, data in out]


class Watched(type(Path())):  # type: ignore[misc]  # before Python 3.12 Path itself cannot be subclassed
    """A path that tells which parts of its file are read: by ``open``, and by whoever calls `note` for `os.pread`."""

    note: Callable[[int, bytes], None] | None = None
    refused: Callable[[], object] = staticmethod(lambda: None)

    def open(self, mode: str = "r", *rest: Any, **more: Any) -> IO[Any]:
        if mode != "rb" or self.note is None:
            return super().open(mode, *rest, **more)  # type: ignore[no-any-return]
        try:
            return io.BufferedReader(_Noted(str(self), self.note))
        except OSError as error:
            if error.errno not in MISSING:
                self.refused()
            raise

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return bytes(file.read())


class _Noted(io.FileIO):
    """A file whose every part read is told."""

    def __init__(self, path: str, note: Callable[[int, bytes], None]) -> None:
        super().__init__(path, "r")
        self._note = note

    def readinto(self, buffer: Any) -> int:
        at = self.tell() if self.seekable() else 0
        count = super().readinto(buffer) or 0
        self._note(at, bytes(memoryview(buffer)[:count]))
        return count

    def readall(self) -> bytes:
        at = self.tell() if self.seekable() else 0
        data = super().readall() or b""
        self._note(at, data)
        return data


def ring(place: Path) -> bytes:
    """The kernel's log as its device gives it, one record a read."""
    handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    heard = bytearray()
    try:
        while len(heard) < _MOST_OF_RING:
            try:
                part = os.read(handle, 1 << 14)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before we came to it
                continue
            if not part:
                break
            heard += part
    finally:
        os.close(handle)
    return bytes(heard)
