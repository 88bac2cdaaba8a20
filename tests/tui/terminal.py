"""The program on a terminal of its own: a pseudo-terminal that is typed into and read."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from types import TracebackType


class Terminal:
    """A process on a pseudo-terminal of 24 lines and 80 columns; `said` is all that it has written."""

    def __init__(self, words: Sequence[str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"}
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.said = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._ours, keys.encode())

    def wait_for(self, words: str, seconds: float = 60.0) -> None:
        """Read until these words were written, after whatever was waited for before."""
        start = len(self.said)
        end = time.monotonic() + seconds
        while words not in self.said[start:]:
            self._read(end)
            assert time.monotonic() < end, f"{words!r} is not in {self.said[start:][-2000:]!r}"

    def ended(self, seconds: float) -> int:
        """The exit code, once it has ended; fails where it takes longer."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"still running after {seconds:g} s"
            self._read(end, 0.05)
        return self.process.returncode

    def _read(self, end: float, most: float = 1.0) -> None:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, min(most, end - time.monotonic())))
        if ready:
            try:
                self.said += os.read(self._ours, 1 << 16).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                time.sleep(0.01)
