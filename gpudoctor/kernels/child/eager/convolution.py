"""Convolutions by cuDNN, in both layouts of memory."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ._case import Case, checked
from ._check import DTYPES, ULPS, close
from ._numbers import switched, uniform
from ._rung import Context

KERNELS = (Spec("convolution", "convolutions", "", "8 × 64 × 56 × 56, 4 types, 2 layouts", "deep", 40.0),)
_SIZE, _SIZE_CPU = 64, 6

WINDOWS = ((3, 1, 1), (1, 1, 0), (5, 2, 2))
"""Side, stride and padding: what Winograd's algorithm is made for, a matrix product, and neither."""


def run(context: Context, spec: Spec) -> Outcome:
    """Positive numbers, so that no sum cancels, against float64."""
    return Outcome(**checked(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """`size` channels; images of about that height."""
    for salt, window in enumerate(WINDOWS):
        images = uniform(context, (max(1, size // 8), size, size - size // 8, size), 0.5, 1.0, 2 * salt)
        weights = uniform(context, (size + 1, size, window[0], window[0]), 0.5, 1.0, 2 * salt + 1)
        reference = _Once(context, images, weights, window)
        for dtype in ("fp32", "tf32", "fp16", "bf16"):
            for layout in ("contiguous_format", "channels_last"):
                yield _case(context, reference, dtype, layout)


class _Once:
    """The inputs, and the result in float64 once it is asked for."""

    def __init__(self, context: Context, images: Any, weights: Any, window: Tuple[int, int, int]) -> None:
        self.images, self.weights, self.window = images, weights, window
        self._conv = context.torch.nn.functional.conv2d
        self._result: Any = None

    def of(self, *inputs: Any) -> Any:
        return self._conv(*inputs, stride=self.window[1], padding=self.window[2])

    def reference(self) -> Any:
        if self._result is None:
            self._result = self.of(self.images, self.weights)
        return self._result


def _case(context: Context, given: _Once, dtype: str, layout: str) -> Case:
    torch, ulps = context.torch, ULPS["convolution", dtype]
    kind = getattr(torch, DTYPES.get(dtype, "float32"))

    def compute() -> Any:
        if dtype == "tf32" and not context.on_cpu and context.capability() < (8, 0):
            raise CannotRun("tf32 needs compute capability 8.0")
        order = getattr(torch, layout)
        inputs = [
            part.to(context.device, kind).contiguous(memory_format=order) for part in (given.images, given.weights)
        ]
        with switched(torch.backends.cudnn, allow_tf32=dtype == "tf32", deterministic=True):
            return given.of(*inputs)

    side = given.window[0]
    words = "%d × %d of %s%s" % (side, side, dtype, ", channels last" if layout == "channels_last" else "")
    return Case(words, compute, lambda result: close(torch, result, given.reference(), ulps), ulps)
