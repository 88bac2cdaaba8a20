"""Collective operations: what each rank gives, what it must get, how they are checked and timed, and their bandwidth.

Rank r of n gives ``base * (r + 1)``. `base_values` gives whole numbers from 0 to 31 without a period, so that a value
that is lost, doubled or out of place shows, and every sum is exact in fp32 in whatever order. Bus bandwidth is
nccl-tests' (doc/PERFORMANCE.md, read 2026-11): the algorithm's times a factor, comparable to the links' own.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..eager._check import exact


class Buffers(NamedTuple):
    """One rank's tensors of an operation and the `call` that runs it; `expected` alone is on the CPU."""

    call: Callable[[], Any]
    given: Any
    got: Any
    expected: Any


class Group(NamedTuple):
    """A process group, seen from one of its ranks: torch, torch.distributed, rank, number of ranks, device."""

    torch: Any
    dist: Any
    rank: int
    ranks: int
    device: Any


class Operation(NamedTuple):
    """A collective operation; `factor` gives bus bandwidth over algorithm bandwidth for a number of ranks."""

    title: str
    factor: Callable[[int], float]
    buffers: Callable[[Group, Any], Buffers]
    least: int = 2
    """Ranks that it needs."""


def base_values(torch: Any, count: int) -> Any:
    """`count` whole numbers from 0 to 31 as fp32 on the CPU, by a multiplicative hash of their positions."""
    mixed = torch.arange(count, dtype=torch.int32) * -1640531527  # 2**32 over the golden ratio; wraps around
    return (mixed >> 27 & 31).float()


