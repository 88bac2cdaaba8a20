"""Patterns taken apart when pages are compiled: plain words that a match must contain, alternatives and distant parts.

Most signs are not in most texts. Looking for a word costs a thousandth of compiling a pattern, so the words are worked
out once. A pattern is then tried on the lines that hold its words, and nowhere else.

Of ``A|B|C`` mostly one alternative has its words in a text, and on few of its lines. Tried as it stands,
``A[\\s\\S]{0,6000}?B`` reads 6000 characters again for every A. Apart, A and B are found in one pass each, and the
whole is tried only where both are near enough.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import lru_cache
from typing import Any

from gpudoctor.core.rule import Part

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")
"""What the items of a `syntax_tree` are called: LITERAL, BRANCH, MAX_REPEAT."""

_SHORTEST_WORD = 3
_MOST_SETS, _MOST_WORDS = 3, 60
_LINE_ENDS = {f"CATEGORY_{name}" for name in ("SPACE", "NOT_WORD", "NOT_DIGIT", "LINEBREAK")}


@lru_cache(maxsize=8192)
def required_words(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Up to three sets of lower-case words of three letters or more: every match contains a word of each set; cached.

    Sets of the longest words come first; empty for an invalid pattern.
    """
    found = [words for words in _required_word_sets(_parsed(pattern)) if len(words) <= _MOST_WORDS]
    sets = sorted({frozenset(words) for words in found}, key=lambda words: (-min(map(len, words)), sorted(words)))
    return tuple(tuple(sorted(words)) for words in sets[:_MOST_SETS])


@lru_cache(maxsize=8192)
def may_span_lines(pattern: str) -> bool:
    """Whether a match may cross the end of a line, or look beyond it."""
    return _can_match_line_end(_parsed(pattern))


def _parsed(pattern: str) -> list[tuple[Any, Any]]:
    """The pattern's parsed items; empty where it is invalid."""
    try:
        return list(syntax_tree(pattern))
    except re.error:
        return []


@lru_cache(maxsize=64)
def syntax_tree(pattern: str) -> Any:
    """The pattern as `re` parses it, case ignored and multi-line; cached. Raises `re.error`."""
    return _parser.parse(pattern, re.IGNORECASE | re.MULTILINE)


def _required_word_sets(items: list[tuple[Any, Any]]) -> list[frozenset[str]]:
    """Word sets of which every match of the items contains one word each, no word shorter than three letters."""
    candidates: list[frozenset[str]] = []
    run = ""
    for operation, argument in items:
        if operation is codes.LITERAL and argument < 128:
            run += chr(argument).lower()
            continue
        candidates.append(frozenset({run}))
        run = ""
        candidates += _inner_word_sets(operation, argument)
    candidates.append(frozenset({run}))
    return [words for words in candidates if words and min(map(len, words)) >= _SHORTEST_WORD]


def _best_word_set(items: list[tuple[Any, Any]]) -> frozenset[str]:
    """Of the items' required word sets the one whose shortest word is longest; empty without one."""
    return max(_required_word_sets(items), key=lambda words: min(map(len, words)), default=frozenset())


