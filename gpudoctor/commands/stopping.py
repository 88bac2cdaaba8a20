"""Ctrl-C where there is something to be told first: once for the end of the work, twice for ours."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopping(stop: threading.Event, at_once: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """The first Ctrl-C sets `stop`; the next one ends us, as does the first where it is to be `at_once`."""

    def interrupt(_: int, __: object) -> None:
        if stop.is_set() or at_once():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
