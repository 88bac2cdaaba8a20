"""What was planted is to be seen in no shared view; the whole run is ``python -m tests.app.hiding --count 5000``."""

from __future__ import annotations

from random import Random

import pytest

from gpudoctor.app.arguments.options import FORMS
from tests.app.hiding.canaries import KINDS
from tests.app.hiding.run import run
from tests.app.hiding.views import plain, seen
from tests.sim.documents import sampled


@pytest.mark.parametrize("part", sampled(range(4), str, 4))
def test_no_canary_is_to_be_seen_in_any_view(part: int) -> None:
    figures = run(50, seed=1, first=50 * part)
    assert figures.leaks == []
    assert {*FORMS, "snapshot", "diff", "diff --json"} <= figures.views.keys()


def test_a_canary_that_is_not_hidden_is_seen() -> None:
    for make in KINDS:
        canary = make(Random(f"seen {make.__name__}"))
        assert seen(canary, "json", plain(f"said: {canary.text} there")), canary
