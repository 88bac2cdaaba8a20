"""How torch multiplies matrices of each type, and factors as it takes them.

fp8 and int8 want the right factor column by column; fp4 is packed, two to a byte, and each 16 along K share a scale.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .._kernel import CannotRun
from . import _fp4
from ._case import before_bf16
from ._products import Form, Operands

Multiply = Callable[[Any, Any], Any]

_PLAIN = ("float64", "float32", "float16", "bfloat16")
"""What every torch multiplies on every device: an error there is an error."""
_REFUSALS = ("not support", "not_supported", "not implemented", "not compiled", "require", "only", "invalid scaling")
"""In what torch raises where another type of product is none of this GPU, this build or this release."""
_EMULATED = "Multiplied in fp32 and rounded: torch has no such product on this CPU"


def multiplication(context: Any, form: Form) -> Tuple[Multiply, str]:
    """The product, and what is to be said of it; raises `CannotRun` where there is none.

    Where torch has none on the CPU, the factors are multiplied in fp32 and the result is rounded.
    """
    if not context.on_cpu and context.capability() < form.capability:
        wanted, here = ("%d.%d" % one for one in (form.capability, context.capability()))
        raise CannotRun("it needs compute capability %s, this GPU has %s" % (wanted, here))
    ones = context.torch.ones(128, 128)
    try:
        multiply = _native(context, form)
        multiply(*typed(context, form, ones, ones))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        if form.dtype in _PLAIN and not (form.dtype == "bfloat16" and before_bf16(context, error)):
            raise
        if context.on_cpu:
            return _emulated(context.torch, form), _EMULATED
        if isinstance(error, AttributeError) or any(words in str(error).lower() for words in _REFUSALS):
            why = " ".join(str(error).split())[:200]
            raise CannotRun("torch %s has none here: %s" % (context.torch.__version__, why)) from error
        raise
    return multiply, ""


def exact_factors(context: Any, form: Form, given: Operands) -> Tuple[Any, Any]:
    """Those whole numbers times their powers of two, on the device; each step is exact."""
    torch, device = context.torch, context.device
    wide = torch.float64 if form.dtype == "float64" else torch.float32
    left, right = given.left.to(device), given.right.to(device)
    if not form.scaled:
        return typed(context, form, left, right)
    rows, columns = given.rows.to(device, wide), given.columns.to(device, wide)
    left = left.to(wide) * given.inner.to(device, wide)
    right = right.to(wide) * (1 / given.inner).to(device, wide)[:, None]
    if form.dtype == "fp4":
        return _fp4.Packed.of(torch, left, rows), _fp4.Packed.of(torch, right.t(), columns)
    return typed(context, form, left * rows[:, None], right * columns)


def random_factors(context: Any, form: Form, side: int) -> Tuple[Any, Any]:
    """Normally distributed numbers, whose bits toggle as a network's do: power, and so clocks, depend on it."""
    torch = context.torch
    drawn = [torch.randn(side, side, device=context.device) for _ in range(2)]
    if form.dtype == "int8":
        drawn = [(one * 40).clamp(-127, 127) for one in drawn]
    return typed(context, form, *drawn)


def typed(context: Any, form: Form, left: Any, right: Any) -> Tuple[Any, Any]:
    """Both in the type and the layout that the product takes."""
    torch, device = context.torch, context.device
    left, right = left.to(device), right.to(device)
    if form.dtype == "fp4":
        ones = torch.ones(1, device=device)
        packed = [_fp4.Packed.of(torch, one, ones.expand(one.shape[0])) for one in (left, right.t())]
        return packed[0], packed[1]
    dtype = getattr(torch, form.dtype)
    left, right = left.to(dtype), right.to(dtype)
    return (left, right.t().contiguous().t()) if left.element_size() == 1 else (left, right)


def _native(context: Any, form: Form) -> Multiply:
    torch = context.torch
    if form.dtype == "int8":
        whole: Multiply = torch._int_mm  # noqa: SLF001 - torch has no public name for it
        return whole
    if form.dtype == "fp4":
        return lambda left, right: _scaled(
            torch, form, left.values(torch), right.values(torch).t(), left.scales, right.scales
        )
    if form.dtype.startswith("float8"):
        one = torch.ones((), device=context.device)
        return lambda left, right: _scaled(torch, form, left, right, one, one)
    plain: Multiply = torch.mm
    return plain


def _scaled(torch: Any, form: Form, left: Any, right: Any, scale: Any, other: Any) -> Any:
    out = getattr(torch, form.out)
    result = torch._scaled_mm(left, right, scale_a=scale, scale_b=other, out_dtype=out)  # noqa: SLF001 - as above
    return result[0] if isinstance(result, tuple) else result  # torch before 2.5 also gives the largest value


def _emulated(torch: Any, form: Form) -> Multiply:
    if form.dtype == "int8":
        return lambda left, right: (left.double() @ right.double()).to(torch.int32)
    if form.dtype == "fp4":
        return lambda left, right: (left.unpacked(torch) @ right.unpacked(torch).t()).to(torch.bfloat16)
    return lambda left, right: (left.float() @ right.float()).to(getattr(torch, form.out))
