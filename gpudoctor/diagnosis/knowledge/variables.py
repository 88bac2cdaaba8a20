"""What CUDA makes of CUDA_VISIBLE_DEVICES, and what follows from the variables that steer NCCL.

CUDA reads the list from left to right and stops at the first entry that names no GPU; a GPU named twice leaves none.
Numbers are read as C's strtoul reads them (``1x`` is 1, ``all`` is none), UUIDs may be cut short while one GPU fits.
PyTorch counts devices by the same reading (torch.cuda._parse_visible_devices of 2.9, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge._tables import lookup, table, text

_WORD = pattern(r"-\d|\s*(?:nodevfiles|all|any|auto)\b|\$0\b|\s*(?:cuda|gpu|device)\s*[:=]?\s*\d", re.I)
"""Beginnings of a value that name no GPU on any machine. ``none`` is left out: reports write it for "not set".

``$0`` is the shell's own name, which is none; it is a slip of the key for 0.
"""


def _entries(value: object) -> list[str]:
    """The entries of a list separated by commas, stripped."""
    return [entry.strip() for entry in str(value).split(",")]


@lookup
def visible_none(value: object) -> bool:
    """Whether that value of CUDA_VISIBLE_DEVICES hides every GPU of any machine: empty, -1, a word, one GPU twice."""
    first, *_ = entries = _entries(value)
    if not first or _WORD.match(first):
        return True
    taken = _effective_entries(entries)
    return len(set(taken)) < len(taken)


def _effective_entries(entries: Iterable[str]) -> list[str]:
    """The entries that CUDA honours: up to the first that is invalid or of another kind than the first.

    Numbers are normalised: ``1`` of ``+01x``.
    """
    out: list[str] = []
    kind = ""
    for entry in entries:
        match = re.match(r"GPU-|MIG-|\+?\d+", entry)
        if not match or (kind and _entry_kind(match[0]) != kind):
            break
        kind = _entry_kind(match[0])
        out.append(entry if kind.endswith("-") else str(int(match[0])))
    return out


def _entry_kind(start: str) -> str:
    """Kind of an entry by its start: ``GPU-``, ``MIG-`` or ``number``."""
    return start if start.endswith("-") else "number"


@lookup
def visible_by_number(value: object, count: object) -> int | Nothing:
    """How many of `count` GPUs a CUDA_VISIBLE_DEVICES of numbers leaves visible; 0 where it names one twice.

    Absent for other lists; raises `CannotJudge` where `count` is no whole number.
    """
    taken = _effective_entries(_entries(value))
    if not taken or not taken[0].isdigit():
        return NOTHING
    if isinstance(count, bool) or not isinstance(count, int):
        raise CannotJudge("number of GPUs", f"{count!r} is none")
    if len(set(taken)) < len(taken):
        return 0
    return next((place for place, entry in enumerate(taken) if int(entry) >= count), len(taken))


@lookup
def visible_by_uuid(value: object, uuids: object) -> int | Nothing:
    """How many of the GPUs with those UUIDs a CUDA_VISIBLE_DEVICES of GPU-... leaves visible; 0 if it names one twice.

    Absent for a list of anything else.
    """
    taken = _effective_entries(_entries(value))
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
    """Number of entries that are not empty in a CUDA_VISIBLE_DEVICES, valid or not."""
    return sum(bool(entry) for entry in _entries(value))


_MOST_LETTERS_OFF = 2
"""Letters by which a misspelt name may differ: NCCL_SOCKET_IFACE is NCCL_SOCKET_IFNAME."""

_SHORT, _SHORTEST = 8, 5
"""Letters after the family's name: shorter ones may differ by one letter only, the shortest by none."""


@lookup
def nccl_risk(name: object, value: object) -> object:
    """What follows from this value of an NCCL variable, in words, if the table has it as a risk; else absent."""
    wanted, written = text(name, "variable"), str(value).strip()
    for row in table("nccl")["risk"]:
        if row["name"] == wanted and re.fullmatch(row["match"], written, re.IGNORECASE):
            return row["says"]
    return NOTHING


@lookup
def nccl_renamed(name: object) -> object:
    """The present name of a variable renamed by torch: TORCH_NCCL_BLOCKING_WAIT of NCCL_BLOCKING_WAIT; else absent."""
    wanted = text(name, "variable")
    return next((row["now"] for row in table("nccl")["renamed"] if row["name"] == wanted), NOTHING)


@lookup
def nccl_like(name: object) -> object:
    """The variable probably meant by an unknown name: NCCL_IB_DISABLE for NCCL_DISABLE_IB; absent if none is near.

    Absent for a known name as well.
    """
    return _similar_variable(text(name, "variable")) or NOTHING


@lru_cache(maxsize=256)
def _similar_variable(name: str) -> str:
    """The known variable of the same words or nearest spelling that `name` may mean; empty if known or none is near.

    Only for names that begin with NCCL_, GLOO_ or TORCH_NCCL_; cached.
    """
    known = _known_variables()
    if name in known or not name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_")):
        return ""
    words = sorted(name.split("_"))
    reordered = next((known_name for known_name in known if sorted(known_name.split("_")) == words), "")
    length = len(name.partition("_")[2])
    if reordered or length < _SHORTEST:
        return reordered
    farthest = _MOST_LETTERS_OFF if length >= _SHORT else 1
    near = [
        (distance, known_name) for known_name in known if (distance := _edit_distance(name, known_name)) <= farthest
    ]
    return min(near)[1] if near else ""


@lru_cache(maxsize=1)
def _known_variables() -> tuple[str, ...]:
    """Names of all variables that NCCL, Gloo and torch read."""
    tables = table("nccl")
    rows = (row["name"] for group in ("variable", "renamed") for row in tables[group])
    return tuple(dict.fromkeys([*tables["known"], *tables["others"], *rows]))


def _edit_distance(name: str, other: str) -> int:
    """Levenshtein distance of two names where that is 2 or less; for names farther apart some number above 2."""
    if abs(len(name) - len(other)) > _MOST_LETTERS_OFF:
        return _MOST_LETTERS_OFF + 1
    above = list(range(len(other) + 1))
    for row, character in enumerate(name, 1):
        left = [row]
        for at, wanted in enumerate(other, 1):
            left.append(min(above[at] + 1, left[-1] + 1, above[at - 1] + (character != wanted)))
        if min(left) > _MOST_LETTERS_OFF:
            return _MOST_LETTERS_OFF + 1
        above = left
    return above[-1]
