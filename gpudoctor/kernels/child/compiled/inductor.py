"""torch.compile: a function and a training step, compiled by inductor (Triton on a GPU, C++ on a CPU)."""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Iterator, List

from .._kernel import CannotRun, Outcome, Spec
from ..eager._case import Case
from ..eager._check import exact
from ..eager._rung import median_and_spread
from ._launch import measured
from ._rung import Context, need_triton

KERNELS = (
    Spec("compile.function", "torch.compile: a function", "µs", "1024 × 1000", seconds=120.0),
    Spec("compile.training", "torch.compile: forward and backward", "µs", "1024 × 64 → 128 → 8", seconds=120.0),
)


_SIZE, _SIZE_CPU = 1024, 64
_Make = Callable[..., Any]
"""Whole numbers of a shape, from -2 to 2."""
_Work = Callable[[], List[Any]]


def run(context: Context, spec: Spec) -> Outcome:
    """What was compiled against the same in float64 on the CPU, eagerly; whole numbers, thus exact, in tf32, too."""
    for variable in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(variable) == "1":
            raise CannotRun("%s=1 switches torch.compile off" % variable)
    if not hasattr(context.torch, "compile"):
        raise CannotRun("torch %s has no torch.compile" % context.torch.__version__)
    if not context.on_cpu:
        need_triton()
    size = _SIZE_CPU if context.on_cpu else _SIZE
    work, eager = (_work(context, spec.id, size, how) for how in (_compiled(context.torch), _as_it_is))
    judged = [_case(context, spec.id, size, work)]
    outcome = measured(context, judged, work, lambda once: once * 1e6)
    once, _ = median_and_spread(context.seconds(eager))
    return outcome._replace(details=dict(outcome.details or {}, eager_us=round(once * 1e6, 1)))


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """All results of it, for `size` rows, as one."""
    yield _case(context, name, size, _work(context, name, size, _compiled(context.torch)))


def _case(context: Context, name: str, size: int, work: _Work) -> Case:
    torch = context.torch
    reference = _flat(torch, _on(context, name, size, _as_it_is, "cpu", torch.float64)())
    return Case(name, lambda: _flat(torch, work()), lambda result: exact(torch, result, reference))


def _flat(torch: Any, results: List[Any]) -> Any:
    """All of them as one, and -0 as 0: which of the two a sum gives depends on its order."""
    return torch.cat([one.detach().flatten() for one in results]) + 0.0


def _work(context: Context, name: str, size: int, how: Callable[[Any], Any]) -> _Work:
    return _on(context, name, size, how, context.device, context.torch.float32)


def _on(context: Context, name: str, size: int, how: Callable[[Any], Any], device: Any, kind: Any) -> _Work:
    salts = itertools.count()

    def make(*shape: int) -> Any:
        return context.torch.randint(-2, 3, shape, generator=context.generator(next(salts))).to(device, kind)

    return (_function if name == "compile.function" else _training)(context.torch, make, size, how)


def _compiled(torch: Any) -> Callable[[Any], Any]:
    def compiled(what: Any) -> Any:
        try:
            return torch.compile(what, fullgraph=True, dynamic=False)
        except RuntimeError as error:  # of this Python, before anything was compiled
            raise CannotRun("torch %s: %s" % (torch.__version__, error)) from error

    return compiled


def _as_it_is(what: Any) -> Any:
    return what


def _function(torch: Any, make: _Make, size: int, how: Callable[[Any], Any]) -> _Work:
    """Element-wise, reductions over both dimensions, and a gather."""
    x, y, order = make(size, 1000), make(size, 1000), make(size).long() + 2

    def function(x: Any, y: Any, order: Any) -> List[Any]:
        both = (3 * x + y).relu()
        return [both.sum(1), torch.where(x > y, x, y).sum(0), both[order]]

    function = how(function)
    return lambda: function(x, y, order)


def _training(torch: Any, make: _Make, size: int, how: Callable[[Any], Any]) -> _Work:
    """Output and gradients of two linear layers with ReLU between; no value exceeds 2**20."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(make(*layer.weight.shape))
        layer.bias = torch.nn.Parameter(make(*layer.bias.shape))
    x, gradient = make(size, 64), make(size, 8)
    forward = how(model)

    def step() -> List[Any]:
        model.zero_grad(set_to_none=True)
        out = forward(x)
        out.backward(gradient)
        return [out, *(parameter.grad for parameter in model.parameters())]

    return step
