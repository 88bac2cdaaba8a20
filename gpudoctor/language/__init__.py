"""The language that a run speaks. English stands where it is said; other languages are looked up by it.

A process speaks one language, as it has one locale: the front door chooses it, and everything that is worded afterwards
is worded in it. Words of the program are in ``gpudoctor/language/<name>/``, those of a rule's page in
``rules/<name>/``. Ids, keys, facts, commands and quoted messages have no language.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

ENGLISH = "en"
OTHERS = ("zh",)
LANGUAGES = (ENGLISH, *OTHERS)

_spoken = ENGLISH


def spoken() -> str:
    """The language in use, one of `LANGUAGES`."""
    return _spoken


def use(name: str) -> None:
    """Speak that language from here on; raises `ValueError` for one that there is not."""
    global _spoken  # noqa: PLW0603 - as a locale: one for the process
    if name not in LANGUAGES:
        raise ValueError(f"no language {name!r}; there are {', '.join(LANGUAGES)}")
    _spoken = name


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """That language meanwhile."""
    before = _spoken
    use(name)
    try:
        yield
    finally:
        use(before)


def say(english: str, **values: object) -> str:
    """The sentence in the language in use, its ``{holes}`` filled; English where it has no translation."""
    template = english if _spoken == ENGLISH else words(_spoken).get(english, english)
    return template.format(**values) if values else template


@lru_cache(maxsize=len(OTHERS))
def words(name: str) -> Mapping[str, str]:
    """English sentences of the program, and what that language says instead."""
    module = importlib.import_module(f"gpudoctor.language.{name}")
    found: Mapping[str, str] = module.WORDS
    return found
