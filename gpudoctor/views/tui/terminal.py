"""The terminal as something that can go away, and signals as a way to be asked to end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

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
