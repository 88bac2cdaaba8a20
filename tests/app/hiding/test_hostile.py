"""Texts made against the patterns: none holds up whoever shares it."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from gpudoctor.app import hiding
from gpudoctor.app.hiding import Sharing, names, numbers, places
from gpudoctor.core import secrets
from gpudoctor.core.pattern import LazyPattern
from tests.fuzz.examine import deadline
from tests.fuzz.pump import runs, units

_SIZE = 4000
_MOST = 40


def _patterns(module: ModuleType) -> list[str]:
    return [value.pattern for value in vars(module).values() if isinstance(value, (re.Pattern, LazyPattern))]


_ALL = [
    *(pattern for module in (hiding, names, numbers, secrets, places) for pattern in _patterns(module)),
    *(place.pattern.pattern for place in places._PLACES),
]


@pytest.mark.full
@pytest.mark.parametrize("part", range(3))
def test_no_text_holds_it_up(part: int) -> None:
    sharing = Sharing(this_machine=False)
    with deadline():  # a pattern that backtracks would take hours
        for pattern in _ALL[part::3]:
            pairs = [*(("", unit) for unit in units(pattern)), *runs(pattern)]
            for lead, unit in [pair for pair in pairs if pair[1]][:_MOST]:
                sharing([lead + unit * (_SIZE // len(unit))])
