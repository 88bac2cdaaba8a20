"""Whether a result is right, against a reference that the device had no part in.

Two ways. `exact`: inputs are whole numbers, chosen so that every product and every partial sum is exact in the
accumulator and the result exact in its own type, in whatever order it is summed; one wrong bit is one wrong value.
`close`: where rounding differs by design, a bound in units of the last place, over results that are all of like size
and never zero, so that no small value hides a flipped bit.

Which single flipped bits `close` is certain to see: the sign, every bit of the exponent, and of the mantissa's bits so
many from the top (`mantissa_bits`); `exact` sees all. By kind of operation, type and bound::

    kind         type   units  bits
    elementwise  fp32       8  17 of 23
    elementwise  fp16       1   7 of 10
    elementwise  bf16       1   4 of 7
    rsqrt        fp16       2   6 of 10
    rsqrt        bf16       2   3 of 7
    convolution  fp32     512  11 of 23
    convolution  tf32   32768   5 of 23
    convolution  fp16       4   5 of 10
    convolution  bf16       2   3 of 7
    attention    fp32      64  14 of 23
    attention    fp16       2   6 of 10
    attention    bf16       2   3 of 7
    fft          fp32     256  12 of 23
    fft          fp64     256  41 of 52
    mean         fp32       2  19 of 23

The gradients of the transformer block (autograd.py) are judged by a share of the largest: no single bit is promised.
"""

from __future__ import annotations

import math
from typing import Any, Dict, FrozenSet, NamedTuple, Tuple

MANTISSA = {"fp64": 52, "fp32": 23, "tf32": 23, "fp16": 10, "bf16": 7}
"""Bits of the mantissa that are stored, by type."""

DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""torch's names of the types."""

_KEPT = 4096
"""Places of wrong values that are kept, to say whether they are the same each time."""


class Judged(NamedTuple):
    """How many values are wrong, of how many; where the first of them is."""

    differ: int
    compared: int
    first: Tuple[int, ...] = ()
    places: FrozenSet[int] = frozenset()
    """Flat positions of the wrong values, as many as are kept."""
    more: bool = False
    """Whether there may be more wrong values than were counted."""

    @property
    def words(self) -> str:
        """``3 of 4096 values are wrong, the first at [17, 3]``; nothing where none is."""
        if not self.differ:
            return ""
        verb = "is" if self.differ == 1 else "are"
        count = "%s%d of %d values" % ("at least " if self.more else "", self.differ, self.compared)
        return "%s %s wrong, the first at %s" % (count, verb, list(self.first))

    def outcome(self) -> Dict[str, Any]:
        """As the start of an `Outcome`."""
        return {"right": self.differ == 0, "differ": self.differ, "compared": self.compared, "words": self.words}


def exact(torch: Any, result: Any, reference: Any) -> Judged:
    """Every value against `reference`, which the type of the result must be able to hold; NaN is never equal.

    -0 is 0, to whoever reads it; so that a flipped sign is seen, no result of these kernels is zero.
    """
    here = result.detach().cpu()
    expected = reference.to(here.dtype)
    if not torch.equal(expected.to(reference.dtype), reference):
        raise ValueError("the reference is not exact in %s" % here.dtype)
    return judged(here != expected)


def close(torch: Any, result: Any, reference: Any, ulps: int) -> Judged:
    """Every value within `ulps` units of the last place of the float64 `reference`, which is nowhere zero."""
    eps = torch.finfo(result.dtype).eps
    here = result.detach().cpu().to(torch.float64)
    power = torch.frexp(reference)[1].to(torch.float64) - 1
    wrong = ~((here - reference).abs() <= ulps * eps * torch.exp2(power))  # so that NaN is wrong
    return judged(wrong)


def near(torch: Any, result: Any, reference: Any, share: float) -> Judged:
    """Every value within `share` of the float64 `reference`'s size."""
    here = result.detach().cpu().to(torch.float64)
    return judged(~((here - reference).abs() <= share * reference.abs()))  # so that NaN is wrong


def judged(wrong: Any) -> Judged:
    """Of a mask: True where a value is wrong."""
    count = int(wrong.sum())
    if not count:
        return Judged(0, wrong.numel())
    at = wrong.nonzero()[:_KEPT]
    flat = wrong.flatten().nonzero()[:_KEPT, 0].tolist()
    return Judged(count, wrong.numel(), tuple(at[0].tolist()), frozenset(flat))


def bits(torch: Any, values: Any) -> Any:
    """The same memory as whole numbers, so that NaN equals itself and -0 is not 0."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(whole[values.element_size()])


def mantissa_bits(dtype: str, ulps: int) -> int:
    """How many of the mantissa's top bits a bound of `ulps` sees whenever one of them is flipped; 0 ulps: all.

    Bit i from the top is worth 2**(m - i) units of the last place of the value itself, whose unit may be half that of
    the reference where the two lie on either side of a power of two; the value may be `ulps` off the other way.
    """
    whole = MANTISSA[dtype]
    return whole if not ulps else max(0, whole - 2 - math.floor(math.log2(2 * ulps)))


ULPS: Dict[Tuple[str, str], int] = {
    ("elementwise", "fp32"): 8,
    ("elementwise", "fp16"): 1,
    ("elementwise", "bf16"): 1,
    ("rsqrt", "fp16"): 2,
    ("rsqrt", "bf16"): 2,
    ("convolution", "fp32"): 512,
    ("convolution", "tf32"): 1 << 15,
    ("convolution", "fp16"): 4,
    ("convolution", "bf16"): 2,
    ("attention", "fp32"): 64,
    ("attention", "fp16"): 2,
    ("attention", "bf16"): 2,
    ("fft", "fp32"): 256,
    ("fft", "fp64"): 256,
    ("mean", "fp32"): 2,
}
"""Bound by kind of operation and type, in units of the last place of the result's type."""
