"""Convolutions of positive numbers by cuDNN, in both layouts of memory, so that no sum cancels; against float64."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, Iterator, Tuple

from .._kernel import CannotRun, Spec
from . import Context
from ._check import DTYPES, ULPS, Case, attributes_set, checked, close, exact_accumulation, uniform

KERNELS = (Spec("convolution", "convolutions", "", "8 × 64 × 56 × 64, 4 types, 2 layouts", "deep", 40.0),)

WINDOWS = ((3, 1, 1), (1, 1, 0), (5, 2, 2))
"""Side, stride and padding: what Winograd's algorithm is made for, a matrix product, and neither."""


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Yield a convolution, run when computed, per window, type and layout; images of `size` channels, about as high."""
    for salt, (side, stride, padding) in enumerate(WINDOWS):
        images = uniform(context, (max(1, size // 8), size, size - size // 8, size), 0.5, 1.0, 2 * salt)
        weights = uniform(context, (size + 1, size, side, side), 0.5, 1.0, 2 * salt + 1)
        convolve = partial(context.torch.nn.functional.conv2d, stride=stride, padding=padding)
        reference = lru_cache(maxsize=1)(partial(convolve, images, weights))
        for dtype in ("fp32", "tf32", "fp16", "bf16"):
            for layout in ("contiguous_format", "channels_last"):
                yield _case(context, convolve, (images, weights), reference, dtype, layout)


def _case(
    context: Context,
    convolve: Callable[..., Any],
    inputs: Tuple[Any, Any],
    reference: Callable[[], Any],
    dtype: str,
    layout: str,
) -> Case:
    """A case: one convolution in that type and layout; computing it raises `CannotRun` for TF32 on a GPU without."""
    torch, ulps = context.torch, ULPS["convolution", dtype]
    kind, order = getattr(torch, DTYPES.get(dtype, "float32")), getattr(torch, layout)

    def compute() -> Any:
        """The convolution on the device, deterministic; raises `CannotRun` for TF32 below compute capability 8.0."""
        if dtype == "tf32" and not context.on_cpu and context.capability() < (8, 0):
            raise CannotRun("tf32 needs compute capability 8.0")
        tf32 = dtype == "tf32"
        switches = attributes_set(torch.backends.cudnn, allow_tf32=tf32, deterministic=True, benchmark=False)
        with switches, exact_accumulation(torch, tf32):  # torch convolves by cuBLAS where cuDNN does not
            return convolve(*(part.to(context.device, kind).contiguous(memory_format=order) for part in inputs))

    side = inputs[1].shape[-1]
    name = "%d × %d of %s%s" % (side, side, dtype, ", channels last" if layout == "channels_last" else "")
    return Case(name, compute, lambda result: close(torch, result, reference(), ulps), ulps)


run = checked(cases, convolution=(64, 6))
