"""Where a command's answer goes: standard output, or a file that is whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.core import files
from gpudoctor.core.errors import UsageError


def put(text: str, name: str | None) -> None:
    """Write `text` and a newline to the file of that name, or to standard output for None and ``-``.

    A file appears in one step: whoever reads it sees the old text or the new one. Raises `UsageError`.
    """
    if name is None or name == "-":
        sys.stdout.write(f"{text}\n")
        return
    with _errors_as_usage_errors(name):
        _write(f"{text}\n".encode(), Path(os.path.realpath(name)))  # a link's goal changes, the link stays


def put_new(text: str, place: Path) -> None:
    """Write a new file and the folders above it; raises `UsageError` if it exists or cannot be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{place}: {getattr(error, 'strerror', None) or error}; name a folder to write to") from error


def check(name: str | None) -> None:
    """Raise `UsageError` where `put` would, as far as that can be known without writing."""
    if name is None or name == "-":
        return
    with _errors_as_usage_errors(name):
        place = Path(os.path.realpath(name))
        mode = _mode_to_keep(place)
        if not os.access(place if mode is None else place.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def _errors_as_usage_errors(name: str) -> Iterator[None]:
    """Context that raises OSError and ValueError as `UsageError` about option -o."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"-o {name}: {why}; give a file in a folder that you can write to") from error


def _write(data: bytes, place: Path) -> None:
    """Write the bytes: a plain file is replaced atomically, a device or pipe is written to. Raises OSError."""
    mode = _mode_to_keep(place)
    if mode is None:  # a device or a pipe is written to, never replaced
        place.write_bytes(data)
        return
    files.put(place, data, mode)


def _mode_to_keep(place: Path) -> int | None:
    """Permission bits to keep; 0 for a new file, None for a device or pipe.

    Raises IsADirectoryError for a folder, FileNotFoundError if the folder above is missing.
    """
    try:
        found = place.stat().st_mode
    except FileNotFoundError:
        place.parent.stat()
        return 0
    if stat.S_ISDIR(found):  # as it would be said of a file to be opened
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_IMODE(found) if stat.S_ISREG(found) else None
