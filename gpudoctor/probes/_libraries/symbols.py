"""Which functions a library asks of others, and whether those have them: no library is loaded.

Undefined names are read from ``.dynsym``; the other side is looked up by its ``.gnu.hash`` table (u32: buckets, first
symbol, bloom words, bloom shift; u64 bloom words; u32 per bucket; u32 per symbol, the hash with its last bit as the end
of the chain) or its ``.hash`` table (u32: buckets, symbols; then both), so that the names of libtorch_cpu.so, a hundred
thousand and more, are never read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.elf import Elf, MalformedError, Section

TORCH = pattern(rb"_ZN?K?(?:3c10|2at|5torch|6caffe2)|_ZT[VIS]N(?:3c10|2at|5torch|6caffe2)|aoti_torch_|THP[A-Z]")
"""Functions that torch's own libraries define."""

_SYMBOL = struct.Struct("<IBBHQQ")
_UNDEFINED, _GLOBAL = 0, 1
_LIMIT = 1 << 26
"""Bytes of one table (libtorch_cpu.so: 12 MB of names)."""


def wanted(elf: Elf, of: re.Pattern[bytes] = TORCH) -> Iterator[str]:
    """The names matching `of` that the library must find elsewhere; weak ones it can do without."""
    tables = {section.name: section for section in elf.sections()}
    if ".dynsym" not in tables or ".dynstr" not in tables:
        return
    names = _whole(elf, tables[".dynstr"])
    symbols = _whole(elf, tables[".dynsym"])
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(symbols[: len(symbols) // _SYMBOL.size * _SYMBOL.size]):
        if section == _UNDEFINED and info >> 4 == _GLOBAL and of.match(names, name):
            yield names[name : names.find(b"\0", name)].decode("utf-8", "replace")


class Names:
    """What one library defines. The file stays open while it is asked."""

    def __init__(self, elf: Elf) -> None:
        tables = {section.name: section for section in elf.sections()}
        try:
            self._symbols, self._strings = tables[".dynsym"], tables[".dynstr"]
            gnu = ".gnu.hash" in tables
            raw = _whole(elf, tables[".gnu.hash" if gnu else ".hash"])
            self._index: _Gnu | _SystemV = _Gnu(raw) if gnu else _SystemV(raw)
        except KeyError as error:
            raise MalformedError(f"no section {error.args[0]}") from error
        except struct.error as error:
            raise MalformedError("its hash table is cut short") from error
        self._elf = elf

    def __contains__(self, name: str) -> bool:
        key = name.encode()
        return any(self._is(index, key) for index in self._index.candidates(key))

    def _is(self, index: int, key: bytes) -> bool:
        raw = self._elf.read(self._symbols.offset + index * _SYMBOL.size, _SYMBOL.size)
        name, _, _, section, _, _ = _SYMBOL.unpack(raw)
        if section == _UNDEFINED or name + len(key) >= self._strings.size:
            return False
        return self._elf.read(self._strings.offset + name, len(key) + 1) == key + b"\0"


class _Gnu:
    """``.gnu.hash``, which most libraries have."""

    def __init__(self, raw: bytes) -> None:
        buckets, self._first, words, self._shift = struct.unpack_from("<IIII", raw)
        if not words or not buckets:
            raise MalformedError("its hash table is empty")
        self._bloom = struct.unpack_from(f"<{words}Q", raw, 16)
        self._buckets = struct.unpack_from(f"<{buckets}I", raw, 16 + 8 * words)
        self._chains = memoryview(raw)[16 + 8 * words + 4 * buckets :]

    def candidates(self, key: bytes) -> Iterator[int]:
        """Indexes of symbols with this hash."""
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


class _SystemV:
    """``.hash``, the only one in libnvJitLink and libnvrtc."""

    def __init__(self, raw: bytes) -> None:
        buckets, chains = struct.unpack_from("<II", raw)
        self._buckets = struct.unpack_from(f"<{buckets}I", raw, 8)
        self._chains = struct.unpack_from(f"<{chains}I", raw, 8 + 4 * buckets)
        if not buckets:
            raise MalformedError("its hash table is empty")

    def candidates(self, key: bytes) -> Iterator[int]:
        """Indexes of symbols in this hash's bucket; a chain that goes in a circle ends with the table's length."""
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


def _whole(elf: Elf, section: Section) -> bytes:
    if section.size > _LIMIT:
        raise MalformedError(f"{section.name} has {section.size} bytes")
    return elf.read(section.offset, section.size)
