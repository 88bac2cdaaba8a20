"""Gradients: of a small network, exact; and of a block as transformers have it, against float64."""

from __future__ import annotations

from typing import Any, Iterator, List

from .._kernel import Outcome, Spec
from ._case import Case, checked
from ._check import exact, judged
from ._numbers import odd, switched, uniform
from ._rung import Context

KERNELS = (Spec("autograd", "gradients", "", "129 × 127 × 129 × 63; a block of 4 × 65 × 128", "deep", 30.0),)
_SIZE, _SIZE_CPU = 128, 24
SHARE = 2.0**-14
"""Of the largest gradient of a parameter, the most that any of the block's may be off."""


def run(context: Context, spec: Spec) -> Outcome:
    """Both, without tf32."""
    return Outcome(**checked(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """About `size` wide, at most 128 for sums to stay exact."""
    yield _network(context, min(size, _SIZE))
    yield _block(context, size)


def _network(context: Context, size: int) -> Case:
    """Two layers of whole numbers; gradients by hand.

    All numbers are odd, and so is every side: so is every sum, and none is zero. The slope below zero is 3. At 129 the
    largest sum is below 129 * 3 * 3 * 129 * 9 < 2**24: exact in fp32, and its factors fit in 11 bits but for one.
    """
    torch = context.torch
    rows, inner, hidden, outer = (
        size + 1 - size % 2,
        size - 1 + size % 2,
        size + 1 - size % 2,
        size // 2 * 2 // 4 * 2 + 1,
    )
    data, first, second, weights = (
        odd(context, shape, 3, salt).double()
        for salt, shape in enumerate(((rows, inner), (inner, hidden), (hidden, outer), (rows, outer)))
    )

    def compute() -> Any:
        leaves = [_leaf(context, part, torch.float32) for part in (data, first, second)]
        with switched(torch.backends.cuda.matmul, allow_tf32=False):
            before = leaves[0] @ leaves[1]
            out = torch.nn.functional.leaky_relu(before, 3.0) @ leaves[2]
            (out * weights.to(context.device, torch.float32)).sum().backward()
        return _gradients(torch, leaves)

    def judge(result: Any) -> Any:
        before = data @ first
        slope = torch.where(before > 0, 1.0, 3.0).double()
        back = (weights @ second.t()) * slope
        parts = (back @ first.t(), data.t() @ back, (before * slope).t() @ weights)
        return exact(torch, result, torch.cat([part.flatten() for part in parts]))

    return Case("gradients of a network", compute, judge)


def _block(context: Context, size: int) -> Case:
    """Norm, attention of 4 heads, GELU. Gradients near zero hide a flipped bit here: the bound is of the largest."""
    torch, width = context.torch, max(8, size // 8 * 8)
    shapes = ((4, size // 2 + 1, width), (width, 3 * width), (width, 4 * width), (4 * width, width), (width,))
    inputs = [uniform(context, shape, -1.0, 1.0, 40 + at) / max(1, shape[0] ** 0.5) for at, shape in enumerate(shapes)]

    def compute(dtype: Any = torch.float32, device: Any = context.device) -> Any:
        leaves = [part.clone().to(device, dtype).requires_grad_() for part in inputs]
        with switched(torch.backends.cuda.matmul, allow_tf32=False):
            _forward(torch, *leaves).backward()
        return _gradients(torch, leaves)

    def judge(result: Any) -> Any:
        reference, here = compute(torch.float64, "cpu"), result.detach().cpu().double()
        sizes = [part.numel() for part in inputs]
        wrong: List[Any] = []
        for mine, right in zip(here.split(sizes), reference.split(sizes)):
            wrong.append(~((mine - right).abs() <= SHARE * right.abs().max()))
        return judged(torch.cat(wrong))

    return Case("gradients of a block", compute, judge, -1)


def _forward(torch: Any, data: Any, into: Any, wide: Any, back: Any, scale: Any) -> Any:
    functional = torch.nn.functional
    batch, length, width = data.shape
    normed = functional.layer_norm(data, (width,), scale + 1)
    heads = (normed @ into).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
    scores = heads[0] @ heads[1].transpose(-1, -2) / (width // 4) ** 0.5
    seen = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(batch, length, width)
    out = functional.gelu((data + seen) @ wide) @ back
    return ((data + seen + out) ** 2).mean()


def _leaf(context: Context, values: Any, dtype: Any) -> Any:
    return values.to(context.device, dtype).requires_grad_()


def _gradients(torch: Any, leaves: List[Any]) -> Any:
    return torch.cat([leaf.grad.flatten() for leaf in leaves])
