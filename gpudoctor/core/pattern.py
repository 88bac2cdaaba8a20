"""Regular expressions that are compiled when they are first asked: a healthy machine asks a third of them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_ASKED = (
    "findall",
    "finditer",
    "flags",
    "fullmatch",
    "groupindex",
    "groups",
    "match",
    "pattern",
    "search",
    "split",
    "sub",
    "subn",
)
"""What is asked of a pattern."""


class LazyPattern:
    """Stands for a `re.Pattern` and compiles it on first use."""

    __slots__ = ("_written", *_ASKED)

    def __init__(self, written: str | bytes, flags: int) -> None:
        self._written = written, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _ASKED:
            raise AttributeError(name)
        compiled: Any = re.compile(*self._written)
        for attribute in _ASKED:
            setattr(self, attribute, getattr(compiled, attribute))
        return getattr(compiled, name)


def pattern(written: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but compiled on first use; `re.error` is raised then."""
    return cast("re.Pattern[AnyStr]", LazyPattern(written, int(flags)))
