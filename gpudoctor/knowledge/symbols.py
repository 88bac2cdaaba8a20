"""What a missing symbol says: its library, the release that brought or dropped it, the C++ ABI it wants."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.knowledge._tables import TableRow, lookup, table, text
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import CannotJudge

_NEW_ABI = pattern(r"7__cxx11|B5cxx11")
_SKIPPED = pattern(r"S[0-9A-Z]*_|L[a-z]n?\d+E|(\d+)")
_ABI_SAYS = {
    "cxx11": "it wants a torch with the C++11 ABI (wheels from 2.7 on, and 2.6 for CUDA 12.6)",
    "pre-cxx11": "it wants a torch with the old C++ ABI (wheels up to 2.6, but not 2.6 for CUDA 12.6)",
}


@lookup
def symbol_says(symbol: object) -> str:
    """In plain words what the missing symbol tells: which releases have it, which C++ ABI it wants, whose it is."""
    written = _clean(symbol)
    words = [row["says"].format_map(match.groupdict()) for row, match in _matches(written)]
    if not words:
        raise CannotJudge(f"symbol {written[:60]}", "the table does not know it")
    words.insert(-1, _ABI_SAYS.get(_abi(written), ""))
    return "; ".join(word for word in words if word)


@lookup
def symbol_library(symbol: object) -> str:
    """The library that should define the symbol: torch, libnccl, libcublas, libnvJitLink, libcudart, libstdc++, ..."""
    written = _clean(symbol)
    for row, _ in _matches(written):
        if "library" in row:
            return str(row["library"])
    raise CannotJudge(f"symbol {written[:60]}", "the table does not know it")


@lookup
def symbol_abi(symbol: object) -> str:
    """The C++ ABI that a mangled name wants: ``cxx11``, ``pre-cxx11``, or ``any`` where it has no strings in it."""
    return _abi(_clean(symbol))


def _matches(symbol: str) -> Iterator[tuple[TableRow, re.Match[str]]]:
    for row in table("symbols")["symbol"]:
        if match := re.search(row["match"], symbol):
            yield row, match


def _clean(symbol: object) -> str:
    """The symbol without quotes, version suffix (``@GLIBC_2.34``) and what follows it in the loader's message."""
    words = text(symbol, "symbol").strip("'\"`,;:()").split()
    if not words:
        raise CannotJudge("symbol", "there is none")
    return words[0].rstrip(",.").partition("@")[0][:1000]


def _abi(symbol: str) -> str:
    if not symbol.startswith("_Z"):
        return "any"
    if _NEW_ABI.search(symbol):
        return "cxx11"
    return "pre-cxx11" if "Ss" in _without_names(symbol) else "any"


def _without_names(symbol: str) -> str:
    """The types and operators of a mangled symbol: names, written as a length and as many characters, are left out."""
    kept, place = [], 2
    while place < len(symbol):
        if skipped := _SKIPPED.match(symbol, place):
            place = skipped.end() + int(skipped[1] or 0)
        else:
            kept.append(symbol[place])
            place += 1
    return "".join(kept)
