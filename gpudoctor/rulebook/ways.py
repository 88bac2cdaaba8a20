"""A pattern that looks for one message and, pages further, for another, taken apart: each is looked for once.

Tried as it stands, ``A[\\s\\S]{0,6000}?B`` reads 6000 characters again for every A. Apart, A and B are found in one
pass each, and the whole is tried only where both are near enough.
"""

from __future__ import annotations

import re

from gpudoctor.model.rule import Part
from gpudoctor.rulebook.needles import goes_on, needles

_GAP = re.compile(r"(?:\(\?:\(\?!(?:\\.|[^()\\])*\)\[\\s\\S\]\)|\[\\s\\S\])(?:\{0?,(?P<most>\d+)\}|[*+])\??")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_TOKEN = re.compile(r"\\.|" + _CLASS.pattern + r"|.", re.DOTALL)
_NOT_AGAIN = re.compile(r"\(\?!\(\?P=(\w+)\)(?:\\.)?\)")
_AGAIN = re.compile(r"\(\?P=(\w+)\)")
_FAR = 1 << 30


def ways(pattern: str) -> tuple[tuple[Part, ...], ...]:
    """For each alternative its parts in order; empty for a pattern without a gap between two."""
    alternatives = _alternatives(pattern)
    if all(len(parts) == 1 for parts in alternatives) or not all(match for parts in alternatives for match, _ in parts):
        return ()
    return tuple(tuple(_part(match, reach) for match, reach in parts) for parts in alternatives)


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
