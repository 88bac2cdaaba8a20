"""NCCL over the GPUs of this node, Gloo over two processes where there is only the CPU: the rung, and what a rank does.

One group of ranks does every operation at every size, checked, then timed; it is started once for all kernels.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence

from .. import _ranks
from .._kernel import CannotRun, import_torch, last_line
from .._ranks import ThisRank, exchange_values, init_group
from . import _nccl
from ._operations import ALIGNED_VALUES, OPERATIONS, Group, base_values, is_missing, max_over_ranks, measure

_SIZES = (64 << 10, 1 << 20, 16 << 20, 128 << 20)
_SIZES_CPU = (4 << 10, 256 << 10)
_WAIT_SECONDS, _WAIT_SECONDS_CPU = 20.0, 4.0
"""Of one wait for another rank."""
_GROUP_SECONDS, _GROUP_SECONDS_CPU = 75.0, 45.0
"""Of the group's whole life."""


class Context:
    """The devices of this node by torch's names, one rank each, and the results of their common run."""

    def __init__(self, torch: Any, devices: Sequence[str], numbers: Sequence[int] = ()) -> None:
        self.torch = torch
        self.devices = devices
        self.numbers = list(numbers) or list(range(len(devices)))
        """What the session calls them: it may see others, too."""
        self.on_cpu = "cpu" in devices
        self._ends: List[_ranks.End] = []

    def description(self) -> Dict[str, Any]:
        """The version of ``torch``, and ``devices`` by torch's names."""
        return {"torch": str(self.torch.__version__), "devices": list(self.devices)}

    def ends(self) -> List[_ranks.End]:
        """How each rank of the group that measures all operations ended; runs the group at the first call only."""
        if not self._ends:
            count = len(self.devices)
            ask = {
                "backend": "gloo" if self.on_cpu else "nccl",
                "devices": self.devices,
                "sizes": _SIZES_CPU if self.on_cpu else _SIZES,
                "seconds": _WAIT_SECONDS_CPU if self.on_cpu else _WAIT_SECONDS,
                "operations": [name for name, operation in OPERATIONS.items() if count >= operation.least],
            }
            environ = {"GLOO_SOCKET_IFNAME": "lo"} if self.on_cpu else _nccl.ENVIRON
            whole = _GROUP_SECONDS_CPU if self.on_cpu else _GROUP_SECONDS
            self._ends = _ranks.run_ranks(__name__, count, ask, whole, environ)
        return self._ends

    def nccl(self) -> Dict[str, Any]:
        """``nccl`` (version), ``gpus`` (one a rank) and the NCCL_* environment variables; on a CPU only ``backend``."""
        if self.on_cpu:
            return {"backend": "gloo"}
        variables = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
        return {"nccl": _nccl.version(self.torch), "gpus": self.numbers, **variables}


def opened(ask: Mapping[str, Any]) -> Context:
    """A context over all visible GPUs, or two CPU processes for ``cpu``; creates no CUDA context.

    Raises `CannotRun` where torch, torch.distributed, NCCL or a GPU is missing.
    """
    torch = import_torch()
    if not torch.distributed.is_available():
        raise CannotRun("torch %s is built without torch.distributed" % torch.__version__)
    if ask["device"] == "cpu":
        return Context(torch, ("cpu", "cpu"))
    if not torch.distributed.is_nccl_available():
        raise CannotRun("torch %s is built without NCCL" % torch.__version__)
    count = torch.cuda.device_count()
    if not count:
        raise CannotRun("torch %s sees no GPU" % torch.__version__)
    return Context(torch, ["cuda:%d" % number for number in range(count)], ask.get("numbers", ())[:count])


# ---- Each rank ----


def rank(me: ThisRank) -> Dict[str, Any]:
    """Run in this rank every requested operation at every size; results, or why none, go to `me.note`. Returns {}.

    `me.ask` has backend, devices, sizes (bytes), operations, seconds (limit of one wait).
    """
    me.step("import torch")
    torch = import_torch()
    device = torch.device(me.ask["devices"][me.rank])
    if device.type == "cuda":
        me.step("start of %s" % device)
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    sizes = _fitting_sizes(torch, me, device)
    group = Group(torch, init_group(torch, me, me.ask["backend"], me.ask["seconds"]), me.rank, me.count, device)
    me.step("the first collective")
    max_over_ranks(group, 0.0)
    numbers = base_values(torch, sizes[-1] // 4 + ALIGNED_VALUES * me.count)
    for name in me.ask["operations"]:
        results: List[Dict[str, Any]] = []
        try:
            for size in sizes:
                me.step("%s of %d KiB" % (OPERATIONS[name].title, size >> 10))
                results.append(measure(group, name, size, numbers))
        except RuntimeError as error:
            if not is_missing(error):
                raise
            me.note(**{name: last_line(error)})  # on every rank alike
        else:
            me.note(**{name: results})
    exchange_values(torch, me, "done", "")  # none leaves while another one still hears from it
    return {}


def _fitting_sizes(torch: Any, me: ThisRank, device: Any) -> List[int]:
    """The sizes (bytes) that fit eight times into every rank's free GPU memory; raises `CannotRun` if none does."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30
    least = min(int(free_bytes) for free_bytes in exchange_values(torch, me, "free", str(free)))
    sizes = [size for size in me.ask["sizes"] if 8 * size <= least]
    if not sizes:
        raise CannotRun("no memory is free for it: a GPU has %d MiB left" % (least >> 20))
    return sizes
