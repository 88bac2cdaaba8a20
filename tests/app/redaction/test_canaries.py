"""What was planted is to be seen in no shared view, and no text holds up whoever shares it."""

import re
from random import Random
from types import ModuleType

import pytest

from gpudoctor.app import redaction
from gpudoctor.app.arguments.options import FORMS
from gpudoctor.app.redaction import Redactor, name_patterns, names, numbers
from gpudoctor.core import secrets
from gpudoctor.core.pattern import LazyPattern
from tests.app.redaction.canaries import KINDS
from tests.app.redaction.views import plain, run, seen
from tests.fuzz.examine import deadline
from tests.fuzz.pump import runs, units
from tests.needs import trials
from tests.sim.documents import sampled


@pytest.mark.parametrize("part", sampled(range(4), str, 4))
def test_no_canary_is_to_be_seen_in_any_view(part: int) -> None:
    figures = run(trials(50), seed=1, first=trials(50) * part)
    assert figures.leaks == []
    assert {*FORMS, "snapshot", "diff", "diff --json"} <= figures.views.keys()


def test_a_canary_that_is_not_hidden_is_seen() -> None:
    for make in KINDS:
        canary = make(Random(f"seen {make.__name__}"))
        assert seen(canary, "json", plain(f"said: {canary.text} there")), canary


_SIZE = 4000
_MOST = 40


def _patterns(module: ModuleType) -> list[str]:
    return [value.pattern for value in vars(module).values() if isinstance(value, (re.Pattern, LazyPattern))]


_ALL = [
    *(pattern for module in (redaction, names, numbers, secrets, name_patterns) for pattern in _patterns(module)),
    *(place.pattern.pattern for place in name_patterns._PLACES),
]


@pytest.mark.full
@pytest.mark.parametrize("part", range(3))
def test_no_text_holds_it_up(part: int) -> None:
    sharing = Redactor(this_machine=False)
    with deadline():  # a pattern that backtracks would take hours
        for pattern in _ALL[part::3]:
            pairs = [*(("", unit) for unit in units(pattern)), *runs(pattern)]
            for lead, unit in [pair for pair in pairs if pair[1]][:_MOST]:
                sharing([lead + unit * (_SIZE // len(unit))])
