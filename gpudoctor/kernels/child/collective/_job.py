"""What each rank does: every operation at every size, checked, then timed."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from .._group import everyones, joined
from .._kernel import CannotRun
from .._ranks import Me
from ..eager._check import exact
from ._operations import OPERATIONS, Group, base

_SLICE = 1 << 22
"""Values that are compared at a time."""
_CALLS = 8
_EVEN = 32
"""Values of each rank's share come in multiples of that many: NCCL is slow where 128 bytes are not aligned."""


def rank(me: Me) -> Dict[str, Any]:
    """Notes each operation once it is over; ask: backend, devices, sizes (bytes), operations, seconds (of one wait)."""
    me.step("import torch")
    import torch  # type: ignore[import-not-found,unused-ignore]

    device = torch.device(me.ask["devices"][me.rank])
    if device.type == "cuda":
        me.step("start of %s" % device)
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    sizes = _sizes(torch, me, device)
    group = Group(torch, joined(torch, me, me.ask["backend"], me.ask["seconds"]), me.rank, me.count, device)
    me.step("the first collective")
    _wait_for_all(group)
    numbers = base(torch, sizes[-1] // 4)
    for name in me.ask["operations"]:
        me.note(**{name: [_one(me, group, name, size, numbers) for size in sizes]})
    everyones(torch, me, "done", "")  # none leaves while another one still hears from it
    return {}


def _sizes(torch: Any, me: Me, device: Any) -> List[int]:
    """Those for which each rank's device has room, with as much again for NCCL's own."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30
    least = min(int(one) for one in everyones(torch, me, "free", str(free)))
    sizes = [size for size in me.ask["sizes"] if 8 * size <= least]
    if not sizes:
        raise CannotRun("no memory is free for it: a GPU has %d MiB left" % (least >> 20))
    return sizes


def _one(me: Me, group: Group, name: str, size: int, numbers: Any) -> Dict[str, Any]:
    """One operation over `size` bytes: whether each value is right, and seconds of one call."""
    me.step("%s of %d KiB" % (OPERATIONS[name].title, size >> 10))
    each = _EVEN * me.count
    count = size // 4 // each * each
    buffers = OPERATIONS[name].buffers(group, numbers[:count])
    buffers.call()
    differ, first = _compare(group.torch, buffers.got, buffers.expected)
    buffers.given.zero_()  # sums of zeros stay zeros, however often they are summed
    _wait_for_all(group)
    began = time.perf_counter()
    for _ in range(_CALLS):
        buffers.call()
    _synchronize(group)
    seconds = (time.perf_counter() - began) / _CALLS
    return {"size": 4 * count, "seconds": seconds, "differ": differ, "compared": len(buffers.expected), "first": first}


def _compare(torch: Any, got: Any, expected: Any) -> Any:
    """How many values are wrong, and where the first is."""
    differ, first = 0, None
    for at in range(0, len(expected), _SLICE):
        judged = exact(torch, got[at : at + _SLICE], expected[at : at + _SLICE])
        if judged.differ and first is None:
            first = at + judged.first[0]
        differ += judged.differ
    return differ, first


def _wait_for_all(group: Group) -> None:
    group.dist.all_reduce(group.torch.zeros(1, device=group.device))
    _synchronize(group)


def _synchronize(group: Group) -> None:
    if group.device.type == "cuda":
        group.torch.cuda.synchronize(group.device)
