"""Machine-printed text, searched for the signs of rules.

A pattern is tried only on lines that hold the words which it cannot do without, so that 600 patterns cost what the text
makes likely. What is tried is bounded: long lines in pieces, the same line a few times, parts that may stand pages
apart one by one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from itertools import accumulate, islice

from gpudoctor.core.diagnosis import Evidence, Unjudged
from gpudoctor.core.fact import Reason, Unread, known, listed, text_of
from gpudoctor.core.frozen import frozen, replace
from gpudoctor.core.log_lines import denied
from gpudoctor.core.pattern import (
    JUDGING_SECONDS,
    TOO_COSTLY,
    Budget,
    TooCostlyError,
    check_current,
    pattern,
    within_part,
)
from gpudoctor.core.rule import Part, Rule, Sign
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.rulebook.compiled import WordIndex

SILENCE = "none of its messages is in the text that was read"
_MOST_CHARACTERS = 768 << 10
"""Characters that are searched, the first of them; a paste has fewer."""
_LINE_CHARACTERS = 600
"""Characters that a pattern sees as one line; a longer line is searched in pieces, for time grows with their square."""
_OVERLAP_CHARACTERS = 150
_MOST_COPIES = 8
"""How often the same line is searched; a message that is printed a thousand times says no more."""
_MOST_GPU_COPIES = 1
"""As `_MOST_COPIES`, of lines that differ in the PCI address only: what is said of each of many GPUs is said once."""
_ADDRESS = pattern(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?\b", re.IGNORECASE)
_LINES_AROUND = 6
"""Lines before and after one with the pattern's words that a match may reach into."""
_MOST_TRIED_CHARACTERS = 128 << 10
"""Characters around its words on which one pattern is tried: where there are more, half of them from each end."""
_CHARACTERS_BETWEEN_CHECKS = 2000
"""Characters that are searched before the budget is looked at."""
_SECONDS_EACH = JUDGING_SECONDS / 8
"""Processor time that each sign may take on one text, of what all of them and the conditions may."""
_MOST_PARTS_CHARACTERS = 2_000_000
"""Characters that one pattern with parts pages apart may read where its first part is there again and again."""


@frozen
class Match:
    """A sign that matched: the text lines that show it, and what its named groups captured."""

    sign: Sign
    evidence: tuple[Evidence, ...]
    groups: Mapping[str, str]


