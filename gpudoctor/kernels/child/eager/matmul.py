"""Matrix products by cuBLAS: whether every value is right, and how fast they are."""

from __future__ import annotations

from typing import Any

from .._kernel import Outcome, Spec
from ._check import exact
from ._rung import Context, median_and_spread

KERNELS = (Spec("matmul.fp32", "fp32 matmul", "TFLOP/s", "4096³", "standard"),)
_SIDE, _SIDE_CPU = 4096, 192


def run(context: Context, _: Spec) -> Outcome:
    """Whole numbers whose products stay below 2**24: exact in whatever order they are summed."""
    side = _SIDE_CPU if context.on_cpu else _SIDE
    torch = context.torch
    left, right = (_numbers(context, side, salt) for salt in (1, 2))
    there = [matrix.to(context.device, torch.float32) for matrix in (left, right)]
    result = there[0] @ there[1]
    judged = exact(torch, result, left.double() @ right.double())
    once, spread = median_and_spread(context.seconds(lambda: torch.mm(there[0], there[1], out=result)))
    return Outcome(value=2 * side**3 / once / 1e12, spread=spread, **judged.outcome())


def _numbers(context: Context, side: int, salt: int) -> Any:
    torch = context.torch
    return torch.randint(-3, 4, (side, side), generator=context.generator(salt)).float()
