"""Machine-printed text, searched for the signs of rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from gpudoctor.model.denial import denied
from gpudoctor.model.diagnosis import Evidence
from gpudoctor.model.fact import Known, Unread
from gpudoctor.model.rule import Sign
from gpudoctor.model.snapshot import Snapshot

SILENCE = "none of its messages is in the text that was read"
_WIDTH = 1000
"""Characters that a pattern sees as one line; a longer line is searched in pieces, for time grows with their square."""
_OVERLAP = 100
_COPIES = 8
"""How often the same line is searched; a message that is printed a thousand times says no more."""


@dataclass(frozen=True, slots=True)
class Match:
    """A sign that was heard: the lines that show it, and what its named groups caught."""

    sign: Sign
    evidence: tuple[Evidence, ...]
    groups: Mapping[str, str]


class Text:
    """The lines of the snapshot's group ``text`` as one string, with the way back to each line.

    Long lines are searched in pieces, and the same line a few times only.
    `silence` says why a message that is not there proves nothing.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        rows = snapshot.rows("text")
        self._rows = rows if isinstance(rows, tuple) else ()
        pieces = list(_pieces([_line(row.get("line")) for row in self._rows]))
        self._places = [index for index, _ in pieces]
        self._joined = "\n".join(piece for _, piece in pieces)
        self._lower = self._joined.lower()
        self._starts = list(accumulate((len(piece) + 1 for _, piece in pieces), initial=0))[:-1]
        self.silence = SILENCE
        if isinstance(rows, Unread) and not snapshot.pasted:
            self.silence = f"text: {rows.why}" if "text" in snapshot.groups else "no log was read"

    def find(self, sign: Sign) -> Match | None:
        """The first place where the sign is heard, and not denied."""
        if not self._joined or (sign.needles and not any(word in self._lower for word in sign.needles)):
            return None
        found = _compiled(sign.match).finditer(self._joined)
        match = next((match for match in found if not self._denied(match)), None)
        if not match:
            return None
        first = self._place(match.start())
        last = self._place(max(match.start(), match.end() - 1))
        evidence = tuple(
            Evidence("text.line", state, index)
            for index in range(first, last + 1)
            if isinstance(state := self._rows[index].get("line"), Known)
        )
        groups = {name: value or "" for name, value in match.groupdict().items()}
        return Match(sign, evidence, groups)

    def _denied(self, match: re.Match[str]) -> bool:
        start = self._joined.rfind("\n", 0, match.start()) + 1
        stop = self._joined.find("\n", match.start())
        line = self._joined[start : stop if stop >= 0 else len(self._joined)]
        return match.end() <= start + len(line) and denied(line, match.start() - start, match.end() - start)

    def _place(self, at: int) -> int:
        """The row whose line is at that character of the joined text."""
        return self._places[bisect_right(self._starts, at) - 1]


def _pieces(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What is searched of each line, with the line's index."""
    seen: Counter[str] = Counter()
    for index, line in enumerate(lines):
        step = _WIDTH - _OVERLAP
        for start in range(0, max(1, len(line) - _OVERLAP), step) if len(line) > _WIDTH else (0,):
            piece = line[start : start + _WIDTH]
            seen[piece] += 1
            if seen[piece] <= _COPIES:
                yield index, piece


def _line(state: object) -> str:
    return str(state.value) if isinstance(state, Known) else ""


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
