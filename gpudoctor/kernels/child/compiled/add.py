"""A masked element-wise kernel: that Triton compiles, launches, and writes where it should and nowhere else."""

from __future__ import annotations

from .._kernel import Outcome, Spec
from ..eager._check import exact
from ..eager._rung import median_and_spread
from ._rung import Context

KERNELS = (Spec("triton.add", "Triton: element-wise, masked", "GB/s", "3 × 128 MiB", seconds=60.0),)
_COUNT, _COUNT_CPU = (32 << 20) + 3, (4 << 10) + 3
_BLOCK = 1024
_FACTOR = 3
_LARGEST = 1 << 20
"""Of the inputs: 3 of them and one more stay below 2**24, where fp32 is exact."""


def run(context: Context, _: Spec) -> Outcome:
    """``3 x + y`` of whole numbers, and a margin behind it that must stay as it was."""
    torch, count = context.torch, _COUNT_CPU if context.on_cpu else _COUNT
    context.need(3 * 4 * count)
    x, y = (torch.randint(-_LARGEST, _LARGEST, (count,), generator=context.generator(salt)) for salt in (1, 2))
    margin = torch.full((_BLOCK,), -1)
    there = [numbers.to(context.device, torch.float32) for numbers in (x, y, torch.cat([x, margin]))]
    kernel = context.kernels.add[(-(-count // _BLOCK),)]

    def work() -> None:
        kernel(there[0], there[1], there[2], count, float(_FACTOR), BLOCK=_BLOCK)

    warm = context.first(work)[1]
    judged = exact(torch, there[2], torch.cat([_FACTOR * x + y, margin]))
    once, spread = median_and_spread(context.seconds(work))
    return Outcome(value=3 * 4 * count / once / 1e9, spread=spread, details=warm, **judged.outcome())
