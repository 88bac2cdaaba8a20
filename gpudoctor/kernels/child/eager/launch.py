"""What it costs to start a kernel that does next to nothing: the least that every operation of torch takes."""

from __future__ import annotations

from .._kernel import Outcome, Spec
from . import Context, mean_microseconds, median_and_spread
from ._check import exact

KERNELS = (Spec("launch", "kernel launch", "µs", "one value, enqueued", "standard"),)
_CALLS, _ROUNDS = 1000, 7


def run(context: Context, _: Spec) -> Outcome:
    """Time launches that add 1 to one value, and check it; value: µs back to back, with a wait for each as a detail."""
    torch = context.torch
    counter = torch.zeros(1, device=context.device)
    mean_microseconds(context, lambda: counter.add_(1), 100)
    rounds = [mean_microseconds(context, lambda: counter.add_(1), _CALLS) for _ in range(_ROUNDS)]

    def launch_and_wait() -> None:
        """One launch, and the wait for its end."""
        counter.add_(1)
        context.synchronize()

    synchronised = mean_microseconds(context, launch_and_wait, _CALLS)
    verdict = exact(torch, counter, torch.tensor([100.0 + (_ROUNDS + 1) * _CALLS]))
    value, spread = median_and_spread(rounds)
    details = {"synchronised": round(synchronised, 2)}
    return Outcome(value=value, spread=spread, details=details, **verdict.outcome())
