"""What it costs to start a kernel that does next to nothing: the least that every operation of torch takes."""

from __future__ import annotations

import time
from typing import Any, Callable

from .._kernel import Outcome, Spec
from ._check import exact
from ._rung import Context, median_and_spread

KERNELS = (Spec("launch", "kernel launch", "µs", "one value, enqueued", "standard"),)
_CALLS, _ROUNDS = 1000, 7


def run(context: Context, _: Spec) -> Outcome:
    """Add 1 to one value, many times: enqueued one after the other, then each waited for. The value is the count."""
    torch = context.torch
    one = torch.zeros(1, device=context.device)
    _microseconds(context, lambda: one.add_(1), 100)
    rounds = [_microseconds(context, lambda: one.add_(1), _CALLS) for _ in range(_ROUNDS)]

    def waited() -> None:
        one.add_(1)
        context.synchronize()

    synchronised = _microseconds(context, waited, _CALLS)
    judged = exact(torch, one, torch.tensor([100.0 + (_ROUNDS + 1) * _CALLS]))
    value, spread = median_and_spread(rounds)
    details = {"synchronised": round(synchronised, 2)}
    return Outcome(value=value, spread=spread, details=details, **judged.outcome())


def _microseconds(context: Context, work: Callable[[], Any], calls: int) -> float:
    """Of one call by the host's clock, until the device has done all of them."""
    context.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        work()
    context.synchronize()
    return (time.perf_counter() - began) / calls * 1e6
