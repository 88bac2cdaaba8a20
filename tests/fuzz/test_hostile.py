"""The short run of what `python -m tests.fuzz.hostile` does at length with the patterns of the readers."""

from __future__ import annotations

import pytest

from gpudoctor.readers import read_text
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from tests.fuzz.clocked import LONG, clocked
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
def test_no_pattern_takes_long_on_one_line(part: int) -> None:
    texts = _hostile()
    assert len(texts) > 1500
    with clocked() as slow:
        for first in range(part * _AT_ONCE, len(texts), _PARTS * _AT_ONCE):
            text = "\n".join(texts[first : first + _AT_ONCE])
            read_text(text)
    assert slow == {}


def test_what_takes_long_is_told() -> None:
    with clocked() as slow:
        assert Pattern(r"(?:a|aa)+b").search("a" * 32) is None
    assert [(pattern, seconds > LONG) for pattern, seconds in slow.items()] == [(r"(?:a|aa)+b", True)]


def test_a_gap_is_read_a_hundred_wide() -> None:
    assert Paste(f"{' ' * 300}one{' ' * 100}two{' ' * 99}{chr(9) * 9}three").lines == [
        f"{' ' * 100}one{' ' * 100}two{' ' * 99}{chr(9)}three"
    ]
