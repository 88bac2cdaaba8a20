"""The short run of what `python -m tests.fuzz.hostile` does at length with the patterns of the readers."""

from __future__ import annotations

import pytest

from gpudoctor.readers import read_text
from gpudoctor.readers._paste import Paste
from tests.fuzz.hostile import lines, long_lines, reader_patterns

pytestmark = pytest.mark.full

_AT_ONCE = 125
"""Lines of 3,900 characters that are kept of one text."""
_PARTS = 4


def _hostile() -> list[str]:
    """A line of each shape of each pattern, as long as one is read."""
    shapes = dict.fromkeys(shape for _, pattern in reader_patterns() for shape in long_lines(pattern))
    return [line for shape in shapes for line in lines(shape, 4100)[:1]]


@pytest.mark.parametrize("part", range(_PARTS))
def test_no_pattern_takes_long_on_lines_made_against_it(part: int) -> None:
    texts = _hostile()
    assert len(texts) > 1500
    for first in range(part * _AT_ONCE, len(texts), _PARTS * _AT_ONCE):
        text = "\n".join(texts[first : first + _AT_ONCE])
        read_text(text)


def test_a_gap_is_read_a_hundred_wide() -> None:
    assert Paste(f"{' ' * 300}one{' ' * 100}two{' ' * 99}{chr(9) * 9}three").lines == [
        f"{' ' * 100}one{' ' * 100}two{' ' * 99}{chr(9)}three"
    ]
