"""Sums, running sums, means and extremes over shapes that no tile divides; sorting, and a stable order among equals."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Spec
from . import Context
from ._check import DTYPES, ULPS, Case, checked, close, exactly, random_odd, random_order

KERNELS = (
    Spec("reduction", "reductions", "", "2047 × 1031", "deep", 30.0),
    Spec("sort", "sorting", "", "2^20 values of 4 types", "deep", 30.0),
)
_TIED = 1 << 16

WHOLE = {"fp64": ((1 << 20) - 1, (1 << 20) - 1), "fp32": (4095, 4095), "fp16": (7, 289), "bf16": (3, 85)}
"""By type, the largest number that is added and the most of them: an odd number of odd ones, whose sum it holds."""


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield the cases of the kernel ``reduction`` or ``sort`` over about `size` values each; all exact but means."""
    return _reduction_cases(context, size) if name == "reduction" else _sort_cases(context, size)


run = checked(cases, reduction=(2047, 61), sort=((1 << 20) - 1, 1001))


def _reduction_cases(context: Context, size: int) -> Iterator[Case]:
    """Yield the cases of sums, running sums, maxima and means over about `size` values at a time."""
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
    """A case: the sum over one axis in that type, of whole numbers whose sum it holds exactly."""
    largest, most = WHOLE[dtype]
    count = min(size, most)
    shape = (count, size // 2 + 8) if dim == 0 else (size // 2 + 8, count)
    values = random_odd(context, shape, largest, salt)
    given = values.to(getattr(context.torch, DTYPES[dtype]))
    return exactly(context, "sum of %s over axis %d" % (dtype, dim), given, values.sum(dim), lambda one: one.sum(dim))


def _extreme_cases(context: Context, size: int) -> Iterator[Case]:
    """Yield two cases: maximum and its place, in 17 rows of the same numbers, each in its own order."""
    torch = context.torch
    orders = torch.stack([random_order(context, size, 20 + row) for row in range(17)])
    values = (orders * 2 - size // 2 * 2 + 1).float()
    most = torch.full((17,), float(values.max()), dtype=torch.float64)
    places = (orders == size - 1).nonzero()[:, 1]
    yield exactly(context, "maximum", values, most, lambda given: given.max(1)[0])
    yield exactly(context, "place of the maximum", values, places, lambda given: given.argmax(1))


def _mean_case(context: Context, size: int) -> Case:
    """A case: the mean in fp32 of each row, to within a few units in the last place."""
    torch, ulps = context.torch, ULPS["mean", "fp32"]
    values = random_odd(context, (size // 2 + 8, size), 4095, 30)

    def judge(result: Any) -> Any:
        """Compare with the mean in float64."""
        return close(torch, result, values.double().mean(1), ulps)

    return Case("mean of fp32", lambda: values.to(context.device, torch.float32).mean(1), judge, ulps)


def _sort_cases(context: Context, size: int) -> Iterator[Case]:
    """Yield the cases of sort in four types, topk and its places over `size` values, and a stable argsort."""
    torch = context.torch
    for salt, dtype in enumerate(("float32", "float16", "int32", "int64")):
        ordered = _ascending(context, size, dtype)
        mixed = ordered[random_order(context, size, salt)]
        yield exactly(context, "sort of " + dtype, mixed, ordered, lambda values: torch.sort(values)[0])
    count = min(100, size)
    ordered = _ascending(context, size, "float32")
    order = random_order(context, size, 9)
    largest = order.argsort().flip(0)[:count]
    yield exactly(context, "topk", ordered[order], ordered.flip(0)[:count], lambda values: torch.topk(values, count)[0])
    yield exactly(context, "places of topk", ordered[order], largest, lambda values: torch.topk(values, count)[1])
    yield _stable_case(context, min(size, _TIED))


def _ascending(context: Context, size: int, dtype: str) -> Any:
    """`size` ascending values without a zero among floats; all different except in float16."""
    torch = context.torch
    values = torch.arange(size, dtype=torch.float64) * 2 - size // 2 * 2 + 1
    if dtype == "float16":
        values = (values / size * 1000).to(torch.float16).double()
        values = torch.where(values == 0, torch.ones_like(values) * 2**-20, values).sort()[0]
    if dtype == "int64":
        return values.to(torch.int64) * 0x12345678F
    return values.to(getattr(torch, dtype))


def _stable_case(context: Context, size: int) -> Case:
    """A case: a stable argsort of values that occur about seven times each must be that of Python."""
    torch = context.torch
    values = torch.randint(max(1, size // 7), (size,), generator=context.generator(10))
    numbers = values.tolist()
    reference = torch.tensor(sorted(range(size), key=numbers.__getitem__))
    return exactly(context, "stable argsort", values, reference, lambda values: torch.sort(values, stable=True)[1])
