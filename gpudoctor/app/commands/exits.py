"""How a command ends: the exit codes of the contract; Ctrl-C and SIGTERM held back until what is under way is over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.core.diagnosis import Diagnosis


SOUND, BROKEN, MISUSE, UNKNOWN = 0, 1, 2, 3
DIFFERENT = 1
INTERRUPTED = 128 + signal.SIGINT
UNHEARD = 128 + signal.SIGPIPE
OF_VERDICT = {"sound": SOUND, "impaired": SOUND, "broken": BROKEN, "unknown": UNKNOWN}


def exit_code(diagnosis: Diagnosis, strict: bool = False) -> int:
    """Exit code of a diagnosis: 0 sound, 1 errors (or, if `strict`, warnings), 3 no error and no verdict."""
    if strict and any(finding.severity == "warning" for finding in diagnosis.findings):
        return BROKEN
    return OF_VERDICT[diagnosis.verdict]


@contextmanager
def stopping(stop: threading.Event, at_once: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Context where the first Ctrl-C sets `stop`; the next raises KeyboardInterrupt, as the first if `at_once()`."""

    def interrupt(_: int, __: object) -> None:
        """Signal handler for SIGINT."""
        if stop.is_set() or at_once():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def holding_sigterm() -> Iterator[None]:
    """Context that delays SIGTERM until its end, then raises SystemExit(143).

    The ranks of a job end when they have heard the verdict, and a launcher ends those that are left as soon as it has
    seen the first of them gone: the rank that prints the report must not be cut off by that.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN:
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if received:
        raise SystemExit(128 + received[0])
