"""Fourier transforms by cuFFT."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from .._kernel import Outcome, Spec
from . import Context
from ._check import ULPS, Case, close, run_cases

KERNELS = (Spec("fft", "Fourier transforms", "", "64 × 4096 and others", "deep", 30.0),)
_SIZE, _SIZE_CPU = 4096, 64


def run(context: Context, spec: Spec) -> Outcome:
    """Check transforms of signals whose spectrum is ±1 ± i everywhere, against float64."""
    return Outcome(**run_cases(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """About `size` points: as many, an odd number, a prime number, and two dimensions; in fp32 and fp64."""
    side = max(2, int(size**0.5))
    shapes = (((64, size), 1), ((33, size // 2 * 2 + 1), 1), ((16, _next_prime(size)), 1), ((8, side, side + 1), 2))
    for salt, (shape, axes) in enumerate(shapes):
        for dtype in ("fp32", "fp64"):
            yield _case(context, shape, axes, dtype, salt)


def _case(context: Context, shape: Tuple[int, ...], axes: int, dtype: str, salt: int) -> Case:
    """One transform of that shape over its last `axes` axes."""
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


def _next_prime(size: int) -> int:
    """The smallest prime that is `size` or more (2 or more)."""
    while any(size % divisor == 0 for divisor in range(2, int(size**0.5) + 1)):
        size += 1
    return size
