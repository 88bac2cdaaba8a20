"""A histogram by atomic additions: that none is lost where many threads add to one place."""

from __future__ import annotations

from typing import Any, Iterator

from .._kernel import Outcome, Spec
from ..eager._check import Case, exact
from . import Context, Launch, check_and_time

KERNELS = (Spec("triton.atomics", "Triton: atomic histogram", "Gop/s", "32 Mi into 256 bins", seconds=60.0),)
_COUNT, _COUNT_CPU = (32 << 20) + 5, (2 << 10) + 5
_BINS, _BLOCK = 256, 1024


def run(context: Context, _: Spec) -> Outcome:
    """Check every bin against the CPU's count exactly, and time the histogram in Gop/s."""
    count = _COUNT_CPU if context.on_cpu else _COUNT
    context.need(4 * count)
    values = _values(context, count)
    launch = _launch(context, values)
    return check_and_time(context, [_case(context, launch, values)], launch.again(), lambda once: count / once / 1e9)


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """One case over `size` random numbers."""
    values = _values(context, size)
    yield _case(context, _launch(context, values), values)


def _values(context: Context, count: int) -> Any:
    """`count` random integers from 0 to 255, on the CPU."""
    return context.torch.randint(0, _BINS, (count,), generator=context.generator(1))


def _launch(context: Context, values: Any) -> Launch:
    """The histogram kernel on these values."""
    torch, count = context.torch, len(values)
    on_device = values.to(context.device, torch.int32)
    kernel = context.kernels.histogram[(-(-count // _BLOCK),)]
    return Launch(
        lambda: torch.zeros(_BINS, device=context.device, dtype=torch.int32),
        lambda bins: kernel(on_device, bins, count, BLOCK=_BLOCK),
    )


def _case(context: Context, launch: Launch, values: Any) -> Case:
    """The launch's counts against torch's bincount on the CPU."""
    reference = context.torch.bincount(values, minlength=_BINS)
    return Case("histogram", launch.once, lambda result: exact(context.torch, result, reference))