class Text:
    """The snapshot's group ``text`` joined to one string for searching; maps offsets back to rows.

    `searched` is what patterns see; `silence` says why the absence of a message proves nothing.
    """

    def __init__(self, snapshot: Snapshot, words: WordIndex) -> None:
        """`words` is the `word_index` of the signs that are looked for."""
        self.snapshot = snapshot
        rows = snapshot.rows("text")
        self._rows = listed(rows)
        lines = [text_of(row.get("line")) for row in self._rows]
        pieces = list(_searched_pieces(lines))
        self._row_of_piece = [index for index, _ in pieces]
        self.searched = "\n".join(piece for _, piece in pieces)
        self._starts = _start_offsets([piece for _, piece in pieces])
        lower = [piece.lower() for _, piece in pieces]  # not always as long as the piece
        self._lower = "\n".join(lower)
        self._lower_starts = _start_offsets(lower)
        self._holders: dict[str, frozenset[int]] = {}
        self._found: dict[str, list[int]] = {}
        self._words = words
        self.budget = Budget(JUDGING_SECONDS)
        """For signs and conditions."""
        self.given_up: set[str] = set()
        """Rules whose signs were not searched for to the end, because the text made that too costly."""
        self.silence = Unjudged("", SILENCE, Reason.NO_MESSAGE)
        if isinstance(rows, Unread) and not snapshot.pasted:
            unread = Unjudged("", f"text: {rows.why}", rows.reason, "text")
            self.silence = unread if "text" in snapshot.groups else Unjudged("", "no log was read", Reason.NO_LOG)

    def matches(self, rule: Rule) -> list[Match]:
        """The first undenied match of each of the rule's signs that has one; empty without text.

        A rule of which a sign was too costly to search for is added to `given_up`.
        """
        if not self.searched:
            return []
        found = []
        lacks = self._present.isdisjoint
        for sign in rule.signs:
            if any(map(lacks, sign.required_words)):
                continue
            try:
                match = self.find(sign)
            except TooCostlyError:
                self.given_up.add(rule.id)
                continue
            if match:
                found.append(match)
        return found

    def unjudged(self, rule: Rule) -> Unjudged:
        """The rule unjudged because none of its signs matched, with why: too costly, no message, no log, or unread."""
        costly = rule.id in self.given_up
        return Unjudged(rule.id, TOO_COSTLY, Reason.GIVEN_UP) if costly else replace(self.silence, id=rule.id)

    def find(self, sign: Sign) -> Match | None:
        """The sign's first match that its line does not deny, with its lines and captured groups; None without one.

        Raises `TooCostlyError`.
        """
        ways = sign.ways or ((Part(sign.match, sign.required_words, sign.goes_on),),)
        there = [way for way in ways if not any(self._lacks(part.required_words) for part in way)]
        found = within_part(
            self.budget,
            _SECONDS_EACH,
            lambda: [match for way in there if (match := self._first_match(sign.match, way))],
        )
        if not found:
            return None
        match = min(found, key=lambda candidate: candidate.start())
        first = self._row_at(match.start())
        last = self._row_at(max(match.start(), match.end() - 1))
        evidence = tuple(
            Evidence("text.line", state, index)
            for index in range(first, last + 1)
            if (state := known(self._rows[index].get("line")))
        )
        groups = {name: value or "" for name, value in match.groupdict().items()}
        return Match(sign, evidence, groups)

    def _first_match(self, pattern: str, way: Sequence[Part]) -> re.Match[str] | None:
        """The first undenied match of the whole pattern where the parts of that alternative are near enough; else None.

        `way` are the alternative's parts. Raises `TooCostlyError`.
        """
        reach = sum(min(part.reach, len(self.searched)) for part in way[:-1])
        starts = (start for start in self._matches(way[0]) if self._parts_follow(start, way[1:], reach))
        for start in islice(starts, 1 + _MOST_PARTS_CHARACTERS // (1 + reach)):
            check_current(reach)
            match = _compiled(pattern).match(self.searched, start)
            if match and not self.denies(match):
                return match
        return None

    def _parts_follow(self, start: int, parts: Sequence[Part], reach: int) -> bool:
        """Whether each of these parts matches behind `start`, within `reach` characters and 600 more for each part."""
        for part in parts:
            begins = self._part_starts(part)
            after = bisect_right(begins, start)
            if after == len(begins) or begins[after] > start + reach + len(parts) * _LINE_CHARACTERS:
                return False
        return True

    def _part_starts(self, part: Part) -> list[int]:
        """All offsets where the part matches, ascending; cached. Raises `TooCostlyError`."""
        if part.match not in self._found:
            self._found[part.match] = list(self._matches(part))
        return self._found[part.match]

    def _matches(self, part: Part) -> Iterator[int]:
        """Start offsets of the part's matches in the regions that hold its words, in order; raises `TooCostlyError`."""
        pattern = _compiled(part.match)
        regions = self._regions(part)
        for start, end in regions if part.goes_on else self._split_at_lines(regions):
            check_current(end - start)
            match = pattern.search(self.searched, start, end)
            while match:
                yield match.start()
                check_current(end - match.end())
                match = pattern.search(self.searched, max(match.end(), match.start() + 1), end)

    def _split_at_lines(self, regions: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The regions cut into pieces of whole lines, none much longer than `_CHARACTERS_BETWEEN_CHECKS`."""
        for start, end in regions:
            at = start
            while (
                end - at > _CHARACTERS_BETWEEN_CHECKS
                and (cut := self.searched.find("\n", at + _CHARACTERS_BETWEEN_CHECKS, end)) >= 0
            ):
                yield at, cut
                at = cut + 1
            yield at, end

    def _regions(self, part: Part) -> list[tuple[int, int]]:
        """Start and end offsets where the part can match: lines with its words, and six around these if it spans lines.

        All of the text for a part without required words; at most 128 KiB in all, half from each end.
        """
        if not part.required_words:
            return _limit_spans([(0, len(self.searched))], self.searched)
        holders = [frozenset[int]().union(*map(self._line_numbers_with, words)) for words in part.required_words]
        if part.goes_on:
            others = [sorted(lines) for lines in holders[1:]]
            runs = [
                run
                for run in _line_runs(holders[0], _LINES_AROUND)
                if all(_run_contains(run, lines) for lines in others)
            ]
        else:
            runs = _line_runs(frozenset.intersection(*holders), 0)
        spans = [(self._starts[max(0, first)], self._line_end(last)) for first, last in runs]
        return _limit_spans(spans, self.searched)

    def _line_end(self, line: int) -> int:
        """The offset of that line's end, before its newline."""
        return self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self.searched)

    def _line_numbers_with(self, word: str) -> frozenset[int]:
        """Numbers, from 0, of the lines that contain the lower-case word; cached."""
        if word not in self._holders:
            self._holders[word] = frozenset(self._lines_with(word))
        return self._holders[word]

    def _lines_with(self, word: str) -> Iterator[int]:
        """Numbers, from 0, of the lines that contain the lower-case word, found by searching, ascending."""
        at = self._lower.find(word)
        while at >= 0:
            line = bisect_right(self._lower_starts, at) - 1
            yield line
            following = line + 1
            at = self._lower.find(word, self._lower_starts[following]) if following < len(self._lower_starts) else -1

    def _lacks(self, required_words: Sequence[Sequence[str]]) -> bool:
        """Whether one of these word sets has no word that the text contains."""
        return any(map(self._present.isdisjoint, required_words))

    @cached_property
    def _present(self) -> frozenset[str]:
        """Of the required words of all signs in the index those that the text contains; cached."""
        text = " ".join(set(self._lower.split()))
        grams = {"", *map("".join, zip(text, text[1:], text[2:], strict=False))} & self._words.keys()
        return frozenset(word for gram in grams for word in self._words[gram] if word in self._lower)

    def denies(self, match: re.Match[str]) -> bool:
        """Whether the match's line denies it (``no``, ``none``, ``0 errors``); False for a match of several lines."""
        start = self.searched.rfind("\n", 0, match.start()) + 1
        stop = self.searched.find("\n", match.start())
        line = self.searched[start : stop if stop >= 0 else len(self.searched)]
        return match.end() <= start + len(line) and denied(line, match.start() - start, match.end() - start)

    def _row_at(self, at: int) -> int:
        """Index of the row of the group ``text`` whose line is at that offset of the joined text."""
        return self._row_of_piece[bisect_right(self._starts, at) - 1]


def _searched_pieces(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(row index, text) of each piece to search: a line, or overlapping parts of 600 characters of a longer one.

    Blank lines, further copies of a repeated line (beyond 8; of one that differs in the PCI address only, beyond 1) and
    what follows after 768 KiB are left out.
    """
    seen: Counter[str] = Counter()
    room = _MOST_CHARACTERS
    step = _LINE_CHARACTERS - _OVERLAP_CHARACTERS
    for index, line in ((index, line) for index, row in enumerate(lines) for line in row.split("\n")):
        if not line or line.isspace():
            continue
        for start in range(0, max(1, len(line) - _OVERLAP_CHARACTERS), step) if len(line) > _LINE_CHARACTERS else (0,):
            piece = line[start : start + _LINE_CHARACTERS]
            message = _ADDRESS.sub("", piece)
            seen[message] += 1
            if seen[message] <= (_MOST_COPIES if message == piece else _MOST_GPU_COPIES):
                yield index, piece
                room -= len(piece) + 1
        if room < 0:
            return


def _line_runs(lines: AbstractSet[int], around: int) -> list[tuple[int, int]]:
    """(first, last) line of each run of lines with at most 2 × `around` others between one and the next, widened by
    `around` on both sides.

    The first may be negative.
    """
    runs: list[tuple[int, int]] = []
    first = last = -1 - 2 * around - 1
    for line in sorted(lines):
        if line - last > 2 * around + 1:
            runs.append((first - around, last + around))
            first = line
        last = line
    return [*runs[1:], (first - around, last + around)] if lines else []


def _run_contains(run: tuple[int, int], lines: Sequence[int]) -> bool:
    """Whether one of these sorted line numbers is in the run."""
    return bisect_right(lines, run[1]) > bisect_left(lines, run[0])


def _limit_spans(spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """The spans, cut to `_MOST_TRIED_CHARACTERS` in all where they are longer: whole lines, half from each end."""
    if sum(end - start for start, end in spans) <= _MOST_TRIED_CHARACTERS:
        return spans
    front: list[tuple[int, int]] = []
    room = _MOST_TRIED_CHARACTERS // 2
    for start, end in spans:
        cut = text.find("\n", start + room, end) if end - start > room else end
        front.append((start, cut if cut >= 0 else end))
        room -= front[-1][1] - start
        if room <= 0:
            break
    back: list[tuple[int, int]] = []
    room = _MOST_TRIED_CHARACTERS // 2
    for begun, end in reversed(spans):
        start = max(begun, front[-1][1])
        cut = text.rfind("\n", start, end - room) + 1 if end - start > room else start
        back.append((cut or start, end))
        room -= end - back[-1][0]
        if room <= 0:
            break
    return [*front, *reversed(back)]


def _start_offsets(pieces: Sequence[str]) -> list[int]:
    """Start offset of each piece when joined by newlines."""
    return list(accumulate((len(piece) + 1 for piece in pieces), initial=0))[:-1]


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern, ignoring case, multi-line; cached."""
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
