"""Native libraries read without loading one: sections (ELF, PE), symbols, and the GPU architectures compiled in.

Just enough of ELF for a 64-bit little-endian library. Read with `pread`, not memory-mapped: a library that shrinks or
sits on a failing disk or a stale NFS mount while we look ends in an `OSError` and not in a SIGBUS that takes the
program along. Every offset is checked against the file, every table has a limit; whatever does not fit raises
`MalformedError`.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.core import system
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern

_MOST_ENTRIES = 4096
"""Sections, program headers and dynamic entries that a file may have before we stop believing it (libtorch: ~60)."""

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29


class MalformedError(ValueError):
    """The file is no well-formed 64-bit little-endian ELF file, or an offset or size in it is out of bounds."""


@frozen
class Section:
    """A named section of an ELF file; `offset` and `size` in bytes."""

    name: str
    offset: int
    size: int


@frozen
class Dynamic:
    """A library's dynamic section: its own name, the libraries it needs, and the folders to search for them.

    `rpath` is empty if there is a `runpath`, as the loader then ignores it.
    """

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


class Binary:
    """An open file, read by its descriptor; `note(offset, data)`, if given, is called for every read."""

    def __init__(self, descriptor: int, note: Callable[[int, bytes], None] | None = None) -> None:
        self._fd = descriptor
        self._note = note
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes at `offset`; `MalformedError` outside the file, `OSError` if reading fails."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise MalformedError(f"{size} bytes at {offset} lie outside a file of {self.size} bytes")
        data = system.read_at(self._fd, size, offset)
        if len(data) != size:
            raise MalformedError(f"the file ended at {offset + len(data)} while it was read")
        if self._note:
            self._note(offset, data)
        return data

    def find(self, pattern: bytes, start: int, end: int) -> int:
        """File offset of the next `pattern` between `start` and `end`, -1 if there is none."""
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


class Elf(Binary):
    """An open ELF library; use `opened`."""

    def __init__(self, descriptor: int, note: Callable[[int, bytes], None] | None = None) -> None:
        """Reads the ELF header; raises `MalformedError` if it is no 64-bit little-endian ELF file."""
        super().__init__(descriptor, note)
        head = self.read(0, 64)
        if head[:4] != b"\x7fELF":
            raise MalformedError("not an ELF file")
        if head[4:6] != b"\x02\x01":
            raise MalformedError("not a 64-bit little-endian ELF file")
        self._phoff, self._shoff = struct.unpack_from("<QQ", head, 0x20)
        self._phsize, self._phnum, self._shsize, self._shnum, self._names = struct.unpack_from("<HHHHH", head, 0x36)

    def sections(self) -> tuple[Section, ...]:
        """All sections that occupy bytes in the file; empty if the section table was stripped.

        Raises `MalformedError` if the table or its names do not fit the file.
        """
        table = list(self._read_table(self._shoff, self._shsize, self._shnum, "<IIQQQQIIQQ"))
        if not table:
            return ()
        if self._names >= len(table):
            raise MalformedError("the section names lie outside the section table")
        names = self.read(table[self._names][4], min(table[self._names][5], 1 << 20))
        return tuple(Section(_c_string(names, row[0]), row[4], row[5]) for row in table if row[1] != 8)  # 8: no bytes

    def dynamic(self) -> Dynamic:
        """The dynamic section (soname, needed libraries, rpath, runpath).

        All fields empty if there is none (a static file). Raises `MalformedError` where an offset or a name lies
        outside the file or its tables.
        """
        headers = list(self._read_table(self._phoff, self._phsize, self._phnum, "<IIQQQQQQ"))
        segments = [(row[3], row[2], row[5]) for row in headers if row[0] == _PT_LOAD]
        entries: list[tuple[int, int]] = []
        for row in headers:
            if row[0] == _PT_DYNAMIC:
                raw = self.read(row[2], min(row[5], _MOST_ENTRIES * 16) // 16 * 16)
                entries = list(struct.iter_unpack("<qQ", raw))
        entries = entries[: next((i for i, (tag, _) in enumerate(entries) if tag == _DT_NULL), len(entries))]
        by_tag = dict(entries)
        if _DT_STRTAB not in by_tag:
            return Dynamic("", (), (), ())
        size = min(by_tag.get(_DT_STRSZ, 0), 1 << 26)
        at = _file_offset(by_tag[_DT_STRTAB], segments)

        def text(offset: int) -> str:
            """The string at `offset` of the dynamic string table; `MalformedError` outside of it."""
            if offset >= size:
                raise MalformedError("a name lies outside the dynamic string table")
            return _c_string(self.read(at + offset, min(4096, size - offset)), 0)

        def folders(tag: int) -> tuple[str, ...]:
            """The folders in the string of dynamic entry `tag`, split at colons; empty if there is no such entry."""
            return tuple(part for part in text(by_tag[tag]).split(":") if part) if tag in by_tag else ()

        runpath = folders(_DT_RUNPATH)
        return Dynamic(
            soname=text(by_tag[_DT_SONAME]) if _DT_SONAME in by_tag else "",
            needed=tuple(text(value) for tag, value in entries if tag == _DT_NEEDED),
            rpath=() if _DT_RUNPATH in by_tag else folders(_DT_RPATH),
            runpath=runpath,
        )

    def _read_table(self, offset: int, entry: int, count: int, layout: str) -> Iterator[tuple[int, ...]]:
        """Yields the `count` entries of a table, unpacked by the struct format `layout`; none at offset 0.

        `MalformedError` for more than `_MOST_ENTRIES` entries or entries that are too small.
        """
        if not offset or not count:
            return
        if entry < struct.calcsize(layout) or count > _MOST_ENTRIES:
            raise MalformedError(f"a table of {count} entries of {entry} bytes")
        raw = self.read(offset, entry * count)
        for index in range(count):
            yield struct.unpack_from(layout, raw, index * entry)


@contextmanager
def opened(path: Path) -> Iterator[Elf]:
    """Context manager: the library at `path` as `Elf`; raises `OSError` or `MalformedError`."""
    descriptor = os.open(path, system.READ)
    try:
        yield Elf(descriptor, getattr(path, "note", None))  # a path of a machine that is being recorded
    finally:
        os.close(descriptor)


def _c_string(table: bytes, offset: int) -> str:
    """The NUL-terminated string at `offset` of a string table, decoded as UTF-8."""
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)].decode("utf-8", "replace")


def _file_offset(address: int, segments: list[tuple[int, int, int]]) -> int:
    """File offset of a virtual address. `segments`: (virtual address, file offset, size in bytes) of each PT_LOAD.

    Raises `MalformedError` if no segment holds the address.
    """
    for virtual, offset, size in segments:
        if virtual <= address < virtual + size:
            return address - virtual + offset
    raise MalformedError("the dynamic string table lies in no loaded segment")


# ---- Symbols ----
# Undefined names are read from ``.dynsym``; the other side is looked up by its ``.gnu.hash`` table (u32: buckets, first
# symbol, bloom words, bloom shift; u64 bloom words; u32 per bucket; u32 per symbol, the hash with its last bit as the
# end of the chain) or its ``.hash`` table (u32: buckets, symbols; then both), so that the names of libtorch_cpu.so, a
# hundred thousand and more, are never read.

TORCH_SYMBOLS = pattern(rb"_ZN?K?(?:3c10|2at|5torch|6caffe2)|_ZT[VIS]N(?:3c10|2at|5torch|6caffe2)|aoti_torch_|THP[A-Z]")
"""Functions that torch's own libraries define."""

