"""What is asked to end where there is something to be told first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopping(stop: threading.Event, at_once: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """The first Ctrl-C ends the work: it sets `stop`. The next one ends us, as does the first if `at_once` says so."""

    def interrupt(_: int, __: object) -> None:
        if stop.is_set() or at_once():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def first_told() -> Iterator[None]:
    """SIGTERM waits until this is told, and ends us then.

    The ranks of a job end when they have heard the verdict, and a launcher ends those that are left as soon as it has
    seen the first of them gone: the one that tells for all must not be cut off by that.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN:
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if heard:
        raise SystemExit(128 + heard[0])
