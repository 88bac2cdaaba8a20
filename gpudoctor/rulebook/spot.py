"""Where on a page something stands. TOML's readers keep no lines, so the text of a wrong page is searched again."""

from __future__ import annotations

import re
from pathlib import Path

from gpudoctor.model.errors import RuleError


class Spot:
    """A place on a page, narrowed down by what stands there; as text ``FILE:LINE``, with what the place is called."""

    def __init__(self, origin: str | Path, near: tuple[str, ...] = (), name: str = "") -> None:
        self._origin = origin
        self._near = near
        self._name = name

    def key(self, name: str) -> Spot:
        """Where the key of that name stands, or a table that is named by it, behind this spot."""
        word = re.escape(name)
        return self._at(rf"(?:^|[{{,])\s*[\"']?{word}[\"']?\s*=|^\s*\[{word}\]")

    def entry(self, name: str, number: int) -> Spot:
        """The entry of that number, from 0, under ``[[name]]``."""
        return self._at(rf"(?:^\s*\[\[{name}\]\](?s:.*?)){{{number}}}^\s*\[\[{name}\]\]")

    def text(self, words: str) -> Spot:
        """Where these words stand, behind this spot; they may be written with TOML's escapes."""
        escaped = words.replace("\\", "\\\\").replace('"', '\\"')
        return self._at(f"{re.escape(words)}|{re.escape(escaped)}")

    def called(self, name: str) -> Spot:
        """The same spot, by a name that people know."""
        return Spot(self._origin, self._near, name)

    def _at(self, pattern: str) -> Spot:
        return Spot(self._origin, (*self._near, pattern), self._name)

    def broken(self, said: str) -> RuleError:
        """The error of what stands here."""
        return RuleError(f"{self}: {said}")

    def __str__(self) -> str:
        line = self._line()
        place = f"{self._origin}:{line}" if line else str(self._origin)
        return f"{place}: {self._name}" if self._name else place

    def _line(self) -> int:
        """The line, counted from 1, as near as its words are found; 0 for the page as a whole."""
        if not self._near:
            return 0
        try:
            page = Path(self._origin).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return 0
        found = 0
        for pattern in self._near:
            if match := re.compile(pattern, re.MULTILINE).search(page, found):
                found = match.end()
        return page.count("\n", 0, found) + 1 if found else 0
