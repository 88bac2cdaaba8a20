"""What it costs to start a kernel and to learn of its end, by the driver alone."""

from __future__ import annotations

import time

from .._kernel import Outcome, Spec
from . import Context

KERNELS = (Spec("driver.launch", "empty kernel and back, driver alone", "µs", "1 thread", seconds=10.0),)
_ROUNDS, _ROUNDS_CPU = 2000, 50


def run(context: Context, _: Spec) -> Outcome:
    """Median µs of a launch of an empty kernel with the wait for its end; its spread is half the range of the middle 80
    %, as a share of the median.
    """
    nothing = context.program("launch")
    rounds = _ROUNDS_CPU if context.on_cpu else _ROUNDS
    times = []
    for _warm in range(rounds // 10):
        nothing("nothing", 1, 1)
    for _round in range(rounds):
        began = time.perf_counter()
        nothing("nothing", 1, 1)
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    middle = times[rounds // 2]
    spread = (times[rounds * 9 // 10] - times[rounds // 10]) / 2 / middle
    return Outcome(value=middle, spread=spread, details={"fastest_us": times[0], "p99_us": times[rounds * 99 // 100]})
