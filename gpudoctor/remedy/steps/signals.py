"""Signals to the program while steps run: the command ends, the journal is written, then the signal has its way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gpudoctor.model.run import Stop

_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def heeded(wants: Callable[[], Stop]) -> Iterator[Callable[[], Stop]]:
    """What is wanted, with a signal counted as ``now``. On leaving, the signal is sent to ourselves again.

    Outside the main thread nobody can heed signals: whoever runs there is told by `wants`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield wants
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
        came.append(number)

    before = {number: signal.signal(number, note) for number in _HEEDED if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield lambda: "now" if came else wants()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            os.kill(os.getpid(), came[0])
