"""Sorting, the largest k, and the order itself, stable among equals."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from . import Context
from ._check import Case, exactly, random_order, run_cases

KERNELS = (Spec("sort", "sorting", "", "2^20 values of 4 types", "deep", 30.0),)
_SIZE, _SIZE_CPU = (1 << 20) - 1, 1001
_TIED = 1 << 16


def run(context: Context, spec: Spec) -> Outcome:
    """Check sorting: shuffled values must come back in their original ascending order, exactly."""
    return Outcome(**run_cases(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Sort in four types, topk and its places, and a stable argsort, over `size` values."""
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
    """A stable argsort of values that occur about seven times each, against Python's sort."""
    torch = context.torch
    values = torch.randint(max(1, size // 7), (size,), generator=context.generator(10))
    numbers = values.tolist()
    reference = torch.tensor(sorted(range(size), key=numbers.__getitem__))
    return exactly(context, "stable argsort", values, reference, lambda values: torch.sort(values, stable=True)[1])
