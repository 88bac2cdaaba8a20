"""A transformer as the training measurements use it, its step, and how far two gradients are apart."""

from __future__ import annotations

import copy
from typing import Any, List, NamedTuple, Tuple

from .._kernel import CannotRun
from ..eager._rung import Context


class Size(NamedTuple):
    """Of a transformer and its batch."""

    width: int
    layers: int
    heads: int
    samples: int
    tokens: int
    """Per sample."""


SMALL = Size(width=32, layers=2, heads=2, samples=32, tokens=8)
"""What float64 on the CPU checks."""
TIMED = Size(width=1024, layers=4, heads=16, samples=32, tokens=128)
"""50 million parameters, 1.2 TFLOP a step: large enough that a GPU is not waiting for its launches."""
TIMED_CPU = Size(width=64, layers=2, heads=2, samples=16, tokens=16)

_ROUNDINGS, _ROUNDINGS_16_BIT = 32, 8
"""How many units of rounding the gradients of a small transformer may be apart in norm; one or less is usual on a CPU.
In fp32 a GPU multiplies attention as three tf32 products, rounding about twice as far, and adds in more orders."""
_KEPT = 26
"""Activations of a layer that a step keeps or makes meanwhile, in tensors of samples × tokens × width."""


def needed(size: Size) -> int:
    """Bytes of a training step in fp32, about: weights, gradients and two more of their size, and activations."""
    parameters = 12 * size.width**2 * size.layers
    activations = _KEPT * size.layers * size.samples * size.tokens * size.width
    return 4 * (4 * parameters + activations)


def fitting(size: Size, free: int) -> Size:
    """With half as many samples until it needs no more than that many bytes; raises `CannotRun` below four."""
    if needed(size) <= free:
        return size
    if size.samples < 8:
        raise CannotRun("%d MiB are needed and %d MiB may be taken" % (needed(size) >> 20, free >> 20))
    return fitting(size._replace(samples=size.samples // 2), free)


def timed(context: Context) -> Size:
    """Large enough for a rate, and not too large for what is free."""
    return TIMED_CPU if context.on_cpu else fitting(TIMED, context.free())


def transformer(torch: Any, size: Size, device: Any = "cpu") -> Any:
    """Encoder layers in float32 without dropout, whose gradients are the same each time."""
    return torch.nn.Sequential(
        *(
            torch.nn.TransformerEncoderLayer(
                size.width, size.heads, 4 * size.width, 0.0, "gelu", batch_first=True, device=device
            )
            for _ in range(size.layers)
        )
    )


def language_model(torch: Any, size: Size, vocabulary: int, device: Any) -> Any:
    """From tokens to the logits of tokens."""
    embedding = torch.nn.Embedding(vocabulary, size.width, device=device)
    logits = torch.nn.Linear(size.width, vocabulary, device=device)
    return torch.nn.Sequential(embedding, transformer(torch, size, device), logits)


def batch(torch: Any, size: Size, generator: Any) -> Tuple[Any, Any]:
    """Inputs and goals, on the CPU in float32."""
    shape = (size.samples, size.tokens, size.width)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def small(context: Context) -> Tuple[Any, Any, Any]:
    """A network, its inputs and goals, the same each time; on the CPU in float32."""
    context.torch.manual_seed(context.seed)
    network = transformer(context.torch, SMALL)
    return (network, *batch(context.torch, SMALL, context.generator(3)))


def loss(outputs: Any, goals: Any) -> Any:
    """The mean squared error."""
    return ((outputs - goals) ** 2).mean()


def reference(network: Any, inputs: Any, goals: Any) -> List[Any]:
    """Gradients of the whole batch at once, in float64 on the CPU."""
    twin = copy.deepcopy(network).double().cpu()
    loss(twin(inputs.double()), goals.double()).backward()
    return [parameter.grad for parameter in twin.parameters()]


def distance(torch: Any, ours: List[Any], wanted: List[Any]) -> Tuple[float, float]:
    """The norm of their difference as a share of the wanted one's, and the cosine between them; NaN where one is."""
    left, right = (torch.cat([one.detach().cpu().double().flatten() for one in side]) for side in (ours, wanted))
    apart = (left - right).norm() / right.norm()
    cosine = torch.dot(left, right) / (left.norm() * right.norm())
    return float(apart), float(cosine)


def step(network: Any, optimizer: Any, inputs: Any, goals: Any) -> None:
    """One step of training in the dtype of the network."""
    optimizer.zero_grad()
    loss(network(inputs), goals).backward()
    optimizer.step()


def bound(torch: Any, dtype: Any) -> float:
    """How far gradients that are reckoned in that type may be from exact ones, as `distance` has it."""
    kind = torch.finfo(dtype)
    return (_ROUNDINGS if kind.bits > 16 else _ROUNDINGS_16_BIT) * float(kind.eps)
