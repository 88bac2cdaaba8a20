"""Beside the interface: text on the plain terminal, for what only the terminal itself can do."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from textual.app import App


def show(app: App[Any], lines: Sequence[str]) -> None:
    """Print the lines, each whole, and come back on Enter or Esc.

    A mouse selection then takes them as they are, wherever the terminal wraps them, and after the end they are still
    in its history. Raises `SuspendNotSupported` where there is no terminal behind the interface.
    """
    with app.suspend(), _each_key(sys.stdin.fileno()) as keys:
        sys.stdout.write("\n".join(["", *lines, "", "Enter or Esc goes back to gpudoctor. "]))
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while (key := os.read(keys, 1)) not in _BACK or _goes_on(key, keys):
                continue
        sys.stdout.write("\n")


_BACK = (b"\r", b"\n", b"q", b"\x1b", b"\x03", b"\x04", b"")
_WITHIN = 0.05
"""Seconds within which the rest of an arrow's or another key's sequence follows its Esc."""


@contextlib.contextmanager
def _each_key(terminal: int) -> Iterator[int]:
    """Meanwhile each key is heard as it is pressed, not as a line; from before the words that ask for one."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _goes_on(key: bytes, terminal: int) -> bool:
    """Whether that Esc was the first byte of another key, whose rest is then taken in."""
    if key != b"\x1b" or not select.select([terminal], [], [], _WITHIN)[0]:
        return False
    if os.read(terminal, 1) in (b"[", b"O"):
        while not b"@" <= os.read(terminal, 1) <= b"~":
            continue
    return True
