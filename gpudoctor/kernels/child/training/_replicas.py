"""The three ways to train on several devices, as a rank runs them: each checked bit for bit, then timed.

Asked with ``{"way": "alone" | "together", "devices": n, "cpu": bool, "seed": n}``. ``alone`` is one process, on one
device, then by DataParallel on all. ``together`` is DistributedDataParallel, a rank a device.
"""

from __future__ import annotations

import contextlib
import copy
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict

from .._group import joined
from .._kernel import CannotRun
from .._ranks import Me
from ..eager._check import Judged
from ..eager._rung import Context
from . import _model, _whole
from ._precision import full

_WAIT, _WAIT_CPU = 20.0, 5.0
"""Seconds that one rank waits for another in any one exchange."""
_BUCKET_MB = 0.125
"""So small that the checked network's gradients are exchanged in more than one bucket."""
_WARM, _STEPS = 2, 8


def rank(me: Me) -> Dict[str, Any]:
    """Samples a second of each way that was asked for, and how many of its gradients are wrong."""
    me.step("import torch")
    import torch  # type: ignore[import-not-found,unused-ignore]

    full(torch)
    context = Context(torch, "cpu" if me.ask["cpu"] else "cuda:%d" % me.rank, int(me.ask["seed"]))
    if not context.on_cpu:
        me.step("start of %s" % context.device)
        torch.cuda.set_device(context.device)
    return _alone(me, context) if me.ask["way"] == "alone" else _together(me, context)


def _alone(me: Me, context: Context) -> Dict[str, Any]:
    count = int(me.ask["devices"])
    me.step("train on one device")
    told = dict(_told("one", _checked(context, _same, 1)), one=_rate(context, _same, 1))
    me.step("train by DataParallel")

    def wrap(network: Any) -> Any:
        return Replicas(context.torch, network, count) if context.on_cpu else _data_parallel(context, network, count)

    return dict(
        told, **_told("data_parallel", _checked(context, wrap, count)), data_parallel=_rate(context, wrap, count)
    )


def _together(me: Me, context: Context) -> Dict[str, Any]:
    from torch.nn.parallel import DistributedDataParallel  # type: ignore[import-not-found,unused-ignore]

    group = joined(context.torch, me, *(("gloo", _WAIT_CPU) if context.on_cpu else ("nccl", _WAIT)))

    def wrap(network: Any, bucket_mb: float = 25) -> Any:
        where = None if context.on_cpu else [context.device]
        return DistributedDataParallel(network, device_ids=where, bucket_cap_mb=bucket_mb)

    me.step("exchange gradients")
    told = _told("ddp", _checked_share(context, lambda network: wrap(network, _BUCKET_MB), me))
    me.step("train by DistributedDataParallel")
    told["ddp"] = _rate(context, wrap, 1)
    me.step("train without exchange")
    told["apart"] = _rate(context, wrap, 1, exchange=False)
    me.step("part from the other ranks")
    group.barrier()
    return told


def _same(network: Any) -> Any:
    return network


def _data_parallel(context: Context, network: Any, count: int) -> Any:
    return context.torch.nn.DataParallel(network, device_ids=list(range(count)))


class Replicas:
    """What DataParallel does, where the devices are one CPU: replicate, scatter, apply in threads, gather."""

    def __init__(self, torch: Any, network: Any, count: int) -> None:
        self._torch = torch
        self._network = network
        self._frames = [copy.deepcopy(network) for _ in range(count)]
        self._call = torch.func.functional_call if hasattr(torch, "func") else torch.nn.utils.stateless.functional_call

    def __call__(self, inputs: Any) -> Any:
        """The outputs of all; the backward pass adds the replicas' gradients up in the one network."""
        weights = [{name: weight.clone() for name, weight in self._network.named_parameters()} for _ in self._frames]
        with ThreadPoolExecutor(len(self._frames)) as threads:
            outputs = threads.map(self._call, self._frames, weights, inputs.chunk(len(self._frames)))
            return self._torch.cat(list(outputs))


def _checked(context: Context, wrap: Any, count: int) -> Judged:
    """The gradients of the whole-number network over one batch for all replicas."""
    torch = context.torch
    network = _whole.network(torch, context.generator(1))
    inputs, goals = _whole.batch(torch, context.generator(2), count)
    wanted = _whole.reference(network, inputs, goals)
    wrapped = wrap(network.to(context.device))
    _whole.loss(wrapped(inputs.to(context.device)), goals.to(context.device)).backward()
    return _whole.judged(torch, network, wanted, count)


def _checked_share(context: Context, wrap: Any, me: Me) -> Judged:
    """The same where each rank has a share of the batch: averaged, they are those of the whole batch."""
    torch = context.torch
    network = _whole.network(torch, context.generator(1))
    inputs, goals = _whole.batch(torch, context.generator(2), me.count)
    wanted = _whole.reference(network, inputs, goals)
    ours, theirs = (side.chunk(me.count)[me.rank].to(context.device) for side in (inputs, goals))
    wrapped = wrap(network.to(context.device))  # it exchanges only while it lives
    _whole.loss(wrapped(ours), theirs).backward()
    return _whole.judged(torch, network, wanted, me.count)


def _told(way: str, judged: Judged) -> Dict[str, Any]:
    return {way + "_differ": judged.differ, way + "_compared": judged.compared, way + "_words": judged.words}


def _rate(context: Context, wrap: Any, devices: int, exchange: bool = True) -> float:
    """Samples a second of this process, over steps of a full batch for each of its devices."""
    torch = context.torch
    size = _model.timed(context)
    size = size._replace(samples=size.samples * devices)
    network = _model.transformer(torch, size, context.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    wrapped = wrap(network)
    inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
    with contextlib.nullcontext() if exchange else wrapped.no_sync():
        for at in range(_WARM + _STEPS):
            if at == _WARM:
                context.synchronize()
                began = time.perf_counter()
            _model.step(wrapped, optimizer, inputs, goals)
        context.synchronize()
    return size.samples * _STEPS / (time.perf_counter() - began)


def require(torch: Any, on_cpu: bool) -> None:
    """Raise `CannotRun` where this torch has not what the ranks talk by."""
    if not torch.distributed.is_available():
        raise CannotRun("this torch is built without torch.distributed")
    if not on_cpu and not torch.distributed.is_nccl_available():
        raise CannotRun("this torch is built without NCCL")
