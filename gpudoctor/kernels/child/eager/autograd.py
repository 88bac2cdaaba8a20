"""Gradients: of a small network, exact; and of a block as transformers have it, against float64."""

from __future__ import annotations

from typing import Any, Iterator, List, Sequence

from .._kernel import Spec
from . import Context
from ._check import UNSEEN, Case, checked, exact, exact_accumulation, judge_mask, random_odd, uniform

KERNELS = (Spec("autograd", "gradients", "", "129 × 127 × 129 × 63; a block of 4 × 65 × 128", "deep", 30.0),)
_SIZE = 128
SHARE = 2.0**-14
"""Of the largest gradient of a parameter, the most that any of the block's may be off."""


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Yield two cases: gradients of an exact network, at most 128 wide, and of a transformer block of about `size`."""
    yield _network_case(context, min(size, _SIZE))
    yield _block_case(context, size)


def _network_case(context: Context, size: int) -> Case:
    """A case: gradients of two layers of whole numbers, which must be exactly those derived by hand.

    All numbers are odd, and so is every side: so is every sum, and none is zero. Below zero the slope is 3. With sides
    of 129 no sum is more than 129 * 3 * (3 * 129 * 9), which is below 2**24: all is exact in fp32.
    """
    torch, less, more = context.torch, size - 1 + size % 2, size + 1 - size % 2
    shapes = ((more, less), (less, more), (more, size // 4 * 2 + 1), (more, size // 4 * 2 + 1))
    data, first, second, weights = (random_odd(context, shape, 3, salt).double() for salt, shape in enumerate(shapes))

    def compute() -> Any:
        """All gradients on the device, in one flat tensor."""
        leaves = _leaves((data, first, second), context.device, torch.float32)
        with exact_accumulation(torch):
            out = torch.nn.functional.leaky_relu(leaves[0] @ leaves[1], 3.0) @ leaves[2]
            (out * weights.to(context.device, torch.float32)).sum().backward()
        return _flat_gradients(torch, leaves)

    def judge(result: Any) -> Any:
        """Compare with the gradients by the chain rule, in float64 on the CPU."""
        before = data @ first
        slope = torch.where(before > 0, 1.0, 3.0).double()
        back = (weights @ second.t()) * slope
        parts = (back @ first.t(), data.t() @ back, (before * slope).t() @ weights)
        return exact(torch, result, torch.cat([part.flatten() for part in parts]))

    return Case("gradients of a network", compute, judge)


def _block_case(context: Context, size: int) -> Case:
    """A case: gradients of a transformer block, to within `SHARE` of each parameter's largest gradient in float64."""
    torch, width = context.torch, max(8, size // 8 * 8)
    shapes = ((4, size // 2 + 1, width), (width, 3 * width), (width, 4 * width), (4 * width, width), (width,))
    inputs = [
        uniform(context, shape, -1.0, 1.0, at) * 2.0 ** -(shape[0].bit_length() // 2) for at, shape in enumerate(shapes)
    ]

    def gradients(device: Any, dtype: Any) -> Any:
        """All gradients on that device in that type, in one flat tensor."""
        leaves = _leaves(inputs, device, dtype)
        with exact_accumulation(torch):
            _block_loss(torch, *leaves).backward()
        return _flat_gradients(torch, leaves)

    def judge(result: Any) -> Any:
        """Compare with float64 on the CPU, to within `SHARE` of each parameter's largest gradient."""
        sizes = [part.numel() for part in inputs]
        expected = gradients("cpu", torch.float64)
        most = torch.cat([part.abs().max().expand(part.numel()) for part in expected.split(sizes)])
        return judge_mask(~((result.detach().cpu().double() - expected).abs() <= SHARE * most))  # so that NaN is wrong

    return Case("gradients of a block", lambda: gradients(context.device, torch.float32), judge, UNSEEN)


def _block_loss(torch: Any, data: Any, into: Any, wide: Any, back: Any, scale: Any) -> Any:
    """The mean square of a transformer block's output (norm, attention of 4 heads, GELU) with its residuals."""
    functional = torch.nn.functional
    batch, length, width = data.shape
    normed = functional.layer_norm(data, (width,), scale + 1)
    heads = (normed @ into).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
    scores = heads[0] @ heads[1].transpose(-1, -2) / (width // 4) ** 0.5
    attended = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(batch, length, width)
    out = functional.gelu((data + attended) @ wide) @ back
    return ((data + attended + out) ** 2).mean()


def _leaves(values: Sequence[Any], device: Any, dtype: Any) -> List[Any]:
    """Copies of the values that collect gradients, on that device in that type."""
    return [part.detach().clone().to(device, dtype).requires_grad_() for part in values]


def _flat_gradients(torch: Any, leaves: List[Any]) -> Any:
    """The leaves' gradients in one flat tensor."""
    return torch.cat([leaf.grad.flatten() for leaf in leaves])


run = checked(cases, autograd=(_SIZE, 24))
