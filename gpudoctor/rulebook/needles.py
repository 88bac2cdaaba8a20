"""What a pattern's match must contain: plain words to look for before the pattern is compiled and tried.

Most signs are not in most texts. Looking for a word costs a thousandth of compiling a pattern, so the words are worked
out once, when pages are compiled. A pattern is then tried on the lines that hold its words, and nowhere else.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import lru_cache
from typing import Any

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")

_SHORTEST = 3
_MOST_SETS, _MOST_WORDS = 3, 60
_LINE_ENDS = {f"CATEGORY_{name}" for name in ("SPACE", "NOT_WORD", "NOT_DIGIT", "LINEBREAK")}


@lru_cache(maxsize=8192)
def needles(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Sets of lower-case words, the most telling first: every match contains a word of each set."""
    found = [words for words in _promised(_parsed(pattern)) if len(words) <= _MOST_WORDS]
    sets = sorted({frozenset(words) for words in found}, key=lambda words: (-min(map(len, words)), sorted(words)))
    return tuple(tuple(sorted(words)) for words in sets[:_MOST_SETS])


@lru_cache(maxsize=8192)
def goes_on(pattern: str) -> bool:
    """Whether a match may go over the end of a line, or look beyond it."""
    return _has_end(_parsed(pattern))


def _parsed(pattern: str) -> list[tuple[Any, Any]]:
    try:
        return list(syntax_tree(pattern))
    except re.error:
        return []


@lru_cache(maxsize=64)
def syntax_tree(pattern: str) -> Any:
    """The pattern as `re` parses it; kept for a while, for several questions are asked of each. Raises `re.error`."""
    return _parser.parse(pattern, re.IGNORECASE | re.MULTILINE)


def _promised(items: list[tuple[Any, Any]]) -> list[frozenset[str]]:
    """Every set of words that the sequence promises, none of its words short."""
    candidates: list[frozenset[str]] = []
    run = ""
    for operation, argument in items:
        if operation is _codes.LITERAL and argument < 128:
            run += chr(argument).lower()
            continue
        candidates.append(frozenset({run}))
        run = ""
        candidates += _inside(operation, argument)
    candidates.append(frozenset({run}))
    return [words for words in candidates if words and min(map(len, words)) >= _SHORTEST]


def _required(items: list[tuple[Any, Any]]) -> frozenset[str]:
    """The most telling set that the sequence promises: the one whose shortest word is longest."""
    return max(_promised(items), key=lambda words: min(map(len, words)), default=frozenset())


def _inside(operation: Any, argument: Any) -> list[frozenset[str]]:
    if operation is _codes.SUBPATTERN:
        return _promised(list(argument[3]))
    if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT) and argument[0] >= 1:
        return _promised(list(argument[2]))
    if operation is _codes.BRANCH:
        branches = [_required(list(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []


def _has_end(items: list[tuple[Any, Any]]) -> bool:
    return any(_is_end(operation, argument) for operation, argument in items)


def _is_end(operation: Any, argument: Any) -> bool:
    """Whether this part of a pattern can match the end of a line."""
    if operation is _codes.LITERAL:
        return bool(argument == 10)
    if operation is _codes.NOT_LITERAL:
        return bool(argument != 10)
    if operation is _codes.IN:
        negated = argument[0][0] is _codes.NEGATE
        return any(_holds_end(kind, value) for kind, value in argument) != negated
    if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
        return _has_end(list(argument[2]))
    if operation is _codes.SUBPATTERN:
        return _has_end(list(argument[3]))
    if operation is _codes.BRANCH:
        return any(_has_end(list(branch)) for branch in argument[1])
    if operation in (_codes.ASSERT, _codes.ASSERT_NOT):
        return _has_end(list(argument[1]))
    return operation not in (_codes.ANY, _codes.AT, _codes.GROUPREF)


def _holds_end(kind: Any, value: Any) -> bool:
    if kind is _codes.LITERAL:
        return bool(value == 10)
    if kind is _codes.RANGE:
        return bool(value[0] <= 10 <= value[1])
    return kind is _codes.CATEGORY and str(value) in _LINE_ENDS
