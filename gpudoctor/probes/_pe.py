"""Windows' libraries (PE files): their sections, for the fat binaries in them, without loading them.

Layout: Microsoft's PE/COFF specification. A section's name has eight characters there: ``.nv_fatb`` holds what
``.nv_fatbin`` holds in an ELF file (``.nvFatBi`` only points to each container).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.core import system
from gpudoctor.probes._elf import Binary, MalformedError, Section

_MOST_SECTIONS = 96
"""The loader takes no more."""


class Pe(Binary):
    """An open PE file, read by file descriptor; use `opened`."""

    def sections(self) -> tuple[Section, ...]:
        """All sections that occupy bytes in the file; raises `MalformedError` if it is no PE file."""
        if self.read(0, 2) != b"MZ":
            raise MalformedError("not a PE file")
        (start,) = struct.unpack("<I", self.read(0x3C, 4))
        if self.read(start, 4) != b"PE\0\0":
            raise MalformedError("not a PE file")
        count, optional = struct.unpack("<H12xH2x", self.read(start + 6, 18))
        if count > _MOST_SECTIONS:
            raise MalformedError(f"a table of {count} sections")
        table = self.read(start + 24 + optional, 40 * count)
        return tuple(_sections(table))


def _sections(table: bytes) -> Iterator[Section]:
    """Yields the sections of a section table; one without bytes in the file is left out."""
    for name, used, _, stored, offset in struct.iter_unpack("<8sIIII16x", table):
        if stored:
            yield Section(name.rstrip(b"\0").decode("latin-1"), offset, min(used, stored) or stored)


@contextmanager
def opened(path: Path) -> Iterator[Pe]:
    """Context manager: the library at `path` as `Pe`; raises `OSError`."""
    descriptor = os.open(path, system.READ)
    try:
        yield Pe(descriptor, getattr(path, "note", None))
    finally:
        os.close(descriptor)
