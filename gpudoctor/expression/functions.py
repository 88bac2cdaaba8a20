"""What conditions may call, beside the look-ups of `gpudoctor.knowledge`; an absent value mostly stays one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from gpudoctor.expression.facts import WIDTH, Many
from gpudoctor.model.values import Nothing, Version


def show(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show(item)}" for key, item in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _version(text: object) -> object:
    return text if isinstance(text, Nothing) else Version(str(text))


def _matches(text: object, pattern: str) -> bool:
    return not isinstance(text, Nothing) and _pattern(pattern).search(str(text), 0, WIDTH) is not None


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _lower(text: object) -> object:
    return text if isinstance(text, Nothing) else str(text).lower()


def _says(lines: Iterable[object], pattern: str) -> bool:
    """Whether some line of ``text`` holds the pattern: as ``any(matches(...))`` over the rows, and much faster."""
    if isinstance(lines, Many):
        return lines.says(_pattern(pattern))
    return bool(list(lines))  # nobody read a text: that raises


BUILTINS: Mapping[str, Callable[..., object]] = {
    "version": _version,
    "absent": lambda value: isinstance(value, Nothing),
    "known": lambda value: not isinstance(value, Nothing),  # the evaluator's: an unread argument is an answer, too
    "present": lambda value: not isinstance(value, Nothing),
    "matches": _matches,
    "says": _says,
    "lower": _lower,
    "len": len,
    "any": any,
    "all": all,
    "min": min,
    "max": max,
    "sum": sum,
    "sorted": sorted,
    "set": lambda items: sorted(set(items)),
    "int": int,
    "str": str,
    "words": show,
    "abs": abs,
    "round": round,
    "startswith": lambda text, head: not isinstance(text, Nothing) and str(text).startswith(head),
}
"""By the name that a page calls it."""
