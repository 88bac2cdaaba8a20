"""A masked element-wise kernel: that Triton compiles, launches, and writes where it should and nowhere else."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from ..eager._check import Case, exact, random_odd
from . import Context, Launch, check_and_time

KERNELS = (Spec("triton.add", "Triton: element-wise, masked", "GB/s", "3 × 128 MiB", seconds=60.0),)
_COUNT, _COUNT_CPU = (32 << 20) + 3, (4 << 10) + 3
_BLOCK = 1024
_FACTOR = 3
_LARGEST = (1 << 20) - 1
"""Of the inputs: 3 of them and one more stay below 2**24, where fp32 is exact."""


def run(context: Context, _: Spec) -> Outcome:
    """Check and time ``3 x + y`` in GB/s; the margin behind the output must stay unchanged."""
    count = _COUNT_CPU if context.on_cpu else _COUNT
    context.need(5 * 4 * count)
    numbers = [random_odd(context, (count,), _LARGEST, salt) for salt in (1, 2)]
    launch = _launch(context, *numbers)
    return check_and_time(
        context, [_case(context, launch, *numbers)], launch.again(), lambda once: 3 * 4 * count / once / 1e9
    )


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """One case over `size` random odd values."""
    numbers = [random_odd(context, (size,), _LARGEST, salt) for salt in (1, 2)]
    yield _case(context, _launch(context, *numbers), *numbers)


def _launch(context: Context, x: Any, y: Any) -> Launch:
    """The masked kernel on x and y, with an output that has a margin of one block."""
    torch, count = context.torch, len(x)
    a, b = (numbers.to(context.device, torch.float32) for numbers in (x, y))
    kernel = context.kernels.add[(-(-count // _BLOCK),)]
    return Launch(
        lambda: torch.full((count + _BLOCK,), -2.0, device=context.device),
        lambda out: kernel(a, b, out, count, float(_FACTOR), BLOCK=_BLOCK),
    )


def _case(context: Context, launch: Launch, x: Any, y: Any) -> Case:
    """The launch's output against the exact sum and the unchanged margin."""
    torch = context.torch
    reference = torch.cat([_FACTOR * x + y, torch.full((_BLOCK,), -2)])
    return Case("3 x + y", launch.once, lambda result: exact(torch, result, reference))
