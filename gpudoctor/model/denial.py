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


_NONE_OF = pattern(
    r"(?:\w+: )?(?:no|without|nothing about)\b(?! (?:such|module|kernel|space|route|devices?|gpus?|cuda))",
    re.IGNORECASE,
)
_HEALTHY = pattern(
    r"[^\n:=|]{1,64}[:=]\s*(?:no|none|never|nothing|0(?:\.0+)?|zero|clean|ok|okay|pass(?:ed)?|normal|fine|n/a"
    r"|not active|not asserted|disabled|false|all (?:pass|ok|fine))[ .%]*(?:$|[,;(])",
    re.IGNORECASE,
)
_OUTPUT = pattern(r"\s{4,}[A-Z][\w /().-]{2,40}\s+: \S")
"""A line of ``nvidia-smi -q``: what it counts is a fact, whatever faults its labels name."""

_ROUTINE = pattern(
    r"NCCL INFO (?:NET/IB ?: ?No device found|(?:NET|TUNER|PROFILER)/Plugin\b|Plugin load\b|Failed to open libibverbs)"
)
"""What NCCL logs on every start on a machine without RDMA cards and without plugins; what else it logs is furniture."""
_OVER = pattern(
    r"\b(?:nothing|none|never|not (?:seen|once)|no more|no further|quiet|clean|fine"
    r"|stable) (?:again )?(?:ever )?since\b"
    r"|\bsince(?: then| the \w+)?\W{1,3}(?:none|nothing|never|clean|quiet|stable|no (?:more|further))\b"
    r"|\b(?:has|have) not (?:come back|happened again|re-?occurred|re-?appeared)\b",
    re.IGNORECASE,
)
"""``Xid 79 last year with the old power supply, nothing since``"""


def says_all_is_well(line: str) -> bool:
    """Whether the line is a note, a counter or a start-up's message that names a fault only to say there is none."""
    bare = line.strip()
    return bool(_OUTPUT.match(line) or _HEALTHY.match(bare) or _NONE_OF.match(bare) or _ROUTINE.search(line))


def denied(line: str, start: int, end: int) -> bool:
    """Whether the line denies what stands in it from `start` to `end`."""
    return bool(
        _AFTER.match(line, end)
        or _BEFORE.search(line[max(0, start - 40) : start])
        or _OVER.search(line, end, end + 200)
    )
