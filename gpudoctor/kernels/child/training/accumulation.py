"""Gradient accumulation: several small batches give the gradients of one large batch, and need less memory."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .._kernel import Outcome, Spec
from ..eager._rung import Context
from . import _model, _whole
from ._meter import counted
from ._precision import full

KERNELS = (Spec("readiness.accumulation", "gradient accumulation", "%", "4 batches of 8 for one of 32"),)
PARTS = 4


def run(context: Context, _: Spec) -> Outcome:
    """Whole numbers bit for bit, ordinary numbers to the bound of their dtype; then the memory of both ways."""
    torch = context.torch
    full(torch)
    judged = _of_whole_numbers(context)
    apart = {name: _apart(context, getattr(torch, name)) for name in ("float32", "float64")}
    wrong = [judged.words] if judged.differ else []
    wrong += ["%.1e of their norm in %s" % (one, name) for name, (one, most) in apart.items() if not one <= most]
    large, small = (_kept(context, parts) if context.on_cpu else _peak(context, parts) for parts in (1, PARTS))
    saved = 100 * (1 - small / large)
    return Outcome(
        value=saved,
        right=not wrong,
        differ=judged.differ,
        compared=judged.compared,
        words=words(saved, {name: one for name, (one, _) in apart.items()}, wrong),
        advice=advice(saved),
        details=dict(
            {"apart_" + name: one for name, (one, _) in apart.items()},
            large_bytes=large,
            small_bytes=small,
            batches=PARTS,
        ),
    )


def words(saved: float, apart: Dict[str, float], wrong: List[str]) -> str:
    """What the figures mean; `apart` by dtype is the norm of the difference as a share of the gradient's."""
    if wrong:
        return "The gradients of %d small batches are not those of the large one: %s." % (PARTS, "; ".join(wrong))
    far = ", ".join("%.1e in %s" % (one, name) for name, one in apart.items())
    return (
        "%d small batches, each loss divided by %d, give the gradients of the large batch (apart by %s) and need"
        " %.0f %% less memory." % (PARTS, PARTS, far, saved)
    )


def advice(saved: float) -> str:
    """From the share of memory that is saved, in %."""
    if saved < 10:
        return "Activations are a small part of the memory here: accumulating buys no larger batch."
    return (
        "Where a batch does not fit, accumulate: divide each loss by the number of batches, step once after the last,"
        " and under DDP wrap all but the last in model.no_sync()."
    )


def backward(network: Any, loss: Any, inputs: Any, goals: Any, parts: int) -> None:
    """Gradients of the batch, cut into `parts` that are equally large."""
    for part, goal in zip(inputs.chunk(parts), goals.chunk(parts)):
        (loss(network(part), goal) / parts).backward()


def _of_whole_numbers(context: Context) -> Any:
    torch = context.torch
    network = _whole.network(torch, context.generator(1))
    inputs, goals = _whole.batch(torch, context.generator(2), PARTS)
    wanted = _whole.reference(network, inputs, goals)
    network.to(context.device)
    backward(network, _whole.loss, inputs.to(context.device), goals.to(context.device), PARTS)
    return _whole.judged(torch, network, wanted)


def _apart(context: Context, dtype: Any) -> Tuple[float, float]:
    """How far ordinary numbers are from the large batch in float64 on the CPU, and how far they may be."""
    torch = context.torch
    network, inputs, goals = _model.small(context)
    wanted = _model.reference(network, inputs, goals)
    network.to(context.device, dtype)
    inputs, goals = inputs.to(context.device, dtype), goals.to(context.device, dtype)
    backward(network, _model.loss, inputs, goals, PARTS)
    apart, _ = _model.distance(torch, _whole.gradients(network), wanted)
    return apart, _model.bound(torch, dtype)


def _kept(context: Context, parts: int) -> int:
    """Bytes that autograd keeps of one batch for the backward pass: a CPU tells no peak."""
    torch = context.torch
    network, inputs, goals = _model.small(context)
    seen: Dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        count = tensor.numel() * tensor.element_size()
        seen[tensor.data_ptr()] = max(count, seen.get(tensor.data_ptr(), 0))
        return tensor

    part = inputs.shape[0] // parts
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        kept = _model.loss(network(inputs[:part]), goals[:part])
    del kept
    return sum(int(count) for place, count in seen.items() if place not in weights)


def _peak(context: Context, parts: int) -> int:
    """Bytes that are taken at most while a large network's gradients are made so."""
    counted()
    torch = context.torch
    size = _model.timed(context)
    with torch.cuda.device(context.device):
        before = torch.cuda.memory_allocated()
        network = _model.transformer(torch, size, context.device)
        inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
        torch.cuda.reset_peak_memory_stats()
        backward(network, _model.loss, inputs, goals, parts)
        return int(torch.cuda.max_memory_allocated() - before)
