"""Additions, element by element and atomic: that Triton compiles, launches, writes where it should, loses nothing."""

from __future__ import annotations

from typing import Iterator, Tuple

from .._kernel import Outcome, Spec
from ..eager._check import Case, exact, random_odd
from . import Context, Launch, check_and_time

KERNELS = (
    Spec("triton.add", "Triton: element-wise, masked", "GB/s", "3 × 128 MiB", seconds=60.0),
    Spec("triton.atomics", "Triton: atomic histogram", "Gop/s", "32 Mi into 256 bins", seconds=60.0),
)
_COUNT = {"triton.add": ((32 << 20) + 3, (4 << 10) + 3), "triton.atomics": ((32 << 20) + 5, (2 << 10) + 5)}
"""Values on a GPU, and on a CPU."""
_BINS, _BLOCK = 256, 1024
_FACTOR = 3
_LARGEST = (1 << 20) - 1
"""Of what is added: 3 of them and one more stay below 2**24, where fp32 is exact."""


def run(context: Context, spec: Spec) -> Outcome:
    """Check and time ``3 x + y`` by Triton in GB/s, or for ``triton.atomics`` a histogram in Gop/s."""
    count = _COUNT[spec.id][context.on_cpu]
    element_wise = spec.id == "triton.add"
    context.need((5 if element_wise else 1) * 4 * count)
    launch, case = _launch_and_case(context, spec.id, count)
    amount = (3 * 4 if element_wise else 1) * count / 1e9
    return check_and_time(context, [case], launch.again(), lambda once: amount / once)


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield one case: that kernel (``triton.add``, ``triton.atomics``) over `size` random numbers, exact."""
    yield _launch_and_case(context, name, size)[1]


def _launch_and_case(context: Context, name: str, count: int) -> Tuple[Launch, Case]:
    """That kernel on `count` random numbers, ready to launch, and the case that checks it."""
    return _add(context, count) if name == "triton.add" else _histogram(context, count)


def _add(context: Context, count: int) -> Tuple[Launch, Case]:
    """``3 x + y`` of odd numbers, against the exact sum; the margin of one block behind it must stay unchanged."""
    torch = context.torch
    x, y = (random_odd(context, (count,), _LARGEST, salt) for salt in (1, 2))
    a, b = (numbers.to(context.device, torch.float32) for numbers in (x, y))
    kernel = context.kernels.add[(-(-count // _BLOCK),)]
    launch = Launch(
        lambda: torch.full((count + _BLOCK,), -2.0, device=context.device),
        lambda out: kernel(a, b, out, count, float(_FACTOR), BLOCK=_BLOCK),
    )
    reference = torch.cat([_FACTOR * x + y, torch.full((_BLOCK,), -2)])
    return launch, Case("3 x + y", launch.once, lambda result: exact(torch, result, reference))


def _histogram(context: Context, count: int) -> Tuple[Launch, Case]:
    """Integers from 0 to 255 counted by atomic additions, where many threads add to one place; against bincount."""
    torch = context.torch
    values = torch.randint(0, _BINS, (count,), generator=context.generator(1))
    on_device = values.to(context.device, torch.int32)
    kernel = context.kernels.histogram[(-(-count // _BLOCK),)]
    launch = Launch(
        lambda: torch.zeros(_BINS, device=context.device, dtype=torch.int32),
        lambda bins: kernel(on_device, bins, count, BLOCK=_BLOCK),
    )
    reference = torch.bincount(values, minlength=_BINS)
    return launch, Case("histogram", launch.once, lambda result: exact(torch, result, reference))
