"""Copies in the GPU's memory, and between it and the host: GB/s, and whether every word arrives."""

from __future__ import annotations

from typing import Any, Tuple

from .._kernel import Outcome, Spec
from ._check import Judged
from ._pattern import WORD, arrived, both, pinned, words
from ._place import alone, near
from ._rung import Context, median_and_spread

KERNELS = (
    Spec("copy.device", "copy in GPU memory", "GB/s", "512 MiB, read and written", seconds=30.0),
    Spec("copy.to", "host to GPU", "GB/s", "256 MiB, pinned", seconds=120.0),
    Spec("copy.from", "GPU to host", "GB/s", "256 MiB, pinned", seconds=120.0),
)
_BLOCK, _BLOCK_CPU = 256 << 20, 2 << 20
"""Bytes of the pattern; a copy in GPU memory moves two such blocks, four times the largest L2 cache."""


def run(context: Context, spec: Spec) -> Outcome:
    """One direction."""
    if spec.id == "copy.device":
        return _inside(context)
    return _across(context, to_device=spec.id == "copy.to")


def _inside(context: Context) -> Outcome:
    """Counts each byte twice, read and written: what is compared with the memory's bandwidth."""
    size = _BLOCK_CPU if context.on_cpu else _BLOCK
    context.need(6 * size)  # the two halves, the source made of them, the target
    sent = [words(context, size, salt) for salt in (11, 12)]
    source = context.torch.cat([half.to(context.device) for half in sent])
    target = context.torch.zeros_like(source)
    once, spread = median_and_spread(context.seconds(lambda: target.copy_(source), least=0.5))
    first, second = target.chunk(2)
    judged = both(arrived(first, sent[0]), arrived(second, sent[1]))
    return Outcome(value=4 * size / once / 1e9, spread=spread, **judged.outcome())


def _across(context: Context, to_device: bool) -> Outcome:
    """From page-locked memory, as a loader that pins does; from ordinary memory as a detail.

    GPUs take turns: what is measured is this GPU's own link, not its share of what all of them get at once.
    """
    size = _BLOCK_CPU if context.on_cpu else _BLOCK
    context.need(2 * size)
    sent = words(context, size, 13)
    there = context.torch.zeros(size // WORD, dtype=sent.dtype, device=context.device)
    with near(context) as cpus, alone() as turn:
        rate, spread, judged = _sent(context, sent, there, pinned(context, size // WORD), to_device)
        pageable, _, other = _sent(context, sent, there, context.torch.zeros_like(sent), to_device)
    details = {"pageable": round(pageable, 2), "alone": turn, "near": cpus}
    return Outcome(value=rate, spread=spread, details=details, **both(judged, other).outcome())


def _sent(context: Context, sent: Any, there: Any, host: Any, to_device: bool) -> Tuple[float, float, Judged]:
    """GB/s, their spread, and what arrived."""
    source, target = (host, there) if to_device else (there, host)
    source.copy_(sent)
    target.zero_()
    once, spread = median_and_spread(context.seconds(lambda: target.copy_(source, non_blocking=True), least=0.4))
    return sent.numel() * WORD / once / 1e9, spread, arrived(target, sent)
