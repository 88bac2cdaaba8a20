"""What was planted is to be seen in no shared view; the whole run is ``python -m tests.hiding --count 5000``."""

from __future__ import annotations

from random import Random

import pytest

from gpudoctor.arguments._options import FORMS
from tests.hiding.canaries import KINDS
from tests.hiding.run import run
from tests.hiding.views import plain, seen


@pytest.mark.parametrize("part", range(4))
def test_no_canary_is_to_be_seen_in_any_view(part: int) -> None:
    figures = run(50, seed=1, first=50 * part)
    assert figures.leaks == []
    assert {*FORMS, "snapshot", "diff", "diff --json"} <= figures.views.keys()


def test_a_canary_that_is_not_hidden_is_seen() -> None:
    for make in KINDS:
        canary = make(Random(f"seen {make.__name__}"))
        assert seen(canary, "json", plain(f"said: {canary.text} there")), canary
