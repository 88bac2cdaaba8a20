"""Matrix products by cuBLAS: whether every value is right, and how fast they are."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ._case import Case, checked
from ._numbers import switched
from ._products import FORMS, Form, freivalds, operands
from ._rung import Context, median_and_spread

KERNELS = tuple(
    Spec("matmul." + name, name + " matmul", "TOP/s" if name == "int8" else "TFLOP/s", "8192³", level, 30.0)
    for name, level in (
        ("fp64", "deep"),
        ("fp32", "standard"),
        ("tf32", "deep"),
        ("fp16", "deep"),
        ("bf16", "deep"),
        ("int8", "deep"),
        ("fp8", "deep"),
    )
)
_SIDES, _SIDE_CPU = (8192, 4096, 2048), 192
_LONGEST = 0.3
"""Seconds that one product may take; where it would take longer, the matrices are smaller."""


def run(context: Context, spec: Spec) -> Outcome:
    """Every value of an exact product, then the rate for random normal numbers, whose bits toggle as in training."""
    name = spec.id.partition(".")[2]
    form = FORMS[name]
    if context.capability() < form.capability and not context.on_cpu:
        raise CannotRun(
            "%s needs compute capability %d.%d, this GPU has %d.%d" % (name, *form.capability, *context.capability())
        )
    side = _side(context, form)
    said = checked(context, cases(context, spec.id, side))
    left, right = _random(context, form, side)
    multiply, how = _multiply(context, form)
    default = bool(context.torch.backends.cuda.matmul.allow_tf32)
    with _tf32(context.torch, name == "tf32"):
        once, spread = median_and_spread(context.seconds(lambda: multiply(left, right), least=1.0))
    said["details"].update(side=side, tf32_by_default=default)
    said["words"] = "; ".join(part for part in (said["words"], how) if part)
    return Outcome(value=2 * side**3 / once / 1e12, spread=spread, **said)


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """One product of about size × size values."""
    name = name.partition(".")[2]
    form, torch, generator = FORMS[name], context.torch, context.generator(1)
    side = max(32, size // 16 * 16)
    inner = max(32, form.thin + 16 + form.thin % 2, min(form.inner, side)) // 16 * 16
    given = operands(context, form, (side, inner, side), generator)
    left, right = given.on(torch, context.device, form)
    multiply, _ = _multiply(context, form)

    def compute() -> Any:
        with _tf32(torch, name == "tf32"), _reductions_in_fp32(torch):
            return multiply(left, right)

    yield Case("%s product" % name, compute, lambda result: freivalds(torch, result, given, generator))


def _multiply(context: Context, form: Form) -> Tuple[Callable[[Any, Any], Any], str]:
    """The product as torch has it, and what is to be said of it."""
    torch, out = context.torch, getattr(context.torch, form.out)
    if form.dtype == "int8":
        return torch._int_mm, ""  # noqa: SLF001 - torch has no public name for it
    if form.dtype.startswith("float8"):
        one = torch.ones((), device=context.device)
        return lambda left, right: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=out), ""  # noqa: SLF001
    return torch.mm, ""


def _random(context: Context, form: Form, side: int) -> Tuple[Any, Any]:
    torch = context.torch
    made = []
    for _ in range(2):
        values = torch.randn(side, side, device=context.device)
        made.append((values * 40 if form.dtype == "int8" else values).to(getattr(torch, form.dtype)))
    return made[0], made[1].t()


def _side(context: Context, form: Form) -> int:
    """The largest that fits and is quick enough."""
    if context.on_cpu:
        return _SIDE_CPU
    least = _SIDES[-1]
    left, right = _random(context, form, least)
    once = median_and_spread(context.seconds(lambda: _multiply(context, form)[0](left, right), least=0.02))[0]
    size = left.element_size()
    for side in _SIDES:
        if once * (side / least) ** 3 <= _LONGEST and side * side * (4 * size + 16) <= context.free():
            return side
    context.need(least * least * (4 * size + 16))
    return least


def _tf32(torch: Any, on: bool) -> Any:
    """Whether fp32 products may use tf32 meanwhile."""
    return switched(torch.backends.cuda.matmul, allow_tf32=on)


def _reductions_in_fp32(torch: Any) -> Any:
    """Split-K may not add partial sums in the narrow type meanwhile: those need not be exact."""
    return switched(
        torch.backends.cuda.matmul,
        allow_fp16_reduced_precision_reduction=False,
        allow_bf16_reduced_precision_reduction=False,
        allow_fp16_accumulation=False,
    )
