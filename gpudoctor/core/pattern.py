"""Regular expressions compiled on first use, and how much processor time searching a text with them may cost.

A healthy machine asks a third of them. Most take time in proportion to what they search. A text made against one can
make it take the square of that; then what the budget does not reach is not judged, and named.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, AnyStr, TypeVar, cast

_ASKED = (
    "findall",
    "finditer",
    "flags",
    "fullmatch",
    "groupindex",
    "groups",
    "match",
    "pattern",
    "search",
    "split",
    "sub",
    "subn",
)
"""What is asked of a pattern."""


class LazyPattern:
    """Stands for a `re.Pattern` and compiles it on first use."""

    __slots__ = ("_written", *_ASKED)

    def __init__(self, written: str | bytes, flags: int) -> None:
        self._written = written, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _ASKED:
            raise AttributeError(name)
        compiled: Any = re.compile(*self._written)
        for attribute in _ASKED:
            setattr(self, attribute, getattr(compiled, attribute))
        return getattr(compiled, name)


def pattern(written: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but compiled on first use; `re.error` is raised then."""
    return cast("re.Pattern[AnyStr]", LazyPattern(written, int(flags)))


# ---- How much processor time searching one text may cost ----

_T = TypeVar("_T")

READING_SECONDS, JUDGING_SECONDS = 0.3, 0.5
"""Seconds of a usual processor that any text may cost: its readers, and the search for signs with the conditions. The
costliest report known, 157 kB of nvidia-smi, takes a third to two thirds of the first two.
"""
SECONDS_PER_MB = 0.2
"""Seconds that each MB may cost on top."""
TOO_COSTLY = "too costly: searching this text takes too long, which no log that a program wrote does"
_CHARACTERS_BETWEEN_CHECKS = 2000
"""Characters that are searched before the clock is looked at again, for that costs as much as searching a line."""
_MOST_PIECE_SHARE = 1 / 8
"""Part of a whole budget that one piece of work on it is charged at most."""
_CALL_CHARACTERS = 20
"""Characters that could be searched in the time that a search takes to begin."""
_SYNC_SECONDS = 0.005
"""Seconds for which a clock on the wall stands in for a thread's own, which may cost a hundred times as much to ask."""
_SAMPLE = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-72f7d108-ffd3-52a1-a91f-ebb07ace9680) at 0000:3b:00.0\n" * 30
_SAMPLE_SECONDS = 0.00015
"""Seconds that a look for every number in the sample takes on a server's processor of 2023, at 2.9 GHz."""


class TooCostlyError(Exception):
    """The budget of processor time is used up."""


class _ThreadClock:
    """A thread's processor time in seconds: asked every few milliseconds, and between that as the wall clock runs."""

    def __init__(self) -> None:
        self._wall = -_SYNC_SECONDS
        self._thread = 0.0

    def __call__(self) -> float:
        """The thread's processor time in seconds, about."""
        wall = time.perf_counter()
        if wall - self._wall >= _SYNC_SECONDS:
            self._thread, self._wall = time.thread_time(), wall
        return self._thread + wall - self._wall


class Budget:
    """A budget of a thread's processor seconds, used while `within` it; waiting is free.

    On a processor slower than the reference it is that much larger.
    """

    def __init__(self, seconds: float, whole: Budget | None = None, clock: Callable[[], float] | None = None) -> None:
        """`seconds` on a reference processor; with `whole`, no more than that has left, and it is used up along."""
        self.left: float = min(seconds, whole.left) if whole else seconds
        """Seconds of a usual processor when work on it last ended; below 0 where more was used."""
        self.whole = whole
        self._most = seconds if whole else seconds * _MOST_PIECE_SHARE
        self.clock: Callable[[], float] = clock or (whole.clock if whole else _ThreadClock())
        self._started = 0.0
        self._unchecked = _CHARACTERS_BETWEEN_CHECKS

    def start(self) -> None:
        """Start counting processor time against this budget."""
        self._started = self.clock()

    def stop(self) -> None:
        """Stop counting; subtract the time used since `start` from this budget and from those it is a part of.

        At most the size of a part, or an eighth of a whole budget, is charged: more is a pause of the machine.
        """
        used = min((self.clock() - self._started) / slowness(), self._most)
        budget: Budget | None = self
        while budget:
            budget.left -= used
            budget = budget.whole

    def check(self, characters: int = _CHARACTERS_BETWEEN_CHECKS) -> None:
        """Raise `TooCostlyError` where nothing is left; to be called before searching so many characters.

        The clock is read only once in about `_CHARACTERS_BETWEEN_CHECKS` characters.
        """
        self._unchecked += characters + _CALL_CHARACTERS
        if self._unchecked > _CHARACTERS_BETWEEN_CHECKS:
            self._unchecked = 0
            if self.clock() - self._started > self.left * slowness():
                raise TooCostlyError(TOO_COSTLY)


@lru_cache(maxsize=1)
def slowness() -> float:
    """How many times slower than the reference processor this one searches text, at least 1; measured once."""
    return measured_slowness()


def measured_slowness() -> float:
    """How many times slower than the reference processor this one searches text right now, at least 1; not cached."""
    numbers = re.compile(r"\b[0-9a-f]+\b(?=[^\n]*\n)")
    taken = []
    for _ in range(4):
        started = time.thread_time()
        numbers.findall(_SAMPLE)
        taken.append(time.thread_time() - started)
    return max(1.0, min(taken) / _SAMPLE_SECONDS)


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


class within:  # noqa: N801 - a context manager, used as `contextlib.suppress` is
    """Context manager: this thread's work uses this budget, and `check_current` raises where it is used up."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def __enter__(self) -> None:
        self._before = _CURRENT.set(self._budget)
        self._budget.start()

    def __exit__(self, *raised: object) -> None:
        self._budget.stop()
        _CURRENT.reset(self._before)


def within_part(whole: Budget, seconds: float, work: Callable[[], _T]) -> _T:
    """What `work()` returns, using at most `seconds` of the whole budget; called once more where they ran out.

    The second call has as much more time as the processor is busier now. Raises `TooCostlyError` where that runs out.
    """
    try:
        with within(Budget(seconds, whole)):
            return work()
    except TooCostlyError:
        with within(Budget(seconds * max(1.0, measured_slowness() / slowness()), whole)):
            return work()


def check_current(characters: int) -> None:
    """Raise `TooCostlyError` where the budget that this thread is `within`, if any, is used up; as `Budget.check`."""
    budget = _CURRENT.get()
    if budget is not None:
        budget.check(characters)
