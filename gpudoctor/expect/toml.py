"""Values written as TOML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoctor.model.fact import Value

_MARKS = '"\\'
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def quoted(text: str) -> str:
    """A text as a TOML string, whatever is in it."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(sign if sign.isprintable() and sign not in _MARKS else _escaped(sign) for sign in whole) + '"'


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


def array(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def value_text(value: Value) -> str:
    """A fact's value; empty where it is an object or a list of other things than texts and numbers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else ""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, tuple) and all(isinstance(item, (str, int, float)) for item in value):
        return array([str(item) for item in value])
    return ""


def key(name: str) -> str:
    """A dotted name as it may stand before ``=``; quoted where a part of it is no bare key."""
    return name if all(_BARE.match(part) for part in name.split(".")) else quoted(name)
