"""The bytes of a file, or of a pipe that somebody writes into."""

from __future__ import annotations

import os
import stat
import time

_PATIENCE = 5.0
"""Seconds to wait until somebody opens the other end of a named pipe."""
_TICK = 0.05


def whole(name: str, limit: int) -> bytes:
    """Up to `limit` bytes; raises `OSError`. A named pipe that nobody writes into is empty, not waited for forever."""
    with open(name, "rb", opener=_at_once) as file:
        descriptor = file.fileno()
        first = b""
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            first = _first(descriptor)
            if not first:
                return b""
        os.set_blocking(descriptor, True)
        return first + file.read(limit - len(first))


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
