"""Documents that we wrote ourselves: strict JSON in, a snapshot out, and one line of error for anything else."""

from __future__ import annotations

import json
from collections import Counter
from math import isinf
from typing import Any

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.snapshot import Snapshot, from_json

_MOST_DIGITS = 30
"""Digits of the longest whole number: a 64-bit counter has 20."""


def saved(text: str, name: str) -> Snapshot:
    """The snapshot in `text`; raises `DocumentError`, which names the file as `name`."""
    try:
        return from_json(_parsed(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: not a whole snapshot ({error}); save it again with gpudoctor snapshot") from error


def _parsed(text: str) -> object:
    try:
        return json.loads(
            text.lstrip("\ufeff"),
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=_object,
        )
    except RecursionError as error:
        raise DocumentError("broken JSON: nested without end; save the snapshot again") from error
    except ValueError as error:
        hint = "; one document a file" if str(error).startswith("Extra data") else "; save the snapshot again"
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
