"""How a command ends: where its answer goes (standard output, or a file that is whole or not there), its exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.core import files
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say

if TYPE_CHECKING:
    from gpudoctor.core.diagnosis import Diagnosis


def put(text: str, name: str | None) -> None:
    """Write `text` and a newline to the file of that name, or to standard output for None and ``-``.

    A file appears in one step: whoever reads it sees the old text or the new one. Raises `UsageError`.
    """
    if name is None or name == "-":
        sys.stdout.write(f"{text}\n")
        return
    with _errors_as_usage_errors(name):
        _write(f"{text}\n".encode(), Path(os.path.realpath(name)))  # a link's goal changes, the link stays


def put_message(sentence: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write(f"gpudoctor{say(': ')}{sentence}\n")


def put_new(text: str, place: Path) -> None:
    """Write a new file and the folders above it; raises `UsageError` if it exists or cannot be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise UsageError(
            say(
                "{place}: {error}; name a folder to write to",
                place=place,
                error=getattr(error, "strerror", None) or error,
            )
        ) from error


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
        raise UsageError(
            say("-o {name}: {why}; give a file in a folder that you can write to", name=name, why=why)
        ) from error


def _write(data: bytes, place: Path) -> None:
    """Write the bytes: a plain file is replaced atomically, a device or pipe is written to. Raises OSError."""
    mode = _mode_to_keep(place)
    if mode is None:  # a device or a pipe is written to, never replaced
        place.write_bytes(data)
        return
    files.put(place, data, mode)


def _mode_to_keep(place: Path) -> int | None:
    """Permission bits of the file to be replaced; 0 if there is none yet, None for a device or pipe.

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


# ---- Exit codes of the contract; Ctrl-C and SIGTERM held back until what is under way is over ----

SOUND, BROKEN, MISUSE, UNKNOWN = 0, 1, 2, 3
DIFFERENT = 1
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + 13
"""As where SIGPIPE ends a program, which not every system has."""
OF_VERDICT = {"sound": SOUND, "impaired": SOUND, "broken": BROKEN, "unknown": UNKNOWN}


def exit_code(diagnosis: Diagnosis, strict: bool = False) -> int:
    """Exit code of a diagnosis: 0 sound, 1 errors (or, if `strict`, warnings), 3 no error and no verdict."""
    if strict and any(finding.severity == "warning" for finding in diagnosis.findings):
        return BROKEN
    return OF_VERDICT[diagnosis.verdict]


@contextmanager
def stopping(
    stop: threading.Event, at_once: Callable[[], bool] = lambda: False, numbers: Sequence[int] = ()
) -> Iterator[list[int]]:
    """Context where the first Ctrl-C, or signal of those `numbers`, sets `stop`, and its number is added to the list
    that the context gives.

    The next one ends the program by KeyboardInterrupt or SystemExit(128 + n), as the first does if `at_once()`. Of
    `numbers` those that are ignored stay so.
    """
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        """Signal handler: sets `stop`; if it is set, or `at_once()`, raises KeyboardInterrupt or SystemExit."""
        if stop.is_set() or at_once():
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        received.append(number)
        stop.set()

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, *heeded)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def holding_sigterm() -> Iterator[None]:
    """Context that delays SIGTERM until its end, then raises SystemExit(143) if it came; where it is ignored, it stays
    so.

    The ranks of a job end once they have the verdict, and a launcher ends those that are left as soon as it has seen
    the first of them gone: the rank that prints the report must not be cut off by that.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN:
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if received:
        raise SystemExit(128 + received[0])