def _all_reduce(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of an all-reduce (sum) in place."""
    given = _contribution(group, numbers)
    return Buffers(lambda: group.dist.all_reduce(given), given, given, numbers * _sum_of_factors(group))


def _all_gather(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of an all-gather: every rank gives an equal part."""
    share = numbers[: len(numbers) // group.ranks]
    given, out = _contribution(group, share), _filled(group, len(numbers))
    expected = group.torch.cat([share * (rank + 1) for rank in range(group.ranks)])
    gather = _torch_function(group.dist, "all_gather_into_tensor", "_all_gather_base")
    return Buffers(lambda: gather(out, given), given, out, expected)


def _reduce_scatter(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of a reduce-scatter (sum): every rank gets its own part."""
    given, share = _contribution(group, numbers), numbers.chunk(group.ranks)[group.rank]
    out = _filled(group, len(share))
    expected = share * _sum_of_factors(group)
    scatter = _torch_function(group.dist, "reduce_scatter_tensor", "_reduce_scatter_base")
    return Buffers(lambda: scatter(out, given), given, out, expected)


def _broadcast(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of a broadcast from the last rank, in place."""
    given, root = _contribution(group, numbers), group.ranks - 1
    return Buffers(lambda: group.dist.broadcast(given, root), given, given, numbers * (root + 1))


def _all_to_all(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of an all-to-all with equal parts."""
    given, out = _contribution(group, numbers), _filled(group, len(numbers))
    share = numbers.chunk(group.ranks)[group.rank]
    expected = group.torch.cat([share * (rank + 1) for rank in range(group.ranks)])
    return Buffers(lambda: group.dist.all_to_all_single(out, given), given, out, expected)


def _send_receive(group: Group, numbers: Any) -> Buffers:
    """Call, input, output and expected output of a ring step: send to the next rank, receive from the one before."""
    given, out = _contribution(group, numbers), _filled(group, len(numbers))
    before, behind = ((group.rank + step) % group.ranks for step in (-1, 1))

    def call() -> None:
        """Start both transfers and wait for them."""
        dist = group.dist
        both = [dist.P2POp(dist.isend, given, behind), dist.P2POp(dist.irecv, out, before)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return Buffers(call, given, out, numbers * (before + 1))


def _torch_function(dist: Any, name: str, before: str) -> Any:
    """torch.distributed's function `name`, or the older name `before` that torch before 1.13 had."""
    return getattr(dist, name, None) or getattr(dist, before)


def _contribution(group: Group, numbers: Any) -> Any:
    """This rank's input on its device: the base values times (rank + 1)."""
    return (numbers * (group.rank + 1)).to(group.device)


def _filled(group: Group, count: int) -> Any:
    """A tensor of `count` values -1.0 on the device, for results."""
    return group.torch.full((count,), -1.0, device=group.device)


def _sum_of_factors(group: Group) -> int:
    """1 + 2 + ... + n: the factor by which a sum over all ranks exceeds the base values."""
    return group.ranks * (group.ranks + 1) // 2


def _others_share(count: int) -> float:
    """(n - 1) / n: the share of the data that comes from other ranks."""
    return (count - 1) / count


OPERATIONS: Dict[str, Operation] = {
    "all_reduce": Operation("all-reduce", lambda count: 2 * _others_share(count), _all_reduce, 1),
    "all_gather": Operation("all-gather", _others_share, _all_gather),
    "reduce_scatter": Operation("reduce-scatter", _others_share, _reduce_scatter),
    "broadcast": Operation("broadcast", lambda _: 1.0, _broadcast),
    "all_to_all": Operation("all-to-all", _others_share, _all_to_all),
    "send_receive": Operation("send and receive", lambda _: 1.0, _send_receive),
}


def bandwidths(name: str, ranks: int, size: int, seconds: List[float]) -> Dict[str, float]:
    """``algbw`` and ``busbw`` in GB/s of an operation over `size` bytes; `seconds` by rank, the slowest counts."""
    algorithm = size / max(seconds) / 1e9
    return {"algbw": algorithm, "busbw": algorithm * OPERATIONS[name].factor(ranks)}


# ---- One operation at one size among the ranks of a group: checked, then timed ----


_SLICE_VALUES = 1 << 22
"""Values that are compared at a time."""
ALIGNED_VALUES = 32
"""Values of each rank's share come in multiples of that many: NCCL is slow where 128 bytes are not aligned. So many
for each rank are needed beside those of the size."""
_TIMED_CALLS = 8
_TIMED_SECONDS = 0.4
"""Seconds that the timed calls together should not exceed."""


def measure(group: Group, name: str, size: int, numbers: Any) -> Dict[str, Any]:
    """Check and time one operation over `size` bytes, rounded up: ``size``, ``seconds``, ``alone``, ``differ``, ...

    ``seconds`` is the mean of several calls without a pause, as nccl-tests reckons it; ``alone`` that of one call that
    all ranks begin together, in which ranks differ where links do. ``differ`` of ``compared`` values are wrong, the
    first at ``first`` (None if none is).
    """
    each = ALIGNED_VALUES * group.ranks
    count = -(-size // 4 // each) * each
    buffers = OPERATIONS[name].buffers(group, numbers[:count])
    buffers.call()
    differ, first = _compare(group.torch, buffers.got, buffers.expected)
    buffers.given.zero_()  # sums of zeros stay zeros, however often they are summed
    max_over_ranks(group, 0.0)
    alone = _seconds_per_call(group, buffers.call, 1)
    calls = max(1, min(_TIMED_CALLS, int(_TIMED_SECONDS / max(1e-9, max_over_ranks(group, alone)))))
    seconds = _seconds_per_call(group, buffers.call, calls)
    timing = {"size": 4 * count, "seconds": seconds, "alone": alone}
    return dict(timing, differ=differ, compared=len(buffers.expected), first=first)


def is_missing(error: BaseException) -> bool:
    """True if the error says that torch's back end (NCCL, Gloo) has no such operation, as some older ones."""
    return bool(_MISSING.search(str(error)))


_MISSING = re.compile(r"no support for|not (?:yet )?support |only supports")


def max_over_ranks(group: Group, number: float) -> float:
    """The largest number that any rank gives; also a barrier: returns once all ranks have called it."""
    box = group.torch.full((1,), number, dtype=group.torch.float32, device=group.device)
    group.dist.all_reduce(box, op=group.dist.ReduceOp.MAX)
    return float(box.item())


def _seconds_per_call(group: Group, call: Any, times: int) -> float:
    """Mean seconds of `times` calls, including the wait for the GPU to finish them all."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    if group.device.type == "cuda":
        group.torch.cuda.synchronize(group.device)
    return (time.perf_counter() - began) / times


def _compare(torch: Any, got: Any, expected: Any) -> Tuple[int, Any]:
    """How many values of `got` are not those expected, and the index of the first (None if all are right)."""
    differ, first = 0, None
    for at in range(0, len(expected), _SLICE_VALUES):
        judged = exact(torch, got[at : at + _SLICE_VALUES], expected[at : at + _SLICE_VALUES])
        if judged.differ and first is None:
            first = at + judged.first[0]
        differ += judged.differ
    return differ, first
