"""Texts made against the patterns: each is read in time that grows with its length alone."""

from __future__ import annotations

import re
import time
from types import ModuleType

import pytest

from gpudoctor.hiding import Sharing, addresses, nodesets, numbers, places, spelling
from gpudoctor.model import secrets
from gpudoctor.model.pattern import Later
from tests.fuzz.pump import runs, units

_SIZE = 4000
_LONG = 100
"""Times what a plain line of as many characters takes, in the same run; a pattern that backtracks takes thousands."""
_PLAIN = "the driver is older than the GPU "
_MOST = 40


def _patterns(module: ModuleType) -> list[str]:
    return [value.pattern for value in vars(module).values() if isinstance(value, (re.Pattern, Later))]


_ALL = [
    *(pattern for module in (addresses, nodesets, numbers, secrets, spelling, places) for pattern in _patterns(module)),
    *(place.pattern.pattern for place in places._PLACES),
]


@pytest.mark.parametrize("part", range(3))
def test_no_text_takes_long(part: int) -> None:
    told: dict[str, float] = {}
    usual = min(_seconds(_PLAIN * (_SIZE // len(_PLAIN))) for _ in range(9))
    for pattern in _ALL[part::3]:
        pairs = [*(("", unit) for unit in units(pattern)), *runs(pattern)]
        for lead, unit in [pair for pair in pairs if pair[1]][:_MOST]:
            text = lead + unit * (_SIZE // len(unit))
            seconds = min(_seconds(text) for _ in range(2))
            if seconds > _LONG * usual:
                told[lead + unit] = seconds / usual
    assert told == {}


def _seconds(text: str) -> float:
    sharing = Sharing(here=False)
    started = time.process_time()
    sharing([text])
    return time.process_time() - started
