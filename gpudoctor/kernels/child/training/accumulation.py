"""Gradient accumulation: several small batches give the gradients of one large batch, and need less memory."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .._kernel import Outcome, Spec
from ..eager import Context
from . import Meter, _model

KERNELS = (Spec("readiness.accumulation", "gradient accumulation", "%", "4 batches of 8 for one of 32"),)
PARTS = 4


def run(context: Context, _: Spec) -> Outcome:
    """Check the gradients of 4 small batches against one large batch; value: % of peak memory saved."""
    torch = context.torch
    _model.use_full_fp32(torch)
    verdict = _check_exact(context)
    distances = {name: _distance_and_bound(context, getattr(torch, name)) for name in ("float32", "float64")}
    wrong = [verdict.words] if verdict.differ else []
    wrong += [
        "%.1e of their norm in %s" % (distance, name)
        for name, (distance, most) in distances.items()
        if not distance <= most
    ]
    large, small = (
        _saved_bytes(context, parts) if context.on_cpu else _peak_bytes(context, parts) for parts in (1, PARTS)
    )
    saved = 100 * (1 - small / large)
    return Outcome(
        value=saved,
        right=not wrong,
        differ=verdict.differ,
        compared=verdict.compared,
        words=summary(saved, {name: distance for name, (distance, _) in distances.items()}, wrong),
        advice=advice(saved),
        details=dict(
            {"apart_" + name: distance for name, (distance, _) in distances.items()},
            large_bytes=large,
            small_bytes=small,
            batches=PARTS,
        ),
    )


def summary(saved: float, distances: Dict[str, float], wrong: List[str]) -> str:
    """Sentences on gradient accumulation: the faults in `wrong`, else the distances and the % of memory saved.

    `distances` by type are shares of the gradient's norm.
    """
    if wrong:
        return "The gradients of %d small batches are not those of the large one: %s." % (PARTS, "; ".join(wrong))
    far = ", ".join("%.1e in %s" % (distance, name) for name, distance in distances.items())
    return (
        "%d small batches, each loss divided by %d, give the gradients of the large batch (apart by %s) and need"
        " %.0f %% less memory." % (PARTS, PARTS, far, saved)
    )


def advice(saved: float) -> str:
    """Whether to accumulate gradients and how, by the % of memory that it saves."""
    if saved < 10:
        return "Activations are a small part of the memory here: accumulating buys no larger batch."
    return (
        "Where a batch does not fit, accumulate: divide each loss by the number of batches, step once after the last,"
        " and under DDP wrap all but the last in model.no_sync()."
    )


def backward(network: Any, loss: Any, inputs: Any, goals: Any, parts: int) -> None:
    """Accumulate the gradients of the batch over `parts` equal parts, each loss divided by their number."""
    for part, goal in zip(inputs.chunk(parts), goals.chunk(parts)):
        (loss(network(part), goal) / parts).backward()


def _check_exact(context: Context) -> Any:
    """The verdict on gradients accumulated over `PARTS` parts: exactly those of the whole batch in float64."""
    torch = context.torch
    network = _model.exact_network(torch, context.generator(1))
    inputs, goals = _model.exact_batch(torch, context.generator(2), PARTS)
    wanted = _model.reference(network, inputs, goals, _model.exact_loss)
    network.to(context.device)
    backward(network, _model.exact_loss, inputs.to(context.device), goals.to(context.device), PARTS)
    return _model.check_gradients(torch, network, wanted)


def _distance_and_bound(context: Context, dtype: Any) -> Tuple[float, float]:
    """Distance of gradients accumulated in that type from those of the large batch in float64, and its bound."""
    torch = context.torch
    network, inputs, goals = _model.small_problem(context)
    wanted = _model.reference(network, inputs, goals)
    network.to(context.device, dtype)
    inputs, goals = inputs.to(context.device, dtype), goals.to(context.device, dtype)
    backward(network, _model.loss, inputs, goals, PARTS)
    apart, _ = _model.gradient_distance(torch, _model.gradients(network), wanted)
    return apart, _model.gradient_bound(torch, dtype)


def _saved_bytes(context: Context, parts: int) -> int:
    """Bytes that autograd saves for the backward pass of one part, weights excepted; for a CPU."""
    torch = context.torch
    network, inputs, goals = _model.small_problem(context)
    bytes_by_address: Dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        """Count the bytes of a saved tensor, once for each address; returns it."""
        count = tensor.numel() * tensor.element_size()
        bytes_by_address[tensor.data_ptr()] = max(count, bytes_by_address.get(tensor.data_ptr(), 0))
        return tensor

    part = inputs.shape[0] // parts
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = _model.loss(network(inputs[:part]), goals[:part])
    del result
    return sum(int(count) for place, count in bytes_by_address.items() if place not in weights)


def _peak_bytes(context: Context, parts: int) -> int:
    """Peak bytes of GPU memory while a large network's gradients are accumulated over `parts` parts."""
    torch = context.torch
    size = _model.timed_size(context)
    with Meter(context) as meter:
        network = _model.transformer(torch, size, context.device)
        inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
        backward(network, _model.loss, inputs, goals, parts)
    return meter.bytes
