"""Collective operations: what each rank gives, what it must get, and how its bandwidth is reckoned.

Rank r of n gives ``base * (r + 1)``. `base` holds whole numbers from 0 to 31 without a period, so that a value that is
lost, doubled or out of place shows, and every sum is exact in fp32 in whatever order. Bus bandwidth is
nccl-tests' (doc/PERFORMANCE.md, read 2026-11): the algorithm's times a factor, comparable to the links' own.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple


class Buffers(NamedTuple):
    """One rank's part in one operation, on its device; `expected` is on the CPU."""

    call: Callable[[], Any]
    given: Any
    got: Any
    expected: Any


class Group(NamedTuple):
    """What an operation works with."""

    torch: Any
    dist: Any
    rank: int
    ranks: int
    device: Any


class Operation(NamedTuple):
    """``all_reduce``. `factor` is bus bandwidth over algorithm bandwidth among so many ranks."""

    title: str
    factor: Callable[[int], float]
    buffers: Callable[[Group, Any], Buffers]
    least: int = 2
    """Ranks that it needs."""


def base(torch: Any, count: int) -> Any:
    """`count` whole numbers from 0 to 31, as fp32 on the CPU, by a multiplicative hash of their places."""
    mixed = torch.arange(count, dtype=torch.int32) * -1640531527  # 2**32 over the golden ratio; wraps around
    return (mixed >> 27 & 31).float()


def _all_reduce(group: Group, numbers: Any) -> Buffers:
    mine = _mine(group, numbers)
    return Buffers(lambda: group.dist.all_reduce(mine), mine, mine, numbers * _everyone(group))


def _all_gather(group: Group, numbers: Any) -> Buffers:
    part = numbers[: len(numbers) // group.ranks]
    mine, out = _mine(group, part), _empty(group, len(numbers))
    expected = group.torch.cat([part * (rank + 1) for rank in range(group.ranks)])
    gather = _named(group.dist, "all_gather_into_tensor", "_all_gather_base")
    return Buffers(lambda: gather(out, mine), mine, out, expected)


def _reduce_scatter(group: Group, numbers: Any) -> Buffers:
    mine, part = _mine(group, numbers), numbers.chunk(group.ranks)[group.rank]
    out = _empty(group, len(part))
    expected = part * _everyone(group)
    scatter = _named(group.dist, "reduce_scatter_tensor", "_reduce_scatter_base")
    return Buffers(lambda: scatter(out, mine), mine, out, expected)


def _broadcast(group: Group, numbers: Any) -> Buffers:
    mine, root = _mine(group, numbers), group.ranks - 1
    return Buffers(lambda: group.dist.broadcast(mine, root), mine, mine, numbers * (root + 1))


def _all_to_all(group: Group, numbers: Any) -> Buffers:
    mine, out = _mine(group, numbers), _empty(group, len(numbers))
    part = numbers.chunk(group.ranks)[group.rank]
    expected = group.torch.cat([part * (rank + 1) for rank in range(group.ranks)])
    return Buffers(lambda: group.dist.all_to_all_single(out, mine), mine, out, expected)


def _send_receive(group: Group, numbers: Any) -> Buffers:
    """Round the ring: to the next rank, from the one before."""
    mine, out = _mine(group, numbers), _empty(group, len(numbers))
    before, behind = ((group.rank + step) % group.ranks for step in (-1, 1))

    def call() -> None:
        dist = group.dist
        both = [dist.P2POp(dist.isend, mine, behind), dist.P2POp(dist.irecv, out, before)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return Buffers(call, mine, out, numbers * (before + 1))


def _named(dist: Any, name: str, before: str) -> Any:
    """torch's function of that name; before torch 1.13 it had another."""
    return getattr(dist, name, None) or getattr(dist, before)


def _mine(group: Group, numbers: Any) -> Any:
    return (numbers * (group.rank + 1)).to(group.device)


def _empty(group: Group, count: int) -> Any:
    return group.torch.full((count,), -1.0, device=group.device)


def _everyone(group: Group) -> int:
    """1 + 2 + ... + n: what the sum over all ranks is of `base`."""
    return group.ranks * (group.ranks + 1) // 2


def _share(count: int) -> float:
    return (count - 1) / count


OPERATIONS: Dict[str, Operation] = {
    "all_reduce": Operation("all-reduce", lambda count: 2 * _share(count), _all_reduce, 1),
    "all_gather": Operation("all-gather", _share, _all_gather),
    "reduce_scatter": Operation("reduce-scatter", _share, _reduce_scatter),
    "broadcast": Operation("broadcast", lambda _: 1.0, _broadcast),
    "all_to_all": Operation("all-to-all", _share, _all_to_all),
    "send_receive": Operation("send and receive", lambda _: 1.0, _send_receive),
}


def bandwidths(name: str, ranks: int, size: int, seconds: List[float]) -> Dict[str, float]:
    """GB/s of an operation over `size` bytes, from what it took each rank: the slowest counts."""
    algorithm = size / max(seconds) / 1e9
    return {"algbw": algorithm, "busbw": algorithm * OPERATIONS[name].factor(ranks)}
