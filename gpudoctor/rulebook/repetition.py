"""Repetitions within repetitions: refused when a page is loaded, for one line can make them search for years.

Python's `re` tries every way to share a text out between repetitions, and of nested ones there are exponentially many.
All else takes a power of a line's length, which `gpudoctor.judge.signs` bounds by its budget: repetitions that adjoin
and overlap, as in ``lib\\w*[^\\n]*not found``, are how one writes that something may stand between, on 40 pages.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gpudoctor.rulebook.needles import syntax_tree

_codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")

Items = Sequence[tuple[Any, Any]]

_LONG = 30
"""How often something repeats at least that counts as a repetition."""
_SAMPLE = [chr(code) for code in (9, 10, *range(32, 127), 0xE9, 0x4E2D)]
"""Characters by which two sets are found to overlap."""


def nested(pattern: str) -> bool:
    """Whether a repetition stands within another whose turns nothing tells apart: ``(a+)*``, but not ``(a+,)*``; or
    its turns may end with what the next begins with: ``(a|aa)*``, but not ``(a|ab)*``.
    """
    return _nested(list(syntax_tree(pattern)), inside=False)


def _nested(items: Items, *, inside: bool) -> bool:
    for operation, argument in items:
        if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            body = list(argument[2])
            is_long = argument[1] >= _LONG
            if is_long and (inside or _ends_as_it_begins(body)):
                return True
            if _nested(body, inside=not _separated(body) if is_long else inside):
                return True
        else:
            looks = operation in (_codes.ASSERT, _codes.ASSERT_NOT)
            if any(_nested(part, inside=inside and not looks) for part in _parts(operation, argument)):
                return True
    return False


def _ends_as_it_begins(body: Items) -> bool:
    """Whether a turn may end with or without what the next may begin with."""
    if len(body) == 1 and body[0][0] is _codes.SUBPATTERN:
        return _ends_as_it_begins(list(body[0][1][3]))
    begins = _first(body)
    for operation, argument in reversed(body):
        if not _may_be_empty(operation, argument):
            return False
        if begins & _first([(operation, argument)]):
            return len(body) > 1
    return False


def _may_be_empty(operation: Any, argument: Any) -> bool:
    if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
        return not argument[0]
    parts = _parts(operation, argument)
    return bool(parts) and any(all(_may_be_empty(*one) for one in part) for part in parts)


def _first(items: Items) -> frozenset[str]:
    """The characters that a match may begin with."""
    found: frozenset[str] = frozenset()
    for operation, argument in items:
        is_repeated = operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT)
        parts = [list(argument[2])] if is_repeated else _parts(operation, argument)
        if operation not in (_codes.ASSERT, _codes.ASSERT_NOT):
            found = found.union(_characters([(operation, argument)]), *map(_first, parts))
        if operation is not _codes.AT and not _may_be_empty(operation, argument):
            break
    return found


def _separated(body: Items) -> bool:
    """Whether each turn holds a character that no other part of it repeats, so that turns are told apart."""
    return any(
        _differs(operation, argument, [*body[:at], *body[at + 1 :]]) for at, (operation, argument) in enumerate(body)
    )


def _differs(operation: Any, argument: Any, others: Items) -> bool:
    """Whether this part is always there, beside others, and matches nothing that they repeat."""
    if operation in (_codes.LITERAL, _codes.NOT_LITERAL, _codes.IN):
        return not _characters([(operation, argument)]) & _repeated(others)
    if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
        own = _characters(list(argument[2]))
        return bool(argument[0] and own) and any(_is_always_there(*one) for one in others) and not own & _all(others)
    if operation in (_codes.SUBPATTERN, _codes.BRANCH):
        parts = [list(part) for part in _parts(operation, argument)]
        return all(
            any(_differs(*one, [*others, *part[:at], *part[at + 1 :]]) for at, one in enumerate(part)) for part in parts
        )
    return False


def _is_always_there(operation: Any, argument: Any) -> bool:
    return operation not in (_codes.MAX_REPEAT, _codes.MIN_REPEAT) or bool(argument[0])


def _all(items: Items) -> frozenset[str]:
    """All characters that some part of it matches."""
    found: set[str] = set()
    for operation, argument in items:
        parts = _parts(operation, argument)
        if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            parts = [list(argument[2])]
        found |= _characters([(operation, argument)]).union(*map(_all, parts))
    return frozenset(found)


def _repeated(items: Items) -> frozenset[str]:
    """All characters that some long repetition in it matches."""
    found: set[str] = set()
    for operation, argument in items:
        if operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            body = list(argument[2])
            found |= (_characters(body) if argument[1] >= _LONG else frozenset()) | _repeated(body)
        for part in _parts(operation, argument):
            found |= _repeated(part)
    return frozenset(found)


def _parts(operation: Any, argument: Any) -> list[Items]:
    if operation is _codes.SUBPATTERN:
        return [list(argument[3])]
    if operation is _codes.BRANCH:
        return [list(branch) for branch in argument[1]]
    if operation in (_codes.ASSERT, _codes.ASSERT_NOT):
        return [list(argument[1])]
    return []


def _characters(body: Items) -> frozenset[str]:
    """Those of `_SAMPLE` that a body of one item matches; none for a longer body."""
    if len(body) != 1:
        return frozenset()
    operation, argument = body[0]
    if operation is _codes.ANY:
        return frozenset(_SAMPLE) - {"\n"}
    if operation is _codes.LITERAL:
        return frozenset({chr(argument)})
    if operation is _codes.NOT_LITERAL:
        return frozenset(_SAMPLE) - {chr(argument)}
    if operation is _codes.IN:
        return _members(tuple(argument))
    return frozenset()


@lru_cache(maxsize=512)
def _members(listed: tuple[tuple[Any, Any], ...]) -> frozenset[str]:
    """Those of `_SAMPLE` that are in a set in brackets; pages hold the same sets again and again."""
    return frozenset(sign for sign in _SAMPLE if _holds(listed, sign))


def _holds(members: Items, sign: str) -> bool:
    negated = members[0][0] is _codes.NEGATE
    return any(_is_one(kind, value, sign) for kind, value in members if kind is not _codes.NEGATE) != negated


def _is_one(kind: Any, value: Any, sign: str) -> bool:
    if kind is _codes.LITERAL:
        return ord(sign) == int(value)
    if kind is _codes.RANGE:
        return int(value[0]) <= ord(sign) <= int(value[1])
    name = str(value).rpartition("CATEGORY_")[2]
    told = {"DIGIT": sign.isdigit(), "SPACE": sign.isspace(), "WORD": sign.isalnum() or sign == "_"}
    return told.get(name.removeprefix("NOT_"), False) != name.startswith("NOT_")
