"""CUDA's return codes, as the child that asks libcuda tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.target import error_words
from gpudoctor.target.protocol import printable

Entry = Mapping[str, Any]
"""One line of the child about a call: with ``is``, or with ``code``, ``name`` and ``text``."""

STUB, NO_DEVICE = 34, 100


def code_of(entry: Entry) -> int:
    """A record may hold cuInit's code as its answer."""
    told = entry.get("code", entry.get("is"))
    return told if isinstance(told, int) else 0


def name_of(entry: Entry) -> str:
    """The driver's own name; from the table where it has none: a stub, or a record of numbers."""
    known, _ = error_words.CUDA.get(code_of(entry), ("", ""))
    return printable(entry.get("name") or known or f"CUDA error {code_of(entry)}")


def sentence_of(entry: Entry) -> str:
    _, known = error_words.CUDA.get(code_of(entry), ("", ""))
    return printable(entry.get("text") or known)


def failure(entry: Entry) -> str:
    """A failed call in words."""
    sentence = sentence_of(entry)
    return f"{name_of(entry)} ({code_of(entry)})" + (f": {sentence}" if sentence else "")
