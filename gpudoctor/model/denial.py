"""Notes that deny what they name: ``Xid 79: none``, ``no Xid 79 in dmesg``. Such words are no sign of it."""

from __future__ import annotations

import re

from gpudoctor.model.pattern import pattern

_AFTER = pattern(
    r"(?:, ?\d{1,3})*[ \w()-]{0,40}[:=]\s*"
    r"(?:(?:no|none|never|nothing|nil|false|zero|clean|gone|-)(?=\s*(?:$|[,;.(]))|0(?=\s*(?:$|[,;(]))"
    r"|(?:not|never|none) (?:in|seen|observed|any ?more|reported|there|logged|asserted)\b)",
    re.IGNORECASE,
)
"""The rest of a label that is denied. ``not found`` and ``no such file`` are what programs print, and deny nothing."""
_BEFORE = pattern(
    r"\b(?:no|no more|never an?|without|nothing about|nothing of)"
    r"(?: (?:an?|the|any|more|nvrm|gpu|cuda|sign of|errors? like))* ?$",
    re.IGNORECASE,
)

_OVER = pattern(
    r"\b(?:nothing|none|never|not (?:seen|once)|no more|no further|quiet|clean|fine"
    r"|stable) (?:again )?(?:ever )?since\b"
    r"|\bsince(?: then| the \w+)?\W{1,3}(?:none|nothing|never|clean|quiet|stable|no (?:more|further))\b"
    r"|\b(?:has|have) not (?:come back|happened again|re-?occurred|re-?appeared)\b",
    re.IGNORECASE,
)
"""``Xid 79 last year with the old power supply, nothing since``"""


def denied(line: str, start: int, end: int) -> bool:
    """Whether the line denies what stands in it from `start` to `end`."""
    return bool(
        _AFTER.match(line, end)
        or _BEFORE.search(line[max(0, start - 40) : start])
        or _OVER.search(line, end, end + 200)
    )
