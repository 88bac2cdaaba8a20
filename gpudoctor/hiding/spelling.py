"""Ways in which a name is written so that it reads the same and is not found: undone before it is looked for."""

from __future__ import annotations

import re
from urllib.parse import unquote

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\"'/\\nrt]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def decoded(text: str) -> str:
    """The text with ``%2F``, and what JSON and Python write with a backslash, as what they stand for."""
    if "%" in text:
        text = unquote(text, errors="replace")
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    number = match[1] or match[2]
    return chr(int(number, 16)) if number else _PLAIN.get(match[3], match[3])
