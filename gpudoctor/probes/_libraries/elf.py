"""Just enough of ELF: a 64-bit little-endian library's sections, and what it asks of the loader.

Read with `pread`, not memory-mapped: a library that shrinks or sits on a failing disk or a stale NFS mount while we
look ends in an `OSError` and not in a SIGBUS that takes the program along. Every offset is checked against the file,
every table has a limit; whatever does not fit raises `MalformedError`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.model.frozen import frozen

_LIMIT = 4096
"""Sections, program headers and dynamic entries that a file may have before we stop believing it (libtorch: ~60)."""

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29


class MalformedError(ValueError):
    """The file is not what it says it is."""


@frozen
class Section:
    """A named range of the file, in bytes."""

    name: str
    offset: int
    size: int


@frozen
class Dynamic:
    """What the loader reads of a library: its own name, the names it needs, and the folders it brings along.

    `rpath` is empty where there is a `runpath`, as the loader ignores it then.
    """

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


class Elf:
    """An open library. Use `opened`. `note` is told every part that is read."""

    def __init__(self, descriptor: int, note: Callable[[int, bytes], None] | None = None) -> None:
        self._fd = descriptor
        self._note = note
        self.size = os.fstat(descriptor).st_size
        head = self.read(0, 64)
        if head[:4] != b"\x7fELF":
            raise MalformedError("not an ELF file")
        if head[4:6] != b"\x02\x01":
            raise MalformedError("not a 64-bit little-endian ELF file")
        self._phoff, self._shoff = struct.unpack_from("<QQ", head, 0x20)
        self._phsize, self._phnum, self._shsize, self._shnum, self._names = struct.unpack_from("<HHHHH", head, 0x36)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes at `offset`."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise MalformedError(f"{size} bytes at {offset} lie outside a file of {self.size} bytes")
        data = os.pread(self._fd, size, offset)
        if len(data) != size:
            raise MalformedError(f"the file ended at {offset + len(data)} while it was read")
        if self._note:
            self._note(offset, data)
        return data

    def find(self, pattern: bytes, start: int, end: int) -> int:
        """Where `pattern` next begins between `start` and `end`, -1 where it does not."""
        step = 256  # mostly it is a few bytes of padding away
        while start < end:
            here = self.read(start, min(step, end - start))
            at = here.find(pattern)
            if at >= 0:
                return start + at
            if start + len(here) >= end:
                break
            start += len(here) - len(pattern) + 1
            step = min(step * 4, 1 << 20)
        return -1

    def sections(self) -> tuple[Section, ...]:
        """All sections; none where the table was stripped."""
        table = list(self._table(self._shoff, self._shsize, self._shnum, "<IIQQQQIIQQ"))
        if not table:
            return ()
        if self._names >= len(table):
            raise MalformedError("the section names lie outside the section table")
        names = self.read(table[self._names][4], min(table[self._names][5], 1 << 20))
        return tuple(Section(_text(names, row[0]), row[4], row[5]) for row in table if row[1] != 8)  # 8: no bytes

    def dynamic(self) -> Dynamic:
        """What the loader reads; empty for a static file."""
        headers = list(self._table(self._phoff, self._phsize, self._phnum, "<IIQQQQQQ"))
        loads = [(row[3], row[2], row[5]) for row in headers if row[0] == _PT_LOAD]
        entries: list[tuple[int, int]] = []
        for row in headers:
            if row[0] == _PT_DYNAMIC:
                raw = self.read(row[2], min(row[5], _LIMIT * 16) // 16 * 16)
                entries = list(struct.iter_unpack("<qQ", raw))
        entries = entries[: next((i for i, (tag, _) in enumerate(entries) if tag == _DT_NULL), len(entries))]
        by_tag = dict(entries)
        if _DT_STRTAB not in by_tag:
            return Dynamic("", (), (), ())
        size = min(by_tag.get(_DT_STRSZ, 0), 1 << 26)
        at = _file_offset(by_tag[_DT_STRTAB], loads)

        def text(offset: int) -> str:
            if offset >= size:
                raise MalformedError("a name lies outside the dynamic string table")
            return _text(self.read(at + offset, min(4096, size - offset)), 0)

        def folders(tag: int) -> tuple[str, ...]:
            return tuple(part for part in text(by_tag[tag]).split(":") if part) if tag in by_tag else ()

        runpath = folders(_DT_RUNPATH)
        return Dynamic(
            soname=text(by_tag[_DT_SONAME]) if _DT_SONAME in by_tag else "",
            needed=tuple(text(value) for tag, value in entries if tag == _DT_NEEDED),
            rpath=() if _DT_RUNPATH in by_tag else folders(_DT_RPATH),
            runpath=runpath,
        )

    def _table(self, offset: int, entry: int, count: int, layout: str) -> Iterator[tuple[int, ...]]:
        if not offset or not count:
            return
        if entry < struct.calcsize(layout) or count > _LIMIT:
            raise MalformedError(f"a table of {count} entries of {entry} bytes")
        raw = self.read(offset, entry * count)
        for index in range(count):
            yield struct.unpack_from(layout, raw, index * entry)


@contextmanager
def opened(path: Path) -> Iterator[Elf]:
    """The library at `path`; raises `OSError` or `MalformedError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Elf(descriptor, getattr(path, "note", None))  # a path of a machine that is being recorded
    finally:
        os.close(descriptor)


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)].decode("utf-8", "replace")


def _file_offset(address: int, loads: list[tuple[int, int, int]]) -> int:
    for virtual, offset, size in loads:
        if virtual <= address < virtual + size:
            return address - virtual + offset
    raise MalformedError("the dynamic string table lies in no loaded segment")
