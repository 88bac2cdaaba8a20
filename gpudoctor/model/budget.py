"""How much processor time one text may cost, so that no text, however it was made, holds up whoever reads it.

Most patterns take time in proportion to what they search. A text made against one of them can make it take the square
of that; then what the budget does not reach is not judged, and named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TOO_COSTLY = "too costly: searching this text takes too long, which no log that a program wrote does"


class TooCostlyError(Exception):
    """The budget is used up."""


class Budget:
    """Seconds of this thread's processor time, from now on; waiting for a processor costs nothing."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds; below 0 where more was used."""
        return self._end - self._clock()

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.left < 0

    def check(self) -> None:
        """Raise `TooCostlyError` where nothing is left."""
        if self.spent:
            raise TooCostlyError(TOO_COSTLY)


_CURRENT: ContextVar[tuple[Budget, ...]] = ContextVar("budgets", default=())


@contextmanager
def within(*budgets: Budget) -> Iterator[None]:
    """Everything that this thread calls `check_current` in may cost these budgets."""
    before = _CURRENT.set(budgets)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def check_current() -> None:
    """Raise `TooCostlyError` where a budget that this thread works within is used up."""
    for budget in _CURRENT.get():
        budget.check()
