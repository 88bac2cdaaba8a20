"""torch's out-of-memory message, vLLM's refusal to start: how much of the GPU's memory others hold, by its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import size_mib

EXACT = 8

FACTS = (
    fact("oom.total_mib", "int", "memory of the GPU, by torch's out-of-memory message or vLLM's refusal", "MiB"),
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
_START = Pattern(
    r"Free memory on device(?: \S{1,10})? \((?P<free>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) GiB\) on startup is less"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """MiB in total, held by the process, and held by others, from the first message of torch or vLLM.

    vLLM asks before it has taken anything but its CUDA context, which counts as others'.
    """
    for index, line in paste.having("free memory on device"):
        if match := _START.search(line):
            source = paste.use(index)
            total, free = (round(float(match[name][:12]) * 1024) for name in ("total", "free"))
            yield "oom.total_mib", Known(total, source)
            yield "oom.own_mib", Known(0, source)
            yield "oom.others_mib", Known(max(0, total - free), source)
            return
    for index, line in paste.having("total capacity"):
        sizes = _sizes_before_2_1(line) or _sizes_since_2_1(line)
        if sizes:
            total, free, own_memory = sizes
            source = paste.use(index)
            yield "oom.total_mib", Known(total, source)
            yield "oom.own_mib", Known(own_memory, source)
            yield "oom.others_mib", Known(max(0, total - free - own_memory), source)
            return


def _sizes_before_2_1(line: str) -> tuple[int, int, int] | None:
    """Total, free and own MiB from messages up to torch 2.0; None for other lines.

    Before 1.4 the cached memory came on top of the allocated.
    """
    match = _OLD.search(line)
    if not match:
        return None
    total, allocated, free, reserved = (size_mib(size) or 0 for size in match.groups()[:4])
    return total, free, max(allocated, reserved) if match.group(5) == "reserved" else allocated + reserved


def _sizes_since_2_1(line: str) -> tuple[int, int, int] | None:
    """Total, free and own MiB from messages of torch 2.1 and newer; None for other lines."""
    match = _NEW.search(line)
    if not match:
        return None
    total, free, process, allocated, reserved = (size_mib(size) or 0 if size else 0 for size in match.groups())
    own_memory = process or allocated + reserved
    return (total, free, own_memory) if own_memory else None
