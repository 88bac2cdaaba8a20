"""What memory costs: from torch's cache, from the driver, and whether the driver gets it back."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict

from .._kernel import Outcome, Spec
from ._rung import Context, median_and_spread

KERNELS = (Spec("allocator", "allocation", "µs", "64 MiB from torch's cache"),)
_SIZE, _SIZE_CPU = 64 << 20, 1 << 20
_CACHED, _FRESH, _ROUNDS = 500, 5, 5


def run(context: Context, _: Spec) -> Outcome:
    """The value is an allocation that torch's cache serves; one that goes to the driver and back is a detail."""
    size = _SIZE_CPU if context.on_cpu else _SIZE
    context.need(2 * size)
    torch = context.torch

    def take() -> None:
        torch.empty(size, dtype=torch.uint8, device=context.device)

    def take_anew() -> None:
        take()
        if not context.on_cpu:
            torch.cuda.empty_cache()

    before = _reserved(context)
    take()
    value, spread = median_and_spread([_microseconds(take, _CACHED) for _ in range(_ROUNDS)])
    take_anew()
    fresh = min(_microseconds(take_anew, _FRESH) for _ in range(_ROUNDS))
    details: Dict[str, Any] = {"fresh_us": round(fresh, 1)}
    if not context.on_cpu:
        details["kept_mib"] = max(0, _reserved(context) - before) >> 20
    return Outcome(value=value, spread=spread, details=details)


def _reserved(context: Context) -> int:
    """Bytes that torch holds of the device, in use or cached."""
    if context.on_cpu:
        return 0
    context.torch.cuda.empty_cache()
    return int(context.torch.cuda.memory_reserved(context.device))


def _microseconds(work: Callable[[], None], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - began) / calls * 1e6
