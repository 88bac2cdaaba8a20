"""A histogram by atomic additions: that none is lost where many threads add to one place."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from ..eager._case import Case
from ..eager._check import exact
from ._launch import Launch, measured
from ._rung import Context

KERNELS = (Spec("triton.atomics", "Triton: atomic histogram", "Gop/s", "32 Mi into 256 bins", seconds=60.0),)
_COUNT, _COUNT_CPU = (32 << 20) + 5, (2 << 10) + 5
_BINS, _BLOCK = 256, 1024


def run(context: Context, _: Spec) -> Outcome:
    """Every bin against the count that the CPU makes; whole numbers, thus exact in whatever order."""
    count = _COUNT_CPU if context.on_cpu else _COUNT
    context.need(4 * count)
    values = _values(context, count)
    launch = _launch(context, values)
    return measured(context, [_case(context, launch, values)], launch.again(), lambda once: count / once / 1e9)


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """So many numbers to be counted."""
    values = _values(context, size)
    yield _case(context, _launch(context, values), values)


def _values(context: Context, count: int) -> Any:
    return context.torch.randint(0, _BINS, (count,), generator=context.generator(1))


def _launch(context: Context, values: Any) -> Launch:
    torch, count = context.torch, len(values)
    there = values.to(context.device, torch.int32)
    kernel = context.kernels.histogram[(-(-count // _BLOCK),)]
    return Launch(
        lambda: torch.zeros(_BINS, device=context.device, dtype=torch.int32),
        lambda bins: kernel(there, bins, count, BLOCK=_BLOCK),
    )


def _case(context: Context, launch: Launch, values: Any) -> Case:
    reference = context.torch.bincount(values, minlength=_BINS)
    return Case("histogram", launch.once, lambda result: exact(context.torch, result, reference))
