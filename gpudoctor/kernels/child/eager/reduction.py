"""Sums, running sums, means and extremes over shapes that no tile divides."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from ._case import Case, checked, exactly
from ._check import DTYPES, ULPS, close
from ._numbers import odd, shuffled
from ._rung import Context

KERNELS = (Spec("reduction", "reductions", "", "2047 × 1031", "deep", 30.0),)
_SIZE, _SIZE_CPU = 2047, 61

WHOLE = {"fp64": ((1 << 20) - 1, (1 << 20) - 1), "fp32": (4095, 4095), "fp16": (7, 289), "bf16": (3, 85)}
"""By type, the largest number that is added and the most of them: an odd number of odd ones, whose sum it holds."""


def run(context: Context, spec: Spec) -> Outcome:
    """Whole numbers, whose sums are exact in whatever order."""
    return Outcome(**checked(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Over about `size` values at a time, an odd number of them."""
    size = size // 2 * 2 + 1
    for salt, dtype in enumerate(WHOLE):
        for dim in (0, 1):
            yield _sum(context, dtype, dim, size, salt)
    values = odd(context, (size // 2 + 8, size), 4095, 10).abs()  # so that no sum is zero
    yield exactly(context, "running sum", values.float(), values.cumsum(1), lambda given: given.cumsum(1))
    yield exactly(context, "running sum of int64", values << 40, values.cumsum(1) << 40, lambda given: given.cumsum(1))
    yield from _extremes(context, size)
    yield _mean(context, size)


def _sum(context: Context, dtype: str, dim: int, size: int, salt: int) -> Case:
    largest, most = WHOLE[dtype]
    count = min(size, most)
    shape = (count, size // 2 + 8) if dim == 0 else (size // 2 + 8, count)
    values = odd(context, shape, largest, salt)
    given = values.to(getattr(context.torch, DTYPES[dtype]))
    return exactly(context, "sum of %s over axis %d" % (dtype, dim), given, values.sum(dim), lambda one: one.sum(dim))


def _extremes(context: Context, size: int) -> Iterator[Case]:
    """Each row holds the same numbers, in an order of its own."""
    torch = context.torch
    orders = torch.stack([shuffled(context, size, 20 + row) for row in range(17)])
    values = (orders * 2 - size // 2 * 2 + 1).float()
    most = torch.full((17,), float(values.max()), dtype=torch.float64)
    places = (orders == size - 1).nonzero()[:, 1]
    yield exactly(context, "maximum", values, most, lambda given: given.max(1)[0])
    yield exactly(context, "place of the maximum", values, places, lambda given: given.argmax(1))


def _mean(context: Context, size: int) -> Case:
    torch, ulps = context.torch, ULPS["mean", "fp32"]
    values = odd(context, (size // 2 + 8, size), 4095, 30)

    def judge(result: Any) -> Any:
        return close(torch, result, values.double().mean(1), ulps)

    return Case("mean of fp32", lambda: values.to(context.device, torch.float32).mean(1), judge, ulps)
