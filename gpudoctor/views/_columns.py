"""Text in columns of a terminal where it has characters that are two columns wide, as Chinese ones are.

Such text has no blanks to break lines at: a line may end behind any wide character, but no line begins with what closes
or parts (，。）) and none ends with what opens (（“), which typesetters call kinsoku.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_WORD = re.compile(r"(\s*)(\S+)")
_NEVER_FIRST = frozenset("，。、；：？！）》】」』”’…％,.;:?!)]}")
_NEVER_LAST = frozenset("（《【「『“‘([{")


def width(text: str) -> int:
    """Columns that the text takes in a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def has_wide(text: str) -> bool:
    """Whether some character takes two columns."""
    return not text.isascii() and any(unicodedata.east_asian_width(one) in "WF" for one in text)


def _columns(character: str) -> int:
    """Of one character. Quotation marks, which a font may draw in one or two, are taken for two."""
    if character.isascii():
        return 1
    if unicodedata.combining(character) or character in "\u200d\ufe0f\u2060":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" or character in "“”‘’…" else 1


def padded(text: str, columns: int) -> str:
    """The text with blanks behind it, up to so many columns."""
    return text + " " * (columns - width(text))


def folded(text: str, most: int, first: str, rest: str) -> list[str]:
    """The text in lines of at most `most` columns, as `textwrap.wrap` has it: a longer word stays whole."""
    lines, line, begun = [], first, False
    for blank, piece in _pieces(text):
        longer = line + (blank if begun else "") + piece
        if begun and width(longer) > most:
            lines.append(line)
            longer = rest + piece
        line, begun = longer, True
    return [*lines, line] if begun else []


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """What stays on one line, each behind the blanks before it."""
    for blank, word in _WORD.findall(text):
        before, piece = blank, ""
        for character in word:
            if piece and _may_part(piece[-1], character):
                yield " " * len(before), piece
                before, piece = "", ""
            piece += character
        yield " " * len(before), piece


def _may_part(before: str, behind: str) -> bool:
    """Whether a line may end between these two: never within a narrow word."""
    if behind in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    return _columns(before) == 2 or _columns(behind) == 2