_SYMBOL = struct.Struct("<IBBHQQ")
_UNDEFINED, _GLOBAL = 0, 1
_MOST_TABLE_BYTES = 1 << 26
"""Bytes of one table (libtorch_cpu.so: 12 MB of names)."""


def undefined_symbols(elf: Elf, name_pattern: re.Pattern[bytes] = TORCH_SYMBOLS) -> Iterator[str]:
    """Yields names of undefined global symbols, which another library must define, whose beginning matches
    `name_pattern`.

    Weak symbols are left out; nothing if the library has no dynamic symbol table.
    """
    tables = {section.name: section for section in elf.sections()}
    if ".dynsym" not in tables or ".dynstr" not in tables:
        return
    names = _section_bytes(elf, tables[".dynstr"])
    symbols = _section_bytes(elf, tables[".dynsym"])
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(symbols[: len(symbols) // _SYMBOL.size * _SYMBOL.size]):
        if section == _UNDEFINED and info >> 4 == _GLOBAL and name_pattern.match(names, name):
            yield names[name : names.find(b"\0", name)].decode("utf-8", "replace")


class DefinedSymbols:
    """The symbols that one library defines, looked up by `name in symbols`; the `Elf` must stay open meanwhile."""

    def __init__(self, elf: Elf) -> None:
        """Reads the hash table; `MalformedError` if a symbol, string or hash section is missing or damaged."""
        tables = {section.name: section for section in elf.sections()}
        try:
            self._symbols, self._strings = tables[".dynsym"], tables[".dynstr"]
            gnu = ".gnu.hash" in tables
            raw = _section_bytes(elf, tables[".gnu.hash" if gnu else ".hash"])
            self._index: _GnuHash | _SystemVHash = _GnuHash(raw) if gnu else _SystemVHash(raw)
        except KeyError as error:
            raise MalformedError(f"no section {error.args[0]}") from error
        except struct.error as error:
            raise MalformedError("its hash table is cut short") from error
        self._elf = elf

    def __contains__(self, name: str) -> bool:
        """True if the library defines a symbol of exactly this name."""
        key = name.encode()
        return any(self._defines(index, key) for index in self._index.candidates(key))

    def _defines(self, index: int, key: bytes) -> bool:
        """True if the symbol at `index` is defined and its name is `key`."""
        raw = self._elf.read(self._symbols.offset + index * _SYMBOL.size, _SYMBOL.size)
        name, _, _, section, _, _ = _SYMBOL.unpack(raw)
        if section == _UNDEFINED or name + len(key) >= self._strings.size:
            return False
        return self._elf.read(self._strings.offset + name, len(key) + 1) == key + b"\0"


class _GnuHash:
    """Index of a ``.gnu.hash`` section, which most libraries have."""

    def __init__(self, raw: bytes) -> None:
        """Parses the section's bytes; `MalformedError` if it is empty, `struct.error` if it is cut short."""
        buckets, self._first, words, self._shift = struct.unpack_from("<IIII", raw)
        if not words or not buckets:
            raise MalformedError("its hash table is empty")
        self._bloom = struct.unpack_from(f"<{words}Q", raw, 16)
        self._buckets = struct.unpack_from(f"<{buckets}I", raw, 16 + 8 * words)
        self._chains = memoryview(raw)[16 + 8 * words + 4 * buckets :]

    def candidates(self, key: bytes) -> Iterator[int]:
        """Yields indexes of symbols whose hash (without its last bit) is that of `key`.

        Nothing if the Bloom filter lacks it. Raises `MalformedError` if a chain leaves the table.
        """
        value = 5381
        for byte in key:
            value = value * 33 + byte & 0xFFFFFFFF
        word = self._bloom[value // 64 % len(self._bloom)]
        if not (word >> value % 64 & 1 and word >> (value >> self._shift) % 64 & 1):
            return
        index = self._buckets[value % len(self._buckets)]
        while index >= self._first:
            at = 4 * (index - self._first)
            if at + 4 > len(self._chains):
                raise MalformedError("a hash chain leaves its table")
            (link,) = struct.unpack_from("<I", self._chains, at)
            if link | 1 == value | 1:
                yield index
            if link & 1:
                return
            index += 1


class _SystemVHash:
    """Index of a ``.hash`` section, the only one in libnvJitLink and libnvrtc."""

    def __init__(self, raw: bytes) -> None:
        """Parses the section's bytes; `MalformedError` if it is empty, `struct.error` if it is cut short."""
        buckets, chains = struct.unpack_from("<II", raw)
        self._buckets = struct.unpack_from(f"<{buckets}I", raw, 8)
        self._chains = struct.unpack_from(f"<{chains}I", raw, 8 + 4 * buckets)
        if not buckets:
            raise MalformedError("its hash table is empty")

    def candidates(self, key: bytes) -> Iterator[int]:
        """Yields indexes of all symbols in the hash bucket of `key`.

        Raises `MalformedError` if a chain leaves the table. A circular chain ends after as many steps as the table has
        entries.
        """
        value = 0
        for byte in key:
            value = (value << 4) + byte & 0xFFFFFFFF
            value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
        index = self._buckets[value % len(self._buckets)]
        for _ in self._chains:
            if not index:
                return
            yield index
            if index >= len(self._chains):
                raise MalformedError("a hash chain leaves its table")
            index = self._chains[index]


def _section_bytes(elf: Elf, section: Section) -> bytes:
    """All bytes of a section; `MalformedError` if it is larger than `_MOST_TABLE_BYTES`."""
    if section.size > _MOST_TABLE_BYTES:
        raise MalformedError(f"{section.name} has {section.size} bytes")
    return elf.read(section.offset, section.size)


# ---- GPU architectures, from the fat binaries, payloads skipped ----
# Sections ``.nv_fatbin`` and ``__nv_relfatbin`` hold containers: magic u32 0xBA55ED50, version u16, header size u16,
# size of what follows u64. A container holds one entry per architecture: kind u16 (1 PTX, 2 cubin, 256 several
# compressed together), version u16, header size u32, payload size u64, at byte 28 the architecture u32, at byte 40
# flags u64 (bit 20: the architecture's own features, the "a" of sm_90a; bit 21: its family's, "f"). An entry of kind
# 256 has at byte 64 their number u32 and total size u32, then their headers, all of one size. Measured on what NVIDIA's
# `fatbinary` 13.5 writes; `cuobjdump --list-elf` prints an sm_100f cubin as sm_100, though it says sm_100f of the PTX.

_SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin", ".nv_fatb"})
"""The last is what PE files have, whose names have eight characters."""
_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _CUBIN, _CONCATENATED = 1, 2, 256
_OWN, _FAMILY = 1 << 20, 1 << 21
_ENTRY_HEADER_BYTES = 48
"""Bytes of an entry's header that we read; NVIDIA's are 64 and more."""


# ---- Windows' libraries (PE) ----
# Layout: Microsoft's PE/COFF specification. A section's name has eight characters there: ``.nv_fatb`` holds what
# ``.nv_fatbin`` holds in an ELF file (``.nvFatBi`` only points to each container).

_MOST_PE_SECTIONS = 96
"""The loader takes no more."""


class Pe(Binary):
    """An open PE file, read by file descriptor; use `opened_pe`."""

    def sections(self) -> tuple[Section, ...]:
        """All sections that occupy bytes in the file; raises `MalformedError` if it is no PE file."""
        if self.read(0, 2) != b"MZ":
            raise MalformedError("not a PE file")
        (start,) = struct.unpack("<I", self.read(0x3C, 4))
        if self.read(start, 4) != b"PE\0\0":
            raise MalformedError("not a PE file")
        count, optional = struct.unpack("<H12xH2x", self.read(start + 6, 18))
        if count > _MOST_PE_SECTIONS:
            raise MalformedError(f"a table of {count} sections")
        table = self.read(start + 24 + optional, 40 * count)
        return tuple(_pe_sections(table))


def _pe_sections(table: bytes) -> Iterator[Section]:
    """Yields the sections of a PE file's section table; one without bytes in the file is left out."""
    for name, used, _, stored, offset in struct.iter_unpack("<8sIIII16x", table):
        if stored:
            yield Section(name.rstrip(b"\0").decode("latin-1"), offset, min(used, stored) or stored)


@contextmanager
def opened_pe(path: Path) -> Iterator[Pe]:
    """Context manager: the library at `path` as `Pe`; raises `OSError`."""
    descriptor = os.open(path, system.READ)
    try:
        yield Pe(descriptor, getattr(path, "note", None))
    finally:
        os.close(descriptor)


@frozen
class Architectures:
    """How many of a library's containers hold code for each architecture (``sm_90a``, ``compute_90`` for PTX)."""

    containers: int
    counts: Mapping[str, int]

    @property
    def main(self) -> tuple[str, ...]:
        """Architectures in at least half of the containers, sorted; a few special kernels are no general support."""
        return in_order(name for name, n in self.counts.items() if 2 * n >= self.containers)

    @property
    def few(self) -> tuple[str, ...]:
        """Architectures in fewer than half of the containers, sorted."""
        return in_order(name for name, n in self.counts.items() if 2 * n < self.containers)


def architectures(path: Path, seconds: float = 5.0) -> Architectures:
    """GPU architectures in the fat binaries of the ELF library at `path`, payloads skipped.

    No containers if it has none. Raises `OSError`, `MalformedError`, or `TimeoutError` after `seconds` (a cold network
    file system).
    """
    with opened(path) as elf:
        return architectures_in(elf, elf.sections(), seconds)


def architectures_in(file: Binary, sections: Iterable[Section], seconds: float = 5.0) -> Architectures:
    """GPU architectures in the fat binaries of an open file, found in those of its `sections` that hold such.

    Raises `OSError`, `MalformedError`, or `TimeoutError` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    containers = 0
    for section in sections:
        if section.name not in _SECTIONS:
            continue
        for names in _container_architectures(file, section.offset, section.offset + section.size, deadline):
            counts.update(names)
            containers += bool(names)
    return Architectures(containers, dict(counts))


def _container_architectures(elf: Binary, at: int, end: int, deadline: float) -> Iterator[frozenset[str]]:
    """Yields the architecture names of each fat-binary container between file offsets `at` and `end`.

    Raises `MalformedError` if one reaches beyond `end`, `TimeoutError` after `deadline` (`time.monotonic`).
    """
    if end > elf.size:
        raise MalformedError("a section of fat binaries reaches beyond the end of the file")
    while 0 <= at <= end - 16:
        head = elf.read(at, 16)
        if head[:4] != _MAGIC:
            at = elf.find(_MAGIC, at, end)
            continue
        header, size = struct.unpack_from("<HQ", head, 6)
        if header < 16 or at + header + size > end:
            raise MalformedError(f"the fat binary at {at} reaches beyond its section")
        yield frozenset(_entry_architectures(elf, at + header, at + header + size, deadline))
        at += header + size


def _entry_architectures(elf: Binary, at: int, end: int, deadline: float) -> Iterator[str]:
    """Yields the architecture (``sm_90a``, ``compute_90``) of each entry of a container between `at` and `end`.

    Raises `TimeoutError` after `deadline` (`time.monotonic`), `MalformedError` if an entry reaches beyond `end`.
    """
    while at <= end - _ENTRY_HEADER_BYTES:
        if time.monotonic() > deadline:
            raise TimeoutError("reading the fat binaries took too long")
        raw = elf.read(at, _ENTRY_HEADER_BYTES)
        kind, header, payload = struct.unpack_from("<HxxIQ", raw)
        if header < _ENTRY_HEADER_BYTES or at + header + payload > end:
            raise MalformedError(f"the fat binary entry at {at} reaches beyond its container")
        if kind == _CONCATENATED:
            yield from _concatenated_architectures(elf, at, header)
        else:
            yield from _architecture_name(raw)
        at += header + payload


def _concatenated_architectures(elf: Binary, at: int, header: int) -> Iterator[str]:
    """Yields the architectures of an entry that concatenates others (kind `_CONCATENATED`), from the table of their
    headers, which lies in the entry's own header: at file offset `at`, `header` bytes long.

    Raises `MalformedError` if the table does not fit into that.
    """
    if header < 72:
        raise MalformedError(f"the concatenated entry at {at} has no table")
    number, total = struct.unpack("<II", elf.read(at + 64, 8))
    stride = (total - 8) // number if number else 0
    if number > 256 or stride < _ENTRY_HEADER_BYTES or 64 + total > header:
        raise MalformedError(f"the concatenated entry at {at} has a table of {number} headers in {total} bytes")
    for index in range(number):
        yield from _architecture_name(elf.read(at + 72 + index * stride, _ENTRY_HEADER_BYTES))


def _architecture_name(raw: bytes) -> Iterator[str]:
    """Yields the architecture in the header of a fat binary's entry, such as ``sm_90a`` or ``compute_90`` (PTX).

    Nothing for an entry of another kind, or an implausible number.
    """
    (kind,) = struct.unpack_from("<H", raw)
    arch, flags = struct.unpack_from("<I8xQ", raw, 28)
    if kind in (_PTX, _CUBIN) and 10 <= arch < 1000:
        suffix = "a" if flags & _OWN else "f" if flags & _FAMILY else ""
        yield f"{'compute' if kind == _PTX else 'sm'}_{arch}{suffix}"


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names sorted by architecture number, machine code before PTX: ``sm_80 sm_90 sm_90a sm_100 compute_90``."""
    return tuple(sorted(names, key=_architecture_order))


def _architecture_order(name: str) -> tuple[bool, int, str]:
    """Sort key of an architecture's name: whether it is PTX, the number, then the number with its suffix."""
    kind, _, number = name.partition("_")
    return kind == "compute", int(number.rstrip("af")), number
