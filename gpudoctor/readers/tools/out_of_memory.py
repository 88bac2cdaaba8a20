"""torch's out-of-memory message: how much of the GPU's memory others hold, by its own numbers."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import mib

EXACT = 8

FACTS = (
    fact("oom.total_mib", "int", "memory of the GPU, by torch's out-of-memory message", "MiB"),
    fact("oom.own_mib", "int", "what the process holds that ran out of it, its CUDA context left out", "MiB"),
    fact("oom.others_mib", "int", "what neither it nor the free rest explains", "MiB"),
)

_SIZE = r"([\d.]+ (?:[KMG]iB|bytes))"
_OLD = Pattern(
    rf"Tried to allocate [\d.]+ \w+ \(GPU \d+; {_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free;"
    rf" {_SIZE} (reserved|cached)"
)
_NEW = Pattern(
    rf"has a total capacity of {_SIZE} of which {_SIZE} is free\.(?:[^\n]*?this process has {_SIZE} memory in use)?"
    rf"(?:[^\n]*?Of the allocated memory {_SIZE} is allocated by PyTorch, and {_SIZE} is reserved)?"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """The numbers of the first such message."""
    for index, line in paste.having("total capacity"):
        sizes = _old(line) or _new(line)
        if sizes:
            total, free, own = sizes
            source = paste.use(index)
            yield "oom.total_mib", Known(total, source)
            yield "oom.own_mib", Known(own, source)
            yield "oom.others_mib", Known(max(0, total - free - own), source)
            return


def _old(line: str) -> tuple[int, int, int] | None:
    """Up to torch 2.0; before 1.4 what is cached came on top of what is allocated."""
    match = _OLD.search(line)
    if not match:
        return None
    total, allocated, free, kept = (mib(size) or 0 for size in match.groups()[:4])
    return total, free, max(allocated, kept) if match.group(5) == "reserved" else allocated + kept


def _new(line: str) -> tuple[int, int, int] | None:
    match = _NEW.search(line)
    if not match:
        return None
    total, free, process, allocated, kept = (mib(size) or 0 if size else 0 for size in match.groups())
    own = process or allocated + kept
    return (total, free, own) if own else None
