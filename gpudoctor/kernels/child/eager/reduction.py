"""Sums, running sums, means and extremes over shapes that no tile divides."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from . import Context
from ._check import DTYPES, ULPS, Case, close, exactly, random_odd, random_order, run_cases

KERNELS = (Spec("reduction", "reductions", "", "2047 × 1031", "deep", 30.0),)
_SIZE, _SIZE_CPU = 2047, 61

WHOLE = {"fp64": ((1 << 20) - 1, (1 << 20) - 1), "fp32": (4095, 4095), "fp16": (7, 289), "bf16": (3, 85)}
"""By type, the largest number that is added and the most of them: an odd number of odd ones, whose sum it holds."""


def run(context: Context, spec: Spec) -> Outcome:
    """Check sums, running sums and extremes exactly, and means against float64."""
    return Outcome(**run_cases(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """All reductions over about `size` values at a time."""
    size = size // 2 * 2 + 1
    for salt, dtype in enumerate(WHOLE):
        for dim in (0, 1):
            yield _sum_case(context, dtype, dim, size, salt)
    values = random_odd(context, (size // 2 + 8, size), 4095, 10).abs()  # so that no sum is zero
    yield exactly(context, "running sum", values.float(), values.cumsum(1), lambda given: given.cumsum(1))
    yield exactly(context, "running sum of int64", values << 40, values.cumsum(1) << 40, lambda given: given.cumsum(1))
    yield from _extreme_cases(context, size)
    yield _mean_case(context, size)


def _sum_case(context: Context, dtype: str, dim: int, size: int, salt: int) -> Case:
    """The sum over one axis in that type, of whole numbers whose sum it holds exactly."""
    largest, most = WHOLE[dtype]
    count = min(size, most)
    shape = (count, size // 2 + 8) if dim == 0 else (size // 2 + 8, count)
    values = random_odd(context, shape, largest, salt)
    given = values.to(getattr(context.torch, DTYPES[dtype]))
    return exactly(context, "sum of %s over axis %d" % (dtype, dim), given, values.sum(dim), lambda one: one.sum(dim))


def _extreme_cases(context: Context, size: int) -> Iterator[Case]:
    """Maximum and its place in rows that hold the same numbers, each in its own order."""
    torch = context.torch
    orders = torch.stack([random_order(context, size, 20 + row) for row in range(17)])
    values = (orders * 2 - size // 2 * 2 + 1).float()
    most = torch.full((17,), float(values.max()), dtype=torch.float64)
    places = (orders == size - 1).nonzero()[:, 1]
    yield exactly(context, "maximum", values, most, lambda given: given.max(1)[0])
    yield exactly(context, "place of the maximum", values, places, lambda given: given.argmax(1))


def _mean_case(context: Context, size: int) -> Case:
    """The mean in fp32 of the rows, to within a few units in the last place."""
    torch, ulps = context.torch, ULPS["mean", "fp32"]
    values = random_odd(context, (size // 2 + 8, size), 4095, 30)

    def judge(result: Any) -> Any:
        """Compare with the mean in float64."""
        return close(torch, result, values.double().mean(1), ulps)

    return Case("mean of fp32", lambda: values.to(context.device, torch.float32).mean(1), judge, ulps)
