"""A program on a terminal of its own: a pseudo-terminal that is typed into, read, and hung up."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LEFT = "\x1b[?1049l"
"""The screen that was there before is shown again."""


class Terminal:
    """A process whose terminal it is: the interpreter with these words, by default. `said` is all it has written."""

    def __init__(
        self,
        words: Sequence[str],
        size: tuple[int, int] = (80, 24),
        environ: Mapping[str, str] | None = None,
        program: str = sys.executable,
    ) -> None:
        base = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"}
        self.said = ""
        self.started = time.monotonic()
        self.pid, self._ours = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child
            try:
                os.execve(program, [program, *words], dict(base if environ is None else environ))
            finally:
                os._exit(127)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._code: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.hang_up()

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._ours, keys.encode())

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def children(self) -> list[int]:
        """Processes that it started and that still are."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(word) for children in threads for word in children.read_text().split()]

    def wait_for(self, *words: str, seconds: float = 600.0) -> float:
        """Read until one of these was written, after whatever was waited for before; seconds since it was started."""
        start = len(self.said)
        end = time.monotonic() + seconds
        while not any(one in self.said[start:] for one in words):
            self._read(end)
            assert time.monotonic() < end, f"{words!r} is not in {self.said[start:][-2000:]!r}"
        return time.monotonic() - self.started

    def ended(self, seconds: float) -> int:
        """The exit code, once it has ended and all is read; fails where it takes longer. Minus n for signal n."""
        end = time.monotonic() + seconds
        while self._code is None:
            assert time.monotonic() < end, f"still running after {seconds:g} s"
            self._read(end, 0.05)
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        while self._ours >= 0 and select.select([self._ours], [], [], 0)[0] and self._read(end):
            pass
        return self._code

    def _read(self, end: float, most: float = 1.0) -> bool:
        """Read what comes until then; False where the other end is closed."""
        if self._ours < 0:
            time.sleep(0.01)
            return False
        ready, _, _ = select.select([self._ours], [], [], max(0.0, min(most, end - time.monotonic())))
        try:
            self.said += os.read(self._ours, 1 << 16).decode("utf-8", "replace") if ready else ""
        except OSError:  # the other end is closed
            time.sleep(0.01)
            return False
        return True
