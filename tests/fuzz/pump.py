"""What drives a pattern to despair, made from the pattern: what it repeats, alone and behind what comes before it.

A pattern whose time grows with the square of the text is harmless on a line and deadly on a log.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")
_LONGEST = 200
_CATEGORIES = {
    "CATEGORY_DIGIT": "1",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_WORD": "-",
}


def units(pattern: str) -> list[str]:
    """What a hostile text repeats, one for each way in which the pattern does."""
    found = _repetitions(list(_parser.parse(pattern)), "")
    every = (unit for before, body in found for unit in (body, before + body, before, f"{body} ", f"{before}\n"))
    return [unit for unit in dict.fromkeys(every) if 0 < len(unit) <= _LONGEST]


def runs(pattern: str) -> list[tuple[str, str]]:
    """What leads to each repetition, once, and what it repeats: the rest of the line is then its own to try."""
    pairs = dict.fromkeys(_repetitions(list(_parser.parse(pattern)), ""))
    return [(before, body) for before, body in pairs if body and len(before) + len(body) <= _LONGEST]


def _repetitions(items: list[tuple[Any, Any]], before: str) -> Iterator[tuple[str, str]]:
    """What leads to each repetition of more than eight turns, and what it repeats; the inner ones after the outer."""
    for operation, argument in items:
        inside: list[Any] = []
        if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            inside = [argument[2]]
            if argument[1] > 8:
                yield before, sample(list(argument[2]))
        elif operation is _codes.SUBPATTERN:
            inside = [argument[3]]
        elif operation is _codes.BRANCH:
            inside = argument[1]
        elif operation in (_codes.ASSERT, _codes.ASSERT_NOT):
            inside = [argument[1]]
        for part in inside:
            yield from _repetitions(list(part), before)
        before += sample([(operation, argument)])


def sample(items: list[tuple[Any, Any]]) -> str:
    """A short text that the sequence matches, more or less."""
    return "".join(_one(operation, argument) for operation, argument in items)


def _one(operation: Any, argument: Any) -> str:
    if operation is _codes.LITERAL:
        return chr(argument)
    if operation is _codes.NOT_LITERAL:
        return "b" if argument == ord("a") else "a"
    if operation is _codes.ANY:
        return "a"
    if operation is _codes.IN:
        return _member(argument)
    if operation is _codes.BRANCH:
        return sample(list(argument[1][0]))
    if operation is _codes.SUBPATTERN:
        return sample(list(argument[3]))
    if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
        return sample(list(argument[2])) * min(3, max(1, int(argument[0])))
    return ""


def _member(argument: list[tuple[Any, Any]]) -> str:
    """A character of the set."""
    if argument[0][0] is _codes.NEGATE:
        refused = re.compile(_set_source(argument[1:]))
        return next((sign for sign in "a1 -:\n" if not refused.match(sign)), "~")
    operation, value = argument[0]
    if operation is _codes.LITERAL:
        return chr(value)
    if operation is _codes.RANGE:
        return chr(value[0])
    return _CATEGORIES.get(str(value), "a")


def _set_source(items: list[tuple[Any, Any]]) -> str:
    parts = []
    for operation, value in items:
        if operation is _codes.LITERAL:
            parts.append(re.escape(chr(value)))
        elif operation is _codes.RANGE:
            parts.append(f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}")
        else:
            sign = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).rpartition("_")[2]]
            parts.append(f"\\{sign.upper() if 'NOT' in str(value) else sign}")
    return f"[{''.join(parts)}]"
