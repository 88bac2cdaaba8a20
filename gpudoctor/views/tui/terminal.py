"""The terminal as something that can go away, that asks to end by signals, and that may show ASCII alone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TextIO

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gpudoctor.core import system

SIGNALS = (*system.ENDING_SIGNALS, signal.SIGINT)
HUNG_UP = 128 + 1
"""As where SIGHUP ends a program, which not every system has."""


def is_lost() -> bool:
    """True if the terminal on standard input has hung up (POLLHUP); always False on Windows."""
    if sys.platform == "win32":
        return False
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is always told
    return bool(poll.poll(0))


def redirect_to_devnull() -> None:
    """Redirect stdin, stdout and stderr to the null device: writing to a lost terminal would end the drawing thread."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)


class FailsafeStream:
    """A stream whose failed writes are ignored.

    Textual's writer thread dies of a write to a lost terminal; whoever writes after that would wait for it for ever.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write the text to the stream; OSError is ignored."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream; OSError is ignored."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def failsafe_stderr() -> Iterator[None]:
    """Context in which `sys.__stderr__`, on which Textual draws, ignores failed writes."""
    stream = sys.__stderr__
    setattr(sys, "__stderr__", stream and FailsafeStream(stream))  # noqa: B010 - typed as final
    try:
        yield
    finally:
        setattr(sys, "__stderr__", stream)  # noqa: B010


def handle_signals(end: Callable[[int], None]) -> None:
    """Call `end` in the running event loop with 128 + n on signal n (SIGINT and those that end a program).

    A second signal goes to the former handler. Does nothing on Windows, where Ctrl-C is a key of the interface.
    """
    if sys.platform == "win32":
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def ask(number: int) -> None:
        """Restore the former handlers, and call `end`; a lost terminal is first replaced by the null device."""
        for other in SIGNALS:
            loop.remove_signal_handler(other)
            signal.signal(other, before[other])
        if is_lost():
            redirect_to_devnull()
        end(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, ask, number)


# ---- ASCII for the glyphs, where a terminal cannot show them ----

_CORNERS_AND_JOINTS = "╭╮╰╯┌┐└┘├┤┬┴┼╔╗╚╝╞╡╤╧╪┏┓┗┛"
_ACROSS, _DOWN = "─━═╌╍┄┅╴╶╸╺▔▁", "│┃║╎╏▏▕▌▐"
GLYPHS: Mapping[str, str] = {
    **dict.fromkeys(_CORNERS_AND_JOINTS, "+"),
    **dict.fromkeys(_ACROSS, "-"),
    **dict.fromkeys(_DOWN, "|"),
    **dict(zip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\|/-\\|/", strict=True)),
    **dict(zip("▂▃▄▅▆▇█", ".:-=+*#", strict=True)),
    **dict(zip("▓▒░", "#=.", strict=True)),
    **dict(zip("✗✓▲●▼▾▸▴◂•◉○", "X+^*vv>^<*@o", strict=True)),
    **dict(zip("↑↓←→⏎…·–—−×≥≤≈°µ§", "^v<>~~.---x><~ uS", strict=True)),
    **dict(zip("‘’‚“”„«»", '\'\',"""<>', strict=True)),
    "\N{NO-BREAK SPACE}": " ",
}
"""Each is one column wide. What is not here becomes a question mark a column."""


def ascii_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """True if the terminal can only show ASCII: by TERM (terminals of before Unicode and the kernel's console have none
    of the glyphs), else if the user's locale has no ``utf`` in its name.

    If no locale is set (a container, a bare ssh), UTF-8 is assumed, as nearly every terminal takes it.
    """
    if environ.get("TERM", "").startswith(("vt", "linux", "ansi", "cons25", "dumb")):
        return True
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "UTF-8"
    if locale == "C.UTF-8" and not environ.get("LC_ALL"):  # Python itself writes this into LC_CTYPE where LANG is C
        locale = environ.get("LANG") or locale
    return "utf" not in locale.lower()


class AsciiFilter(LineFilter):
    """A line filter that replaces every glyph by ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        """The segments with every glyph replaced by ASCII, of the same width."""
        return [Segment(ascii_of(text), style, control) for text, style, control in segments]


@lru_cache(2048)
def ascii_of(text: str) -> str:
    """The text in ASCII, of the same width in columns; an unknown glyph becomes a question mark per column."""
    if text.isascii():
        return text
    return "".join(
        character if character.isascii() else GLYPHS.get(character) or "?" * cell_len(character) for character in text
    )
