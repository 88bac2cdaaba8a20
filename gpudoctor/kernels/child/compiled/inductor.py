"""torch.compile: a function and a training step, compiled by inductor (Triton on a GPU, C++ on a CPU)."""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Iterator, List

from .._kernel import CannotRun, Outcome, Spec
from ..eager import median_and_spread
from ..eager._check import Case, exact
from . import Context, check_and_time, require_triton

KERNELS = (
    Spec("compile.function", "torch.compile: a function", "µs", "1024 × 1000", seconds=120.0),
    Spec("compile.training", "torch.compile: forward and backward", "µs", "1024 × 64 → 128 → 8", seconds=120.0),
)


_SIZE, _SIZE_CPU = 1024, 64
_Make = Callable[..., Any]
"""Whole numbers of a shape, from -2 to 2."""
_Workload = Callable[[], List[Any]]


def run(context: Context, spec: Spec) -> Outcome:
    """Check and time a function or training step under torch.compile; value: µs of a call, eager as a detail.

    Results must be exactly those of float64 on the CPU. Raises `CannotRun` where torch.compile is missing or off.
    """
    for variable in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(variable) == "1":
            raise CannotRun("%s=1 switches torch.compile off" % variable)
    if not hasattr(context.torch, "compile"):
        raise CannotRun("torch %s has no torch.compile" % context.torch.__version__)
    if not context.on_cpu:
        require_triton()
    size = _SIZE_CPU if context.on_cpu else _SIZE
    wraps: List[Callable[[Any], Any]] = [_compiler(context.torch), lambda what: what]
    work, eager = (_workload(context, spec.id, size, wrap) for wrap in wraps)
    judged = [_case(context, spec.id, size, work)]
    outcome = check_and_time(context, judged, work, lambda once: once * 1e6)
    once, _ = median_and_spread(context.seconds(eager))
    return outcome._replace(details=dict(outcome.details or {}, eager_us=round(once * 1e6, 1)))


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield one case: all results of the compiled function or training step for `size` rows, exact."""
    yield _case(context, name, size, _workload(context, name, size, _compiler(context.torch)))


def _case(context: Context, name: str, size: int, work: _Workload) -> Case:
    """A case: the workload's results must be exactly those of the uncompiled one in float64 on the CPU."""
    torch = context.torch
    reference = _flatten(torch, _workload_on(context, name, size, lambda what: what, "cpu", torch.float64)())
    return Case(name, lambda: _flatten(torch, work()), lambda result: exact(torch, result, reference))


def _flatten(torch: Any, results: List[Any]) -> Any:
    """All results in one flat tensor, with -0 as 0: the sign of a zero sum depends on the order."""
    return torch.cat([tensor.detach().flatten() for tensor in results]) + 0.0


def _workload(context: Context, name: str, size: int, wrap: Callable[[Any], Any]) -> _Workload:
    """A call of the function or training step on the context's device in fp32, wrapped by `wrap`."""
    return _workload_on(context, name, size, wrap, context.device, context.torch.float32)


def _workload_on(
    context: Context, name: str, size: int, wrap: Callable[[Any], Any], device: Any, dtype: Any
) -> _Workload:
    """A call of the function or training step (by `name`) on whole-number inputs; `wrap` compiles it or not."""
    salts = itertools.count()

    def make(*shape: int) -> Any:
        """Random whole numbers from -2 to 2 of that shape."""
        return context.torch.randint(-2, 3, shape, generator=context.generator(next(salts))).to(device, dtype)

    return (_function if name == "compile.function" else _training)(context.torch, make, size, wrap)


def _compiler(torch: Any) -> Callable[[Any], Any]:
    """A function that compiles by torch.compile what it is given, and raises `CannotRun` where torch does not support
    this Python.
    """

    def compiled(what: Any) -> Any:
        """The function or module compiled as one graph of static shapes; raises `CannotRun` where torch refuses."""
        try:
            return torch.compile(what, fullgraph=True, dynamic=False)
        except RuntimeError as error:  # of this Python, before anything was compiled
            raise CannotRun("torch %s: %s" % (torch.__version__, error)) from error

    return compiled


def _function(torch: Any, make: _Make, size: int, wrap: Callable[[Any], Any]) -> _Workload:
    """A call that returns three tensors: of element-wise operations, sums over both dimensions, and a gather."""
    x, y, order = make(size, 1000), make(size, 1000), make(size).long() + 2

    def function(x: Any, y: Any, order: Any) -> List[Any]:
        """Row sums of relu(3 x + y), column sums of the larger of x and y, and a gather of rows."""
        both = (3 * x + y).relu()
        return [both.sum(1), torch.where(x > y, x, y).sum(0), both[order]]

    function = wrap(function)
    return lambda: function(x, y, order)


def _training(torch: Any, make: _Make, size: int, wrap: Callable[[Any], Any]) -> _Workload:
    """A call that trains two linear layers with a ReLU: returns output and all gradients, none above 2**20."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(make(*layer.weight.shape))
        layer.bias = torch.nn.Parameter(make(*layer.bias.shape))
    x, gradient = make(size, 64), make(size, 8)
    forward = wrap(model)

    def step() -> List[Any]:
        """One forward and backward pass; its output and the parameters' gradients."""
        model.zero_grad(set_to_none=True)
        out = forward(x)
        out.backward(gradient)
        return [out, *(parameter.grad for parameter in model.parameters())]

    return step
