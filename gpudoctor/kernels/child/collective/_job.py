"""What each rank does: every operation at every size, checked, then timed."""

from __future__ import annotations

from typing import Any, Dict, List

from .._group import everyones, joined
from .._kernel import CannotRun
from .._ranks import Me
from ._measure import EVEN, largest, measured
from ._operations import OPERATIONS, Group, base


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
    largest(group, 0.0)
    numbers = base(torch, sizes[-1] // 4 + EVEN * me.count)
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
    return measured(group, name, size, numbers)
