"""Ways in which a name is written so that it reads the same and is not found: undone before it is looked for."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

_UNSEEN = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])"  # what a terminal obeys
    r"|[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]"
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\"'/\\nrt]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def plain(text: str) -> str:
    """The text without what nobody sees, wide and mathematical letters as the plain ones."""
    if text.isascii():
        return _UNSEEN.sub("", text) if "\x1b" in text else text
    return "".join(map(_letter, _UNSEEN.sub("", text)))


def _letter(sign: str) -> str:
    if sign < "\u0080":
        return sign
    wide = unicodedata.normalize("NFKC", sign)
    return wide if len(wide) == 1 and wide.isascii() and wide.isalnum() else sign


def decoded(text: str) -> str:
    """The text with ``%2F``, and what JSON and Python write with a backslash, as what they stand for."""
    if "%" in text:
        text = unquote(text, errors="replace")
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    number = match[1] or match[2]
    return chr(int(number, 16)) if number else _PLAIN.get(match[3], match[3])
