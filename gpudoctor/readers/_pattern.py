"""What readers are written in: patterns that are compiled when they are first used, and lists of words as paragraphs.

A report rarely needs more than a few of the hundreds of patterns that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.text_budget import check_current


class Pattern:
    """A regular expression compiled at first use; each call is charged to the text's time budget.

    All its searches raise `TooCostlyError` once the budget is used up.
    """

    __slots__ = ("_compiled", "flags", "source")

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self.flags = flags
        self._compiled: re.Pattern[str] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        """The compiled `re.Pattern`, for calls outside the budget."""
        if self._compiled is None:
            self._compiled = re.compile(self.source, self.flags)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.search`, charged to the budget."""
        check_current(len(text))
        return self.compiled.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.match`, charged to the budget."""
        check_current(len(text))
        return self.compiled.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.fullmatch`, charged to the budget."""
        check_current(len(text))
        return self.compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As `re.finditer`, charged to the budget."""
        check_current(len(text))
        return self.compiled.finditer(text)


# ---- Long lists of words, written as paragraphs ----


def words(paragraph: str) -> frozenset[str]:
    """The words of the paragraph, separated by white space."""
    return frozenset(paragraph.split())


def phrases(paragraph: str) -> tuple[str, ...]:
    """The phrases of the paragraph, separated by ``|``; line breaks within one become spaces."""
    return tuple(" ".join(phrase.split()) for phrase in paragraph.split("|") if phrase.strip())


def table(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Head and phrases of each ``head: phrase | phrase`` line; an indented line continues the one above."""
    for line in text.strip("\n").replace("\n    ", " ").splitlines():
        head, _, rest = line.partition(": ")
        yield head.strip(), phrases(rest)
