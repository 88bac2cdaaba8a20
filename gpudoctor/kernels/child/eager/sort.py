"""Sorting, the largest k, and the order itself, stable among equals."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from ._case import Case, checked, exactly
from ._numbers import shuffled
from ._rung import Context

KERNELS = (Spec("sort", "sorting", "", "2^20 values of 4 types", "deep", 30.0),)
_SIZE, _SIZE_CPU = (1 << 20) - 1, 1001
_TIED = 1 << 16


def run(context: Context, spec: Spec) -> Outcome:
    """What was shuffled must be in order again, to the bit: the order was there first."""
    return Outcome(**checked(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """`size` values each."""
    torch = context.torch
    for salt, dtype in enumerate(("float32", "float16", "int32", "int64")):
        ordered = _ordered(context, size, dtype)
        mixed = ordered[shuffled(context, size, salt)]
        yield exactly(context, "sort of " + dtype, mixed, ordered, lambda values: torch.sort(values)[0])
    most = min(100, size)
    ordered = _ordered(context, size, "float32")
    order = shuffled(context, size, 9)
    largest = order.argsort().flip(0)[:most]
    yield exactly(context, "topk", ordered[order], ordered.flip(0)[:most], lambda values: torch.topk(values, most)[0])
    yield exactly(context, "places of topk", ordered[order], largest, lambda values: torch.topk(values, most)[1])
    yield _stable(context, min(size, _TIED))


def _ordered(context: Context, size: int, dtype: str) -> Any:
    """Rising, and no float is 0; all different but for fp16, which has no more than 63,488 finite numbers."""
    torch = context.torch
    values = torch.arange(size, dtype=torch.float64) * 2 - size // 2 * 2 + 1
    if dtype == "float16":
        values = (values / size * 1000).to(torch.float16).double()
        values = torch.where(values == 0, torch.ones_like(values) * 2**-20, values).sort()[0]
    if dtype == "int64":
        return values.to(torch.int64) * 0x12345678F
    return values.to(getattr(torch, dtype))


def _stable(context: Context, size: int) -> Case:
    """Each value about seven times; Python's own sorting is stable, and no part of torch."""
    torch = context.torch
    values = torch.randint(max(1, size // 7), (size,), generator=context.generator(10))
    said = values.tolist()
    reference = torch.tensor(sorted(range(size), key=said.__getitem__))
    return exactly(context, "stable argsort", values, reference, lambda values: torch.sort(values, stable=True)[1])
