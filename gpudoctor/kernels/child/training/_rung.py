"""torch on one device, as in ``eager``; for the measurements that are made once a node, on all of them."""

from __future__ import annotations

from typing import Any, Mapping

from .._kernel import CannotRun
from ..eager import _rung as eager
from ..eager._rung import Context

__all__ = ["NODE", "Context", "gpus", "opened"]

NODE = "node"


def opened(ask: Mapping[str, Any]) -> Context:
    """The device that was asked for. ``node`` is the first GPU, which nothing touches until a kernel does.

    Raises `CannotRun` where there is none, and whatever torch raises.
    """
    if ask["device"] != NODE:
        return eager.opened(ask)
    torch = eager.opened(dict(ask, device="cpu")).torch
    if not torch.cuda.is_available():
        raise CannotRun("torch %s sees no GPU" % torch.__version__)
    return Context(torch, "cuda:0", int(ask.get("seed", 1)))


def gpus(context: Context) -> int:
    """How many GPUs torch sees; 0 in a run on the CPU."""
    return 0 if context.on_cpu else int(context.torch.cuda.device_count())
