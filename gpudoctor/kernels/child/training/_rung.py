"""torch on one device or on all of a node, as in ``eager``."""

from __future__ import annotations

from ..eager._rung import NODE, Context, opened

__all__ = ["NODE", "Context", "gpus", "opened"]


def gpus(context: Context) -> int:
    """How many GPUs torch sees; 0 in a run on the CPU."""
    return 0 if context.on_cpu else int(context.torch.cuda.device_count())
