"""Functions whose results a GPU approximates by units and tables of its own: element-wise ones, Fourier transforms."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from .._kernel import Spec
from . import Context
from ._check import DTYPES, ULPS, Case, checked, close, uniform

KERNELS = (
    Spec("elementwise", "element-wise functions", "", "2^20 values of 3 types", "deep", 30.0),
    Spec("fft", "Fourier transforms", "", "64 × 4096 and others", "deep", 30.0),
)

RANGES: Dict[str, Tuple[float, float]] = {
    "exp": (-3.0, 3.0),
    "log": (2.0, 200.0),
    "tanh": (0.25, 3.0),
    "erf": (0.25, 2.5),
    "gelu": (0.5, 4.0),
    "sigmoid": (-3.0, 3.0),
    "rsqrt": (0.01, 100.0),
    "sin": (0.2, 1.4),
    "cos": (-1.2, 1.2),
}
"""Where nothing cancels: results keep the precision of their type."""


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield a case for each function of `RANGES` in three types over `size` values; for ``fft`` for transforms.

    Those have `size` points, an odd number, a prime number, and two dimensions, in fp32 and fp64.
    """
    if name == "elementwise":
        for salt, function in enumerate(RANGES):
            for dtype in ("fp32", "fp16", "bf16"):
                yield _elementwise_case(context, function, dtype, size, salt)
        return
    side, prime = max(2, int(size**0.5)), size
    while any(prime % divisor == 0 for divisor in range(2, int(prime**0.5) + 1)):
        prime += 1
    shapes = (((64, size), 1), ((33, size // 2 * 2 + 1), 1), ((16, prime), 1), ((8, side, side + 1), 2))
    for salt, (shape, axes) in enumerate(shapes):
        for dtype in ("fp32", "fp64"):
            yield _transform_case(context, shape, axes, dtype, salt)


run = checked(cases, elementwise=((1 << 20) + 7, 4099), fft=(4096, 64))


def _elementwise_case(context: Context, name: str, dtype: str, size: int, salt: int) -> Case:
    """A case: one function in one type over `size` random values of its range, on the device against float64 on the
    CPU, to within a few units in the last place (`ULPS`). `salt` varies the values.
    """
    torch, ulps = context.torch, ULPS.get((name, dtype)) or ULPS["elementwise", dtype]
    function = torch.nn.functional.gelu if name == "gelu" else getattr(torch, name)
    values = uniform(context, (size,), *RANGES[name], salt)

    def compute() -> Any:
        """The function's values on the device."""
        return function(values.to(context.device, getattr(torch, DTYPES[dtype])))

    return Case("%s of %s" % (name, dtype), compute, lambda result: close(torch, result, function(values), ulps), ulps)


def _transform_case(context: Context, shape: Tuple[int, ...], axes: int, dtype: str, salt: int) -> Case:
    """A case: a Fourier transform over the last `axes` axes of a signal whose spectrum is ±1 ± i, against float64."""
    torch, ulps = context.torch, ULPS["fft", dtype]
    signs = torch.randint(2, (*shape, 2), generator=context.generator(salt)) * 2 - 1
    dims = tuple(range(-axes, 0))
    exact = torch.fft.ifftn(torch.view_as_complex(signs.double()), dim=dims)
    signal = exact.to(torch.complex64) if dtype == "fp32" else exact

    def compute() -> Any:
        """The transform on the device, as real and imaginary parts."""
        return torch.view_as_real(torch.fft.fftn(signal.to(context.device), dim=dims))

    def judge(result: Any) -> Any:
        """Compare with the spectrum; for fp32 with that of the rounded signal in float64."""
        rounded = torch.view_as_real(torch.fft.fftn(signal.to(torch.complex128), dim=dims))
        return close(torch, result, rounded if dtype == "fp32" else signs.double(), ulps)

    return Case("%s of %s" % (" × ".join(str(side) for side in shape), dtype), compute, judge, ulps)
