"""What memory costs: from torch's cache, from the driver, and whether the driver gets it back."""

from __future__ import annotations

from typing import Any, Dict

from .._kernel import Outcome, Spec
from . import Context, mean_microseconds, median_and_spread

KERNELS = (Spec("allocator", "allocation", "µs", "64 MiB from torch's cache"),)
_SIZE, _SIZE_CPU = 64 << 20, 1 << 20
_CACHED, _FRESH, _ROUNDS = 500, 5, 5


def run(context: Context, _: Spec) -> Outcome:
    """Time an allocation of 64 MiB from torch's cache; value: µs. One through the driver and back is a detail."""
    size = _SIZE_CPU if context.on_cpu else _SIZE
    context.need(2 * size)
    torch = context.torch

    def allocate() -> None:
        """Allocate and drop one tensor."""
        torch.empty(size, dtype=torch.uint8, device=context.device)

    def allocate_uncached() -> None:
        """Allocate one tensor, and return the memory to the driver."""
        allocate()
        if not context.on_cpu:
            torch.cuda.empty_cache()

    before = _reserved(context)
    allocate()
    value, spread = median_and_spread([mean_microseconds(context, allocate, _CACHED) for _ in range(_ROUNDS)])
    allocate_uncached()
    fresh = min(mean_microseconds(context, allocate_uncached, _FRESH) for _ in range(_ROUNDS))
    details: Dict[str, Any] = {"fresh_us": round(fresh, 1)}
    if not context.on_cpu:
        details["kept_mib"] = max(0, _reserved(context) - before) >> 20
    return Outcome(value=value, spread=spread, details=details)


def _reserved(context: Context) -> int:
    """Bytes of GPU memory that torch keeps after its cache was emptied; 0 on a CPU."""
    if context.on_cpu:
        return 0
    context.torch.cuda.empty_cache()
    return int(context.torch.cuda.memory_reserved(context.device))
