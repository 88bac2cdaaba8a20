"""Which single tries of the readers' patterns take long: one that is slow on one line is far too slow on a text."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpudoctor import readers
from gpudoctor.readers._pattern import Pattern

LONG = 0.01
"""Seconds of processor time for one try on 4,000 characters: a line, of which a text may have 128."""
_LINE = 4000
_AGAIN = 2
"""How often a try that took long is made again: the machine may have been busy with something else."""


class Clocked:
    """A compiled pattern that tells what takes it long."""

    def __init__(self, pattern: re.Pattern[str], told: dict[str, float]) -> None:
        self._pattern = pattern
        self._told = told

    def __getattr__(self, name: str) -> Any:
        """As of the pattern; what can be called is timed."""
        found = getattr(self._pattern, name)
        return self._timed(found, lazy=name == "finditer") if callable(found) else found

    def _timed(self, method: Callable[..., Any], *, lazy: bool) -> Callable[..., Any]:
        def tried(*given: Any, **named: Any) -> Any:
            answers: list[Any] = []
            seconds: list[float] = []
            most = LONG * max([1.0, *(len(one) / _LINE for one in given if isinstance(one, str))])
            while not seconds or (seconds[-1] > most and len(seconds) <= _AGAIN):
                started = time.process_time()
                answer = method(*given, **named)
                answers.append(list(answer) if lazy else answer)
                seconds.append(time.process_time() - started)
            if min(seconds) > most:
                self._told[self._pattern.pattern] = max(min(seconds), self._told.get(self._pattern.pattern, 0))
            return iter(answers[0]) if lazy else answers[0]

        return tried


@contextmanager
def clocked() -> Iterator[dict[str, float]]:
    """Meanwhile every pattern of a reader is watched: the slow ones, with the seconds that one try took."""
    told: dict[str, float] = {}
    watched: dict[int, Clocked] = {}

    def compiled(pattern: Pattern) -> Clocked:
        if id(pattern) not in watched:
            watched[id(pattern)] = Clocked(re.compile(pattern.source, pattern.flags), told)
        return watched[id(pattern)]

    readers.every_reader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pattern, "compiled", property(compiled))
        for module in [one for name, one in sys.modules.items() if name.startswith("gpudoctor.readers.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, re.Pattern):
                    patch.setattr(module, name, Clocked(value, told))
        yield told
