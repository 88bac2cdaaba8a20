"""Memory errors as people note them: ``DBE count: 3``, ``rows remapped: 1, pending``, ``row remapping: failed``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._labels import Label
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import truth

EXACT = 3
FACTS = ()

_ABOUT = ("ecc", "dbe", "bit", "uncorr", "remap", "retire", "page", "sram")
_UNCORRECTED = Pattern(r"\b(?:dbes?|double bits?|uncorr\w*|ecc column|ecc volatile|volatile ecc)\b")
_EVER = Pattern(
    r"\b(?:aggregate|lifetime|ever|total since|corrected by)\b|\b(?:remap\w*|retired?|retirement|rows?|sram)\b"
)
_REMAP = Pattern(r"\bremap\w*\b|\brows?\b.*\bpending\b")
_PAGES = Pattern(r"\b(?:pages?|retired?|retirements?)\b")
_NUMBER = Pattern(r"^\D{0,12}(\d{1,9})\b(?!\.\d)")
_DENIED = Pattern(r"\b(?:no|not|none|never|without|0)\b[^,;]{0,12}$", 2)
_NO = Pattern(r"\w*\s*[:=]?\s*(?:no|none|0|false)\b")
_THRESHOLD = Pattern(
    r"\b(?:above|over|past|exceed\w*)\b[^,;]{0,16}\bthreshold\b|\bthreshold\b[^,;]{0,16}\bexceeded\b", 2
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """One row of ``gpu`` with what the notes say of its memory."""
    row: dict[str, Fact] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value or not any(word in label.name for word in _ABOUT):
            continue
        if paste.bare[label.index][:1].isspace():
            continue  # a part of a tool's output, whose headings say what it counts
        for column, value in _told(label):
            row.setdefault(column, Known(value, paste.use(label.index)))
    if row:
        yield "gpu", (row,)


def _told(label: Label) -> Iterator[tuple[str, int | bool]]:
    name, value = label.name, label.value
    if _REMAP.search(name):
        for column, word in (("remap_pending", "pending"), ("remap_failed", "fail")):
            if (said := _said(name, value, word)) is not None:
                yield column, said
    elif _PAGES.search(name) and (said := _said(name, value, "pending")) is not None:
        yield "retired_pending", said
    elif "sram" in name and _THRESHOLD.search(f"{name} {value}"):
        if truth(value) is not False:
            yield "sram_threshold_exceeded", True
    elif _UNCORRECTED.search(name) and not _EVER.search(name) and (number := _NUMBER.search(value)):
        yield "ecc_uncorrected", int(number.group(1))


def _said(name: str, value: str, word: str) -> bool | None:
    """Whether a note that holds `word` in its label or value says yes to it; None where it does not speak of it."""
    if word in name:
        answer = truth(value)
        number = _NUMBER.search(value)
        return answer if answer is not None else int(number.group(1)) > 0 if number else None
    low = value.lower()
    if word not in low:
        return None
    before, _, after = low.partition(word)
    return not _DENIED.search(before) and not _NO.match(after)
