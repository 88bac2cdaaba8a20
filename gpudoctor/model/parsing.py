"""JSON as the standard has it: no NaN, no key twice, no number beyond reason, no nesting without end."""

from __future__ import annotations

import json
from collections import Counter
from math import isinf
from typing import Any

from gpudoctor.model.errors import DocumentError

_MOST_DIGITS = 30
"""Digits of the longest whole number: a 64-bit counter has 20."""

_MOST_VALUES = 1_000_000
"""Values of the largest document, which then takes some 250 MB of memory; that of 500 machines has 800,000."""


def parsed(text: str) -> object:
    """What the JSON in `text` holds; raises `DocumentError` for what is no JSON, or only nearly."""
    if len(text) > _MOST_VALUES and text.count(",") > _MOST_VALUES:
        raise DocumentError(f"more than {_MOST_VALUES:,} values, which no document of gpudoctor has")
    try:
        return json.loads(
            text.lstrip("\ufeff"),
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=_object,
        )
    except RecursionError as error:
        raise DocumentError("broken JSON: nested without end; save it again") from error
    except ValueError as error:
        hint = "; one document a file" if str(error).startswith("Extra data") else "; save it again"
        raise DocumentError(f"broken JSON: {error}{hint}") from error


def _constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _float(word: str) -> float:
    number = float(word)
    if isinf(number):
        raise ValueError(f"{word[:40]} is out of range")
    return number


def _int(word: str) -> int:
    if len(word) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(word)} digits")
    return int(word)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found