def _inner_word_sets(operation: Any, argument: Any) -> list[frozenset[str]]:
    """Sets of words of which a match must hold one word each, inside a group, a repeat that must match, or alternatives
    (whose words make one set together).
    """
    if operation is codes.SUBPATTERN:
        return _required_word_sets(list(argument[3]))
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT) and argument[0] >= 1:
        return _required_word_sets(list(argument[2]))
    if operation is codes.BRANCH:
        branches = [_best_word_set(list(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []


def _can_match_line_end(items: list[tuple[Any, Any]]) -> bool:
    """Whether any of the parsed items can match a line end, or look at one."""
    return any(_item_matches_line_end(operation, argument) for operation, argument in items)


def _item_matches_line_end(operation: Any, argument: Any) -> bool:
    """Whether the parsed item can match a line end."""
    if operation is codes.LITERAL:
        return bool(argument == 10)
    if operation is codes.NOT_LITERAL:
        return bool(argument != 10)
    if operation is codes.IN:
        negated = argument[0][0] is codes.NEGATE
        return any(_member_matches_line_end(kind, value) for kind, value in argument) != negated
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return _can_match_line_end(list(argument[2]))
    if operation is codes.SUBPATTERN:
        return _can_match_line_end(list(argument[3]))
    if operation is codes.BRANCH:
        return any(_can_match_line_end(list(branch)) for branch in argument[1])
    if operation in (codes.ASSERT, codes.ASSERT_NOT):
        return _can_match_line_end(list(argument[1]))
    return operation not in (codes.ANY, codes.AT, codes.GROUPREF)


def _member_matches_line_end(kind: Any, value: Any) -> bool:
    """Whether a member (character, range, class) of a bracketed set matches a line end."""
    if kind is codes.LITERAL:
        return bool(value == 10)
    if kind is codes.RANGE:
        return bool(value[0] <= 10 <= value[1])
    return kind is codes.CATEGORY and str(value) in _LINE_ENDS


# ---- Alternatives and distant parts ----

_GAP = re.compile(r"(?:\(\?:\(\?!(?:\\.|[^()\\])*\)\[\\s\\S\]\)|\[\\s\\S\])(?:\{0?,(?P<most>\d+)\}|[*+])\??")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_TOKEN = re.compile(r"\\.|" + _CLASS.pattern + r"|.", re.DOTALL)
_NOT_AGAIN = re.compile(r"\(\?!\(\?P=(\w+)\)(?:\\.)?\)")
_AGAIN = re.compile(r"\(\?P=(\w+)\)")
_NUMBERED = re.compile(r"\\[1-9]|\(\?\(|\A\(\?[a-zA-Z]+\)")
"""What refers to a group by its number, or holds for all alternatives: what stands alone does not."""
_UNBOUNDED = 1 << 30


@lru_cache(maxsize=2048)
def alternative_parts(pattern: str) -> tuple[tuple[Part, ...], ...]:
    """For each alternative of the pattern its parts in order; empty where the pattern is all one part.

    Alternatives without a required word are joined into one. Empty as well where a group is referred to by its number.
    """
    alternatives = _split_alternatives(pattern)
    if not all(match for parts in alternatives for match, _ in parts) or _NUMBERED.search(pattern):
        return ()
    found = [tuple(_compile_part(match, reach) for match, reach in parts) for parts in alternatives]
    wordless = [way[0].match for way in found if len(way) == 1 and not way[0].required_words]
    apart = [way for way in found if len(way) > 1 or way[0].required_words]
    if wordless:
        apart.append((_compile_part("|".join(wordless), 0),))
    return tuple(apart) if len(apart) > 1 or len(apart[0]) > 1 else ()


def _compile_part(match: str, reach: int) -> Part:
    """The text `match` as a `Part` of its own, with its required words; `reach` characters later the next may begin.

    Back references to groups of earlier parts match anything on the line.
    """

    def resolved(back: re.Match[str], otherwise: str) -> str:
        """The back reference itself if its group is in this part, else `otherwise`."""
        return back[0] if f"(?P<{back[1]}>" in match else otherwise

    by_itself = _NOT_AGAIN.sub(lambda back: resolved(back, ""), match)
    by_itself = _AGAIN.sub(lambda back: resolved(back, r"[^\n]*?"), by_itself)
    return Part(by_itself, required_words(by_itself), may_span_lines(by_itself), reach)


def _split_alternatives(pattern: str) -> list[list[tuple[str, int]]]:
    r"""For each top-level alternative of the pattern its parts between gaps (``[\s\S]*?``), in order.

    Each is (pattern, how many characters later the next part may begin, 0 for the last).
    """
    alternatives: list[list[tuple[str, int]]] = [[]]
    begun, depth, at = 0, 0, 0
    while at < len(pattern):
        gap = _GAP.match(pattern, at) if depth == 0 else None
        if gap:
            alternatives[-1].append((pattern[begun:at], int(gap["most"] or _UNBOUNDED)))
            begun = at = gap.end()
            continue
        token = _TOKEN.match(pattern, at)
        assert token, "any character is a token"
        if token[0] == "|" and depth == 0:
            alternatives[-1].append((pattern[begun:at], 0))
            alternatives.append([])
            begun = token.end()
        depth += (token[0] == "(") - (token[0] == ")")
        at = token.end()
    alternatives[-1].append((pattern[begun:], 0))
    return alternatives
