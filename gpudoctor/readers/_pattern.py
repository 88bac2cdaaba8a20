"""Patterns that cost nothing until they are used: a report rarely needs more than a few of the hundred there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.budget import check_current


class Pattern:
    """A regular expression, compiled when it is first tried; a search ends where the text's budget is used up."""

    __slots__ = ("_compiled", "flags", "source")

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self.flags = flags
        self._compiled: re.Pattern[str] | None = None

    @property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self.source, self.flags)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.search`."""
        check_current(len(text))
        return self.compiled.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.match`."""
        check_current(len(text))
        return self.compiled.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.fullmatch`."""
        check_current(len(text))
        return self.compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As `re.finditer`."""
        check_current(len(text))
        return self.compiled.finditer(text)
