"""What a misspelt word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def near(word: str, known: Iterable[str]) -> list[str]:
    """The known words that begin with it, then those that are spelt most like it: three at most."""
    from difflib import get_close_matches

    asked, words = word[:200].lower(), list(known)
    begun = sorted((one for one in words if len(asked) > 1 and one.startswith(asked)), key=len)
    return list(dict.fromkeys([*begun, *get_close_matches(asked, words, 3, 0.6)]))[:3]


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean gpu.name?``, or nothing where none is near."""
    found = near(word, known)
    return f"; did you mean {' or '.join(filter(None, [', '.join(found[:-1]), *found[-1:]]))}?" if found else ""
