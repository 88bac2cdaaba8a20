"""Sums and softmax of rows: that the threads of a block find each other's values."""

from __future__ import annotations

from typing import Any, Iterator, List

from .._kernel import Outcome, Spec
from ..eager._check import Case, close, exact, random_odd
from . import Context, Launch, check_and_time

KERNELS = (Spec("triton.reduction", "Triton: row sums and softmax", "GB/s", "2 × 125 MiB", seconds=60.0),)
_ROWS, _ROWS_CPU = 32 << 10, 12
_COLUMNS, _BLOCK = 999, 1024
_ULPS = 32
"""Bound of softmax: exp2, its argument, the sum and the division err by about 12 units of the last place at worst."""


def run(context: Context, _: Spec) -> Outcome:
    """Check and time a Triton kernel for softmax (within units in the last place) and row sums (exact); GB/s."""
    rows = _ROWS_CPU if context.on_cpu else _ROWS
    context.need(5 * 4 * rows * _COLUMNS)
    values = random_odd(context, (rows, _COLUMNS), 3, 1)
    launch = _launch(context, values)
    value = 2 * 4 * rows * _COLUMNS / 1e9
    return check_and_time(context, _cases(context, launch, values), launch.again(), lambda once: value / once)


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Yield two cases: softmax and row sums of `size` rows by one Triton kernel."""
    values = random_odd(context, (size, _COLUMNS), 3, 1)
    yield from _cases(context, _launch(context, values), values)


def _launch(context: Context, values: Any) -> Launch:
    """The kernel on these rows, ready to launch; its output is a pair: softmax and row sums."""
    torch, x = context.torch, values.to(context.device, context.torch.float32)
    kernel = context.kernels.softmax[(len(x),)]
    return Launch(
        lambda: (torch.full_like(x, -1.0), torch.full((len(x),), 0.5, device=context.device)),
        lambda out: kernel(x, out[0], out[1], _COLUMNS, BLOCK=_BLOCK),
    )


def _cases(context: Context, launch: Launch, values: Any) -> List[Case]:
    """Two cases: the launch's softmax within `_ULPS` of float64, and its row sums exact."""
    torch = context.torch
    shares, sums = values.double().softmax(1), values.sum(1)
    return [
        Case("softmax", lambda: launch.once()[0], lambda got: close(torch, got, shares, _ULPS), _ULPS),
        Case("row sums", lambda: launch.once()[1], lambda got: exact(torch, got, sums)),
    ]
