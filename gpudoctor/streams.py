"""The process's own streams, made fit to write to, and its end."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import sys
import threading

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def ready() -> None:
    """What was closed leads nowhere, what ``python -u`` left unbuffered is written whole, and every name is printed.

    A closed descriptor would be the next file that anybody opens; an unbuffered stream drops the rest of a short write.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _lead_nowhere(number, name)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and isinstance(out.buffer, io.RawIOBase):
        sys.stdout = out = open(out.fileno(), "w", buffering=1, encoding=out.encoding, closefd=False)  # noqa: SIM115
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # a terminal that cannot print a name still gets the report


def _lead_nowhere(number: int, name: str) -> None:
    try:
        place = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return
    if place == number:
        os.set_inheritable(place, True)
    mode = "w" if number else "r"
    setattr(sys, name, open(place, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def full(error: OSError) -> bool:
    """Whether what was printed found no room: a file that is opened would be named."""
    return error.errno in _NO_ROOM and error.filename is None


def leave(code: int) -> int:
    """The exit code, once it is safe to end as Python does.

    A thread that was given up, in the hands of a name server or a dead file system, would be torn down as it runs,
    which crashes CPython before 3.14 (gh-87135): beside such a thread the process ends here.
    """
    if not any(thread.daemon for thread in threading.enumerate()):
        return code
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 (what os._exit leaves out: children are ended, what was unpacked is removed)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
