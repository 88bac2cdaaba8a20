"""The GPU architectures compiled into a library, from its fat binaries, payloads skipped.

Sections ``.nv_fatbin`` and ``__nv_relfatbin`` hold containers: magic u32 0xBA55ED50, version u16, header size u16, size
of what follows u64. A container holds one entry per architecture: kind u16 (1 PTX, 2 cubin, 256 several compressed
together), version u16, header size u32, payload size u64, at byte 28 the architecture u32, at byte 40 flags u64
(bit 20: the architecture's own features, the "a" of sm_90a; bit 21: its family's, "f"). An entry of kind 256 has at
byte 64 their number u32 and total size u32, then their headers, all of one size. Measured on what NVIDIA's `fatbinary`
13.5 writes; `cuobjdump --list-elf` prints an sm_100f cubin as sm_100, though it says sm_100f of the PTX.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gpudoctor.model.frozen import frozen
from gpudoctor.probes._libraries.elf import Elf, MalformedError, opened

_SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin"})
_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _CUBIN, _CONCATENATED = 1, 2, 256
_OWN, _FAMILY = 1 << 20, 1 << 21
_HEADER = 48
"""Bytes of an entry's header that we read; NVIDIA's are 64 and more."""


@frozen
class Architectures:
    """How many of a library's containers hold code for each architecture (``sm_90a``, ``compute_90`` for PTX)."""

    containers: int
    counts: Mapping[str, int]

    @property
    def main(self) -> tuple[str, ...]:
        """Those in at least half of the containers: a few specialised kernels are no general support."""
        return in_order(name for name, n in self.counts.items() if 2 * n >= self.containers)

    @property
    def few(self) -> tuple[str, ...]:
        """The others."""
        return in_order(name for name, n in self.counts.items() if 2 * n < self.containers)


def architectures(path: Path, seconds: float = 5.0) -> Architectures:
    """Read them; raises `OSError`, `MalformedError`, or `TimeoutError` after `seconds` (a cold network file system)."""
    deadline = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    containers = 0
    with opened(path) as elf:
        for section in elf.sections():
            if section.name not in _SECTIONS:
                continue
            for names in _containers(elf, section.offset, section.offset + section.size, deadline):
                counts.update(names)
                containers += bool(names)
    return Architectures(containers, dict(counts))


def _containers(elf: Elf, at: int, end: int, deadline: float) -> Iterator[frozenset[str]]:
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
        yield frozenset(_entries(elf, at + header, at + header + size, deadline))
        at += header + size


def _entries(elf: Elf, at: int, end: int, deadline: float) -> Iterator[str]:
    while at <= end - _HEADER:
        if time.monotonic() > deadline:
            raise TimeoutError("reading the fat binaries took too long")
        raw = elf.read(at, _HEADER)
        kind, header, payload = struct.unpack_from("<HxxIQ", raw)
        if header < _HEADER or at + header + payload > end:
            raise MalformedError(f"the fat binary entry at {at} reaches beyond its container")
        if kind == _CONCATENATED:
            yield from _concatenated(elf, at, header)
        else:
            yield from _name(raw)
        at += header + payload


def _concatenated(elf: Elf, at: int, header: int) -> Iterator[str]:
    if header < 72:
        raise MalformedError(f"the concatenated entry at {at} has no table")
    number, total = struct.unpack("<II", elf.read(at + 64, 8))
    stride = (total - 8) // number if number else 0
    if number > 256 or stride < _HEADER or 64 + total > header:
        raise MalformedError(f"the concatenated entry at {at} has a table of {number} headers in {total} bytes")
    for index in range(number):
        yield from _name(elf.read(at + 72 + index * stride, _HEADER))


def _name(raw: bytes) -> Iterator[str]:
    (kind,) = struct.unpack_from("<H", raw)
    arch, flags = struct.unpack_from("<I8xQ", raw, 28)
    if kind in (_PTX, _CUBIN) and 10 <= arch < 1000:
        suffix = "a" if flags & _OWN else "f" if flags & _FAMILY else ""
        yield f"{'compute' if kind == _PTX else 'sm'}_{arch}{suffix}"


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """By number, machine code before PTX: ``sm_80 sm_90 sm_90a sm_100 compute_90``."""
    return tuple(sorted(names, key=_order))


def _order(name: str) -> tuple[bool, int, str]:
    kind, _, number = name.partition("_")
    return kind == "compute", int(number.rstrip("af")), number
