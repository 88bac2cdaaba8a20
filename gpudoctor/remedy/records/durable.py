"""Files that are whole or not there, whatever ends the program or the machine in between."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write(place: Path, data: bytes) -> None:
    """Write the file and have it on disk: old or new, never half. Raises `OSError`, and then the old one stands."""
    fresh = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    settle(place.parent)


def settle(folder: Path) -> None:
    """Have the names in that folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
