"""Files that are whole or not there, whatever ends the program or the machine in between."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write(place: Path, data: bytes) -> None:
    """Write the file and have it on disk: old or new, never half. Raises `OSError`, and then the old one stands."""
    put(place, data)
    settle(place.parent)


def put(place: Path, data: bytes, mode: int = 0) -> None:
    """Put the file there in one step, with those permissions or, without any, the session's own; raises `OSError`."""
    fresh = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode:
            fresh.chmod(mode)
        fresh.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def settle(folder: Path) -> None:
    """Have the names in that folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
