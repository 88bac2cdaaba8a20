"""torch.compile: a function and a training step, compiled by inductor (Triton on a GPU, C++ on a CPU)."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List

from .._kernel import Outcome, Spec
from ..eager._check import Judged, exact
from ..eager._rung import median_and_spread
from ._rung import Context

KERNELS = (
    Spec("compile.function", "torch.compile: a function", "µs", "1024 × 1000", seconds=120.0),
    Spec("compile.training", "torch.compile: forward and backward", "µs", "256 × 64 → 128 → 8", seconds=120.0),
)


_Make = Callable[..., Any]
"""Whole numbers of a shape, from -2 to 2."""
_Work = Callable[[], List[Any]]


def run(context: Context, spec: Spec) -> Outcome:
    """What was compiled against the same in float64 on the CPU, eagerly; whole numbers, thus exact, in tf32, too."""
    torch = context.torch
    case = _function if spec.id == "compile.function" else _training
    compiled = case(torch, _numbers(context, context.device, torch.float32), _compiled(torch))
    results, warm = context.first(compiled)
    judged = _all(torch, results, case(torch, _numbers(context, "cpu", torch.float64), _as_it_is)())
    eager = case(torch, _numbers(context, context.device, torch.float32), _as_it_is)
    once, spread = median_and_spread(context.seconds(compiled))
    warm["eager_us"] = round(median_and_spread(context.seconds(eager))[0] * 1e6, 1)
    return Outcome(value=once * 1e6, spread=spread, details=warm, **judged.outcome())


def _compiled(torch: Any) -> Callable[[Any], Any]:
    return lambda what: torch.compile(what, fullgraph=True, dynamic=False)


def _as_it_is(what: Any) -> Any:
    return what


def _numbers(context: Context, device: Any, kind: Any) -> _Make:
    salts = itertools.count()

    def make(*shape: int) -> Any:
        return context.torch.randint(-2, 3, shape, generator=context.generator(next(salts))).to(device, kind)

    return make


def _function(torch: Any, make: _Make, compiled: Callable[[Any], Any]) -> _Work:
    """Element-wise, reductions over both dimensions, and a gather."""
    x, y, order = make(1024, 1000), make(1024, 1000), make(1000).long() + 2

    def function(x: Any, y: Any, order: Any) -> List[Any]:
        both = (3 * x + y).relu()
        return [both.sum(1), torch.where(x > y, x, y).sum(0), both[order]]

    function = compiled(function)
    return lambda: function(x, y, order)


def _training(torch: Any, make: _Make, compiled: Callable[[Any], Any]) -> _Work:
    """Output and gradients of two linear layers with ReLU between; no value exceeds 2**18."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(make(*layer.weight.shape))
        layer.bias = torch.nn.Parameter(make(*layer.bias.shape))
    x, gradient = make(256, 64), make(256, 8)
    forward = compiled(model)

    def step() -> List[Any]:
        model.zero_grad(set_to_none=True)
        out = forward(x)
        out.backward(gradient)
        return [out, *(parameter.grad for parameter in model.parameters())]

    return step


def _all(torch: Any, results: List[Any], references: List[Any]) -> Judged:
    """All results as one."""
    return exact(torch, *(torch.cat([one.detach().flatten() for one in many]) for many in (results, references)))
