"""Sums and softmax of rows: that threads of a block find each other's values."""

from __future__ import annotations

from typing import Any

from .._kernel import Outcome, Spec
from ..eager._check import exact, near
from ..eager._rung import median_and_spread
from ._rung import Context

KERNELS = (Spec("triton.reduction", "Triton: row sums and softmax", "GB/s", "2 × 125 MiB", seconds=60.0),)
_ROWS, _ROWS_CPU = 32 << 10, 12
_COLUMNS, _BLOCK = 1000, 1024
_BOUND = 2.0**-18
"""Of softmax, as a share: exp2 and division each err by some 2 of 2**-23, the argument of exp2 by as much again."""


def run(context: Context, _: Spec) -> Outcome:
    """Sums of whole numbers are exact; softmax of numbers between -2 and 2 gives values of like size."""
    torch, rows = context.torch, _ROWS_CPU if context.on_cpu else _ROWS
    context.need(2 * 4 * rows * _COLUMNS)
    values = torch.randint(-2, 3, (rows, _COLUMNS), generator=context.generator(1)).float()
    x = values.to(context.device)
    out, sums = torch.full_like(x, -1.0), torch.full((rows,), 0.5, device=context.device)
    kernel = context.kernels.softmax[(rows,)]

    def work() -> None:
        kernel(x, out, sums, _COLUMNS, BLOCK=_BLOCK)

    warm = context.first(work)[1]
    outcome = _judged(torch, values, out, sums)
    once, spread = median_and_spread(context.seconds(work))
    return outcome._replace(
        value=2 * 4 * rows * _COLUMNS / once / 1e9, spread=spread, details=dict(warm, bound=_BOUND, mantissa_bits=17)
    )


def _judged(torch: Any, values: Any, out: Any, sums: Any) -> Outcome:
    """Both results in one."""
    total = exact(torch, sums, values.sum(1, dtype=torch.float64))
    share = near(torch, out, torch.softmax(values.double(), 1), _BOUND)
    words = [name + one.words for name, one in (("sums: ", total), ("softmax: ", share)) if one.differ]
    differ, compared = total.differ + share.differ, total.compared + share.compared
    return Outcome(right=differ == 0, differ=differ, compared=compared, words="; ".join(words))
