"""Matrix products by cuBLAS: whether every value is right, and how fast they are."""

from __future__ import annotations

import os
from typing import Any, Iterator, Sequence

from .._kernel import Outcome, Spec
from ._case import Case, checked
from ._multiply import exact_factors, multiplication, random_factors
from ._numbers import exact_sums, switched
from ._products import FORMS, Form, freivalds, operands
from ._rung import Context, median_and_spread

KERNELS = tuple(
    Spec(
        "matmul." + name,
        name + " matmul",
        "TOP/s" if name == "int8" else "TFLOP/s",
        "8192³ or less",
        "standard" if name == "fp32" else "deep",
        40.0,
    )
    for name in FORMS
)
_SIDES, _SIDE_CPU = (8192, 4096, 2048), 192
"""Of what level standard runs, the largest is left out."""
_LONGEST = 0.2
"""Seconds that one product may take; where it would take longer, the matrices are smaller."""
_SUSTAINED = {"standard": 0.3, "deep": 1.0}
"""Seconds that the rate is measured over, for clocks to settle; on a CPU the rate means nothing."""


def run(context: Context, spec: Spec) -> Outcome:
    """Every value of an exact product, then the rate for normally distributed numbers."""
    name, torch = spec.id.partition(".")[2], context.torch
    form = FORMS[name]
    if not context.on_cpu:
        context.need(_bytes(_SIDES[-1]))
    multiply, how = multiplication(context, form)
    default = bool(torch.backends.cuda.matmul.allow_tf32)
    with switched(torch.backends.cuda.matmul, allow_tf32=name == "tf32"):
        side = _side(context, form, _SIDES[spec.level == "standard" :])
        said = checked(context, cases(context, spec.id, side))
        left, right = random_factors(context, form, side)
        seconds = context.seconds(lambda: multiply(left, right), 0.02 if context.on_cpu else _SUSTAINED[spec.level])
    once, spread = median_and_spread(seconds)
    said["details"].update(side=side, tf32_by_default=default)
    if "NVIDIA_TF32_OVERRIDE" in os.environ:
        said["details"]["NVIDIA_TF32_OVERRIDE"] = os.environ["NVIDIA_TF32_OVERRIDE"]
    said["words"] = ". ".join(part for part in (said["words"], how) if part)
    return Outcome(value=2 * side**3 / once / 1e12, spread=spread, **said)


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """One product of about size × size values."""
    name = name.partition(".")[2]
    form, torch, generator = FORMS[name], context.torch, context.generator(1)
    side = max(32, size // 32 * 32)
    inner = max(64, min(form.inner, side))
    given = operands(context, form, (side, inner, side), generator)
    multiply, _ = multiplication(context, form)
    left, right = exact_factors(context, form, given)

    def compute() -> Any:
        with exact_sums(torch, tf32=name == "tf32"):
            return multiply(left, right)

    yield Case("%s product" % name, compute, lambda result: freivalds(torch, result, given, generator))


def _side(context: Context, form: Form, sides: Sequence[int]) -> int:
    """The largest that fits and is quick enough."""
    if context.on_cpu:
        return _SIDE_CPU
    least = sides[-1]
    left, right = random_factors(context, form, least)
    multiply, _ = multiplication(context, form)
    once, _ = median_and_spread(context.seconds(lambda: multiply(left, right), 0.02))
    for side in sides:
        if once * (side / least) ** 3 < _LONGEST and _bytes(side) < context.free():
            return side
    return least


def _bytes(side: int) -> int:
    """Both factors as they are made, in their type, and three results."""
    return side * side * 48
