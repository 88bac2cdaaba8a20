"""A manifest's text by lines, and which of them were understood."""

from __future__ import annotations

import re
from functools import cached_property

from gpudoctor.readers._paste import clean

WIDTH = 2000
"""Characters of one line that are looked at."""


_BRACKETS = re.compile(r"[\[\]{}]")


class UnreadableError(Exception):
    """The file is of this format by its name and cannot be read as such; says line and reason."""


def nested(text: str) -> int:
    """How deep the brackets of the text stand within each other, at most."""
    deepest = depth = 0
    for mark in _BRACKETS.findall(text):
        depth = max(0, depth + (1 if mark in "[{" else -1))
        deepest = max(deepest, depth)
    return deepest


class Manifest:
    """The text of a manifest; `name` is the file's, as it was given."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.used: set[int] = set()

    @cached_property
    def lines(self) -> list[str]:
        """The lines without control characters, the first being line 1 to people."""
        return [clean(line[:WIDTH]).rstrip() for line in self.text.split("\n")]

    @cached_property
    def filled(self) -> int:
        """How many lines hold more than a comment."""
        return sum(1 for line in self.lines if (bare := line.strip()) and not bare.startswith("#"))

    def use(self, first: int, last: int | None = None) -> str:
        """Mark lines (counted from 1) as understood; returns the source that names file and line."""
        self.used.update(range(first, (last or first) + 1))
        return self.at(first)

    def at(self, line: int) -> str:
        """The source of a fact that stands there: ``requirements.txt, line 3``."""
        return f"{self.name}, line {line}"
