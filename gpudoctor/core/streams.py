"""The process's own streams: what they lead to, made fit to write to, and its end."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import sys
import threading

from gpudoctor.core import system

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def on_a_terminal() -> bool:
    """Whether the interface can be shown: all standard streams are terminals (not dumb), or it runs in a browser."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    seen = all(stream and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    return seen or in_a_browser()


def in_a_browser() -> bool:
    """Whether the interface is drawn for a page of ``--serve``."""
    return "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")


def prepare_streams() -> None:
    """Open closed standard streams on the null device, buffer a raw stdout, and escape what stdout cannot encode.

    A closed descriptor would be the next file that anybody opens; an unbuffered stream drops the rest of a short write.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null_device(number, name)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and isinstance(out.buffer, io.RawIOBase):
        sys.stdout = out = open(out.fileno(), "w", buffering=1, encoding=out.encoding, closefd=False)  # noqa: SIM115
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # a terminal that cannot print a name still gets the report
    if system.ENCODES_BY_CODE_PAGE:
        _use_utf8()


def _use_utf8() -> None:
    """Have the standard streams read and write UTF-8, whatever the code page, and write lines that end with LF."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            if stream is sys.stdin:
                stream.reconfigure(encoding="utf-8", errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _open_null_device(number: int, name: str) -> None:
    """Opens the null device as that standard stream; does nothing where it cannot."""
    try:
        place = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return
    if place == number:
        os.set_inheritable(place, True)
    mode = "w" if number else "r"
    setattr(sys, name, open(place, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def is_disk_full(error: OSError) -> bool:
    """Whether writing output failed for lack of space (or an I/O error) on the output stream itself."""
    return error.errno in _NO_ROOM and error.filename is None


def finish_process(code: int) -> int:
    """The exit code; ends the process here where an abandoned thread would crash Python's own shutdown.

    CPython before 3.14 can crash on daemon threads (gh-87135).
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
