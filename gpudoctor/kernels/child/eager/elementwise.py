"""Functions of one number, whose results on a GPU come from its own approximations and special function units."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from .._kernel import Outcome, Spec
from . import Context
from ._check import DTYPES, ULPS, Case, close, run_cases, uniform

KERNELS = (Spec("elementwise", "element-wise functions", "", "2^20 values of 3 types", "deep", 30.0),)
_SIZE, _SIZE_CPU = (1 << 20) + 7, 4099

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


def run(context: Context, spec: Spec) -> Outcome:
    """Check each function in each type against float64, to within a few units in the last place."""
    return Outcome(**run_cases(context, cases(context, spec.id, _SIZE_CPU if context.on_cpu else _SIZE)))


def cases(context: Context, _: str, size: int) -> Iterator[Case]:
    """Each function of `RANGES` in fp32, fp16 and bf16, over `size` values."""
    for salt, name in enumerate(RANGES):
        for dtype in ("fp32", "fp16", "bf16"):
            yield _case(context, name, dtype, size, salt)


def _case(context: Context, name: str, dtype: str, size: int, salt: int) -> Case:
    """One function in one type over random values of its range."""
    torch, ulps = context.torch, ULPS.get((name, dtype)) or ULPS["elementwise", dtype]
    function = torch.nn.functional.gelu if name == "gelu" else getattr(torch, name)
    values = uniform(context, (size,), *RANGES[name], salt)

    def compute() -> Any:
        """The function's values on the device."""
        return function(values.to(context.device, getattr(torch, DTYPES[dtype])))

    return Case("%s of %s" % (name, dtype), compute, lambda result: close(torch, result, function(values), ulps), ulps)
