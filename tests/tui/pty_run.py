"""A program on a pseudo-terminal: what it draws, what keys and signals do to it, how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

LEFT = b"\x1b[?1049l"
"""The screen that was there before is shown again."""


class Pty:
    """The program runs until the block is left; what it drew so far is `drawn`."""

    def __init__(self, argv: Sequence[str], size: tuple[int, int] = (80, 24), environ: Mapping[str, str] = {}) -> None:
        self.drawn = b""
        self.started = time.monotonic()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child
            try:
                os.execvpe(argv[0], list(argv), dict(environ) or dict(os.environ))
            finally:
                os._exit(127)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._code: int | None = None

    def __enter__(self) -> Pty:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code(10)
        self.hang_up()

    def wait(self, *wanted: bytes, seconds: float = 60) -> float:
        """Read until one of these was drawn; the seconds since the program was started."""
        deadline = time.monotonic() + seconds
        while not any(one in self.drawn for one in wanted):
            assert time.monotonic() < deadline, f"{wanted!r} not drawn: {self.drawn[-2000:]!r}"
            assert self._read(0.05), f"ended before {wanted!r} was drawn: {self.drawn[-2000:]!r}"
        return time.monotonic() - self.started

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._fd, keys)

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def code(self, seconds: float = 20) -> int:
        """The exit code, what is drawn until then read; minus n for signal n."""
        deadline = time.monotonic() + seconds
        while self._code is None:
            if self._fd < 0 or not self._read(0.05):
                time.sleep(0.02)
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            assert self._code is not None or time.monotonic() < deadline, f"not ended: {self.drawn[-500:]!r}"
        while self._fd >= 0 and self._read(0.05):
            pass
        return self._code

    def children(self) -> list[int]:
        """Processes that it started and that still are."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(word) for children in threads for word in children.read_text().split()]

    def _read(self, seconds: float) -> bool:
        """Read what there is within that time; False where the terminal has ended."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            new = os.read(self._fd, 1 << 16)
        except OSError:  # nobody has it open any more
            return False
        self.drawn += new
        return bool(new)
