"""A histogram by atomic additions: that none is lost where many threads add to one place."""

from __future__ import annotations

from .._kernel import Outcome, Spec
from ..eager._check import exact
from ..eager._rung import median_and_spread
from ._rung import Context

KERNELS = (Spec("triton.atomics", "Triton: atomic histogram", "Gop/s", "32 Mi into 256 bins", seconds=60.0),)
_COUNT, _COUNT_CPU = (32 << 20) + 5, (2 << 10) + 5
_BINS, _BLOCK = 256, 1024


def run(context: Context, _: Spec) -> Outcome:
    """Every bin against the count that the CPU makes; whole numbers, thus exact in whatever order."""
    torch, count = context.torch, _COUNT_CPU if context.on_cpu else _COUNT
    context.need(4 * count)
    values = torch.randint(0, _BINS, (count,), generator=context.generator(1))
    there = values.to(context.device, torch.int32)
    bins = torch.zeros(_BINS, device=context.device, dtype=torch.int32)
    kernel = context.kernels.histogram[(-(-count // _BLOCK),)]

    def work() -> None:
        kernel(there, bins, count, BLOCK=_BLOCK)

    warm = context.first(work)[1]
    judged = exact(torch, bins, torch.bincount(values, minlength=_BINS))
    once, spread = median_and_spread(context.seconds(work))
    return Outcome(value=count / once / 1e9, spread=spread, details=warm, **judged.outcome())
