"""The bytes of a file, a pipe or standard input, piece by piece, unpacked where they are gzipped."""

from __future__ import annotations

import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from typing import BinaryIO

PIECE = 8 << 20
"""Bytes of one piece at most."""
_GZIP = b"\x1f\x8b"
_PATIENCE = 5.0
"""Seconds to wait until somebody opens the other end of a named pipe."""
_TICK = 0.05


def pieces(name: str) -> Iterator[bytes]:
    """What the file holds, or standard input for ``-``; raises `OSError` and `zlib.error`.

    A named pipe that nobody writes into is empty, not waited for forever.
    """
    packed = _packed(name)
    first = next(packed, b"")
    if not first.startswith(_GZIP):
        yield first
        yield from packed
        return
    unpacking = zlib.decompressobj(wbits=31)
    for piece in (first, *packed):
        rest = piece
        while rest:
            yield unpacking.decompress(rest, PIECE)
            rest = unpacking.unconsumed_tail


def _packed(name: str) -> Iterator[bytes]:
    if name == "-":
        yield from _read(sys.stdin.buffer)
        return
    with open(name, "rb", opener=_at_once) as file:
        descriptor = file.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            first = _first(descriptor)
            if not first:
                return
            yield first
        os.set_blocking(descriptor, True)
        yield from _read(file)


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def _first(descriptor: int) -> bytes:
    """What the pipe holds when its first writer has come; empty where none came in time, or said nothing."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if data := os.read(descriptor, 65536):
                return data
        except BlockingIOError:  # a writer is there and thinks
            os.set_blocking(descriptor, True)
            return os.read(descriptor, 65536)
        time.sleep(_TICK)
    return b""
