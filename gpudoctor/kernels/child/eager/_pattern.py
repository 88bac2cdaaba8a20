"""Bytes that are sent, and whether they arrive: random words of 64 bits, so that no two places hold the same."""

from __future__ import annotations

from typing import Any

from ._check import Judged, judged

WORD = 8
"""Bytes of an int64."""


def words(context: Any, size: int, salt: int) -> Any:
    """`size` bytes of random words in ordinary host memory."""
    torch = context.torch
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (size // WORD,), dtype=torch.int64, generator=context.generator(salt))


def pinned(context: Any, count: int) -> Any:
    """Room for that many words in page-locked host memory; on a CPU in ordinary memory."""
    torch = context.torch
    if context.on_cpu:
        return torch.empty(count, dtype=torch.int64)
    with torch.cuda.device(context.device):  # page-locked by this GPU's context: no other GPU is touched
        return torch.empty(count, dtype=torch.int64, pin_memory=True)


def arrived(here: Any, sent: Any) -> Judged:
    """Every word of `here`, brought to the CPU, against what was sent; whole numbers compared bit for bit."""
    return judged(here.detach().cpu() != sent)


def both(one: Judged, other: Judged) -> Judged:
    """The two together; the first that is wrong is that of the first part that has one."""
    return Judged(one.differ + other.differ, one.compared + other.compared, one.first or other.first)
