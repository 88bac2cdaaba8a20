"""A Triton kernel with its inputs: how it is launched, checked and timed."""

from __future__ import annotations

import time
from typing import Any, Callable, List, NamedTuple

from .._kernel import CannotRun, Outcome
from ..eager._case import Case, checked
from ..eager._rung import median_and_spread
from . import _causes
from ._rung import Context


class Launch(NamedTuple):
    """`into` has the kernel write to what `blank` gives: new memory, full of what must not stay there."""

    blank: Callable[[], Any]
    into: Callable[[Any], Any]

    def once(self) -> Any:
        """What it writes into new memory."""
        out = self.blank()
        self.into(out)
        return out

    def again(self) -> Callable[[], None]:
        """What launches it on the same memory each time."""
        out = self.blank()
        return lambda: self.into(out)


def measured(context: Context, cases: List[Case], work: Callable[[], Any], value: Callable[[float], float]) -> Outcome:
    """Check the cases and time `work`, which was not compiled yet; `value` follows from the seconds of one call."""
    began = time.perf_counter()
    try:
        work()
        context.synchronize()
    except CannotRun:
        raise
    except Exception as error:
        raise _causes.told(error, context.on_cpu) from error
    first = time.perf_counter() - began
    said = checked(context, cases)
    said["details"]["first_call_s"] = round(first, 3)
    once, spread = median_and_spread(context.seconds(work))
    return Outcome(value=value(once), spread=spread, **said)
