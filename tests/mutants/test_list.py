"""Each fault of the list can be planted: the text that it replaces is in its file, once."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import Mutant, mutants
from tests.needs import REPOSITORY


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_it_can_be_planted(mutant: Mutant) -> None:
    text = (REPOSITORY / mutant.file).read_text("utf-8")
    assert (text.count(mutant.find), mutant.find != mutant.replace) == (1, True)
