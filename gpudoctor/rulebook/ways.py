"""A pattern taken apart: each alternative is looked for on the lines that hold its words, each distant part once.

Of ``A|B|C`` mostly one alternative has its words in a text, and on few of its lines. Tried as it stands,
``A[\\s\\S]{0,6000}?B`` reads 6000 characters again for every A. Apart, A and B are found in one pass each, and the
whole is tried only where both are near enough.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpudoctor.model.rule import Part
from gpudoctor.rulebook.needles import goes_on, needles

_GAP = re.compile(r"(?:\(\?:\(\?!(?:\\.|[^()\\])*\)\[\\s\\S\]\)|\[\\s\\S\])(?:\{0?,(?P<most>\d+)\}|[*+])\??")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_TOKEN = re.compile(r"\\.|" + _CLASS.pattern + r"|.", re.DOTALL)
_NOT_AGAIN = re.compile(r"\(\?!\(\?P=(\w+)\)(?:\\.)?\)")
_AGAIN = re.compile(r"\(\?P=(\w+)\)")
_NUMBERED = re.compile(r"\\[1-9]|\(\?\(|\A\(\?[a-zA-Z]+\)")
"""What refers to a group by its number, or holds for all alternatives: what stands alone does not."""
_FAR = 1 << 30


@lru_cache(maxsize=2048)
def ways(pattern: str) -> tuple[tuple[Part, ...], ...]:
    """For each alternative its parts in order; those without a telling word are one. Empty for what is all one."""
    alternatives = _alternatives(pattern)
    if not all(match for parts in alternatives for match, _ in parts) or _NUMBERED.search(pattern):
        return ()
    found = [tuple(_part(match, reach) for match, reach in parts) for parts in alternatives]
    wordless = [way[0].match for way in found if len(way) == 1 and not way[0].needles]
    apart = [way for way in found if len(way) > 1 or way[0].needles]
    if wordless:
        apart.append((_part("|".join(wordless), 0),))
    return tuple(apart) if len(apart) > 1 or len(apart[0]) > 1 else ()


def _part(match: str, reach: int) -> Part:
    """The part alone: what must be, or must not be, the same as in an earlier part may here be anything."""

    def alone(back: re.Match[str], otherwise: str) -> str:
        return back[0] if f"(?P<{back[1]}>" in match else otherwise

    by_itself = _NOT_AGAIN.sub(lambda back: alone(back, ""), match)
    by_itself = _AGAIN.sub(lambda back: alone(back, r"[^\n]*?"), by_itself)
    return Part(by_itself, needles(by_itself), goes_on(by_itself), reach)


def _alternatives(pattern: str) -> list[list[tuple[str, int]]]:
    """For each alternative its parts, each with how far behind it the next may begin (the last: 0)."""
    alternatives: list[list[tuple[str, int]]] = [[]]
    begun, depth, at = 0, 0, 0
    while at < len(pattern):
        gap = _GAP.match(pattern, at) if depth == 0 else None
        if gap:
            alternatives[-1].append((pattern[begun:at], int(gap["most"] or _FAR)))
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
