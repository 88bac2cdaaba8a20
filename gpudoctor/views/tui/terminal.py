"""The terminal as something that can go away, and signals as a way to be asked to end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
HUNG_UP = 128 + signal.SIGHUP


def lost() -> bool:
    """Whether nobody is at the other end any more; where we were not told, reading would turn in circles."""
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is always told
    return bool(poll.poll(0))


def let_go() -> None:
    """Write what is still drawn to nowhere: a write to a lost terminal would end the thread that draws."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)


class Unbroken:
    """A stream whose writes go to nowhere once they fail.

    Textual's writer thread dies of a write to a lost terminal; whoever writes after that would wait for it for ever.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write, if it can be written."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush, if it can be written."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def unbroken() -> Iterator[None]:
    """Have Textual draw on such a stream: it draws on this one."""
    stream = sys.__stderr__
    setattr(sys, "__stderr__", stream and Unbroken(stream))  # noqa: B010 - typed as final
    try:
        yield
    finally:
        setattr(sys, "__stderr__", stream)  # noqa: B010


def heed(end: Callable[[int], None]) -> None:
    """Have `end` called in the running loop with 128 + n for signal n; a second signal is the caller's handler's."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def ask(number: int) -> None:
        for other in SIGNALS:
            loop.remove_signal_handler(other)
            signal.signal(other, before[other])
        if lost():
            let_go()
        end(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, ask, number)
