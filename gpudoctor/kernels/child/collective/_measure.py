"""One operation at one size among the ranks of a group: checked, then timed."""

from __future__ import annotations

import time
from typing import Any, Dict, Tuple

from ..eager._check import exact
from ._operations import OPERATIONS, Group

_SLICE = 1 << 22
"""Values that are compared at a time."""
EVEN = 32
"""Values of each rank's share come in multiples of that many: NCCL is slow where 128 bytes are not aligned. So many
for each rank are needed beside those of the size."""
_CALLS = 8
_LONG = 0.4
"""Seconds that the timed calls together should not exceed."""


def measured(group: Group, name: str, size: int, numbers: Any) -> Dict[str, Any]:
    """Of `size` bytes of `numbers`, or a little more: whether each value is right, and how long a call takes.

    ``seconds`` is one call's of several without a pause, as nccl-tests reckons it; ``alone`` that of one call which
    all began together, in which ranks differ where links do.
    """
    each = EVEN * group.ranks
    count = -(-size // 4 // each) * each
    buffers = OPERATIONS[name].buffers(group, numbers[:count])
    buffers.call()
    differ, first = _compare(group.torch, buffers.got, buffers.expected)
    buffers.given.zero_()  # sums of zeros stay zeros, however often they are summed
    largest(group, 0.0)
    alone = _timed(group, buffers.call, 1)
    calls = max(1, min(_CALLS, int(_LONG / max(1e-9, largest(group, alone)))))
    seconds = _timed(group, buffers.call, calls)
    found = {"size": 4 * count, "seconds": seconds, "alone": alone}
    return dict(found, differ=differ, compared=len(buffers.expected), first=first)


def largest(group: Group, number: float) -> float:
    """The largest of what the ranks give; none goes on before all are here."""
    box = group.torch.full((1,), number, dtype=group.torch.float32, device=group.device)
    group.dist.all_reduce(box, op=group.dist.ReduceOp.MAX)
    return float(box.item())


def _timed(group: Group, call: Any, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    if group.device.type == "cuda":
        group.torch.cuda.synchronize(group.device)
    return (time.perf_counter() - began) / times


def _compare(torch: Any, got: Any, expected: Any) -> Tuple[int, Any]:
    """How many values are wrong, and where the first is."""
    differ, first = 0, None
    for at in range(0, len(expected), _SLICE):
        judged = exact(torch, got[at : at + _SLICE], expected[at : at + _SLICE])
        if judged.differ and first is None:
            first = at + judged.first[0]
        differ += judged.differ
    return differ, first
