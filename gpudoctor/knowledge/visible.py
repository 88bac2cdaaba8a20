"""What CUDA makes of CUDA_VISIBLE_DEVICES.

It reads the list from left to right and stops at the first entry that names no GPU; a GPU named twice leaves none.
Numbers are read as C's strtoul reads them (``1x`` is 1, ``all`` is none), UUIDs may be cut short while one GPU fits.
PyTorch counts devices by the same reading (torch.cuda._parse_visible_devices of 2.9, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudoctor.knowledge._tables import lookup
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import NOTHING, CannotJudge, Nothing

_WORD = pattern(r"-\d|\s*(?:nodevfiles|all|any|auto)\b|\$0\b|\s*(?:cuda|gpu|device)\s*[:=]?\s*\d", re.I)
"""Beginnings of a value that name no GPU on any machine. ``none`` is left out: reports write it for "not set".

``$0`` is the shell's own name, which is none; it is a slip of the key for 0.
"""


def _entries(value: object) -> list[str]:
    return [entry.strip() for entry in str(value).split(",")]


@lookup
def visible_none(value: object) -> bool:
    """Whether that value of CUDA_VISIBLE_DEVICES hides every GPU of any machine: empty, -1, a word, one GPU twice."""
    first, *_ = entries = _entries(value)
    if not first or _WORD.match(first):
        return True
    taken = _taken(entries)
    return len(set(taken)) < len(taken)


def _taken(entries: Iterable[str]) -> list[str]:
    """The entries up to the first that cannot name a GPU of the first one's kind."""
    out: list[str] = []
    kind = ""
    for entry in entries:
        match = re.match(r"GPU-|MIG-|\+?\d+", entry)
        if not match or (kind and _kind(match[0]) != kind):
            break
        kind = _kind(match[0])
        out.append(entry if kind.endswith("-") else str(int(match[0])))
    return out


def _kind(start: str) -> str:
    return start if start.endswith("-") else "number"


@lookup
def visible_by_number(value: object, count: object) -> int | Nothing:
    """How many of `count` GPUs a list of numbers leaves visible; absent for a list of anything else."""
    taken = _taken(_entries(value))
    if not taken or not taken[0].isdigit():
        return NOTHING
    if isinstance(count, bool) or not isinstance(count, int):
        raise CannotJudge("number of GPUs", f"{count!r} is none")
    if len(set(taken)) < len(taken):
        return 0
    return next((place for place, entry in enumerate(taken) if int(entry) >= count), len(taken))


@lookup
def visible_by_uuid(value: object, uuids: object) -> int | Nothing:
    """How many of the GPUs with those UUIDs a list of GPU-... leaves visible; absent for a list of anything else."""
    taken = _taken(_entries(value))
    if not taken or not taken[0].startswith("GPU-") or not isinstance(uuids, (list, tuple)):
        return NOTHING
    seen: list[str] = []
    for entry in taken:
        fitting = [str(uuid) for uuid in uuids if str(uuid).lower().startswith(entry.lower())]
        if len(fitting) != 1:
            break
        if fitting[0] in seen:
            return 0
        seen.append(fitting[0])
    return len(seen)


@lookup
def visible_asked(value: object) -> int:
    """How many GPUs the list names, right or wrong."""
    return sum(bool(entry) for entry in _entries(value))
