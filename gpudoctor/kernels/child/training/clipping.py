"""Gradient clipping: the norm it finds, what it leaves of the gradients, and what it costs a step."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .._kernel import Outcome, Spec
from ..eager import Context, median_and_spread
from ..eager._check import Judged, exact, near
from . import _model

KERNELS = (Spec("readiness.clipping", "gradient clipping", "µs", "50 M parameters in 48 tensors"),)
_NEAR = 1e-5
"""How far a norm or a clipped gradient may be from float64's, as a share; clipping adds 1e-6 to what it divides by."""
_MAX_NORM = 0.5
"""The norm, or the value, that is asked for: below that of the gradients."""
_SHAPES = ((64, 64), (64,), (3, 5, 7), (1,), (1000,))


def run(context: Context, _: Spec) -> Outcome:
    """Check clipping by norm 1, 2 and infinity in every variant, and by value; value: µs of a default call."""
    verdicts = dict(_verdicts(context))
    parameters = _timed_parameters(context)
    clip = partial(context.torch.nn.utils.clip_grad_norm_, parameters, 1e9)
    times = {
        name: context.seconds(partial(clip, **options), least=0.2, rounds=3)
        for name, options in _variants(context.torch).items()
    }
    default, spread = median_and_spread(times["as called"])
    slow = median_and_spread(times["one by one"])[0] if "one by one" in times else None
    wrong = ["%s: %s" % (name, verdict.words) for name, verdict in verdicts.items() if verdict.differ]
    return Outcome(
        value=1e6 * default,
        spread=spread,
        right=not wrong,
        differ=sum(verdict.differ for verdict in verdicts.values()),
        compared=sum(verdict.compared for verdict in verdicts.values()),
        words=summary(default, slow, len(parameters), wrong),
        advice=advice(default, slow, context.on_cpu),
        details={
            "%s_us" % name.replace(" ", "_"): 1e6 * median_and_spread(verdict)[0] for name, verdict in times.items()
        },
    )


def summary(default: float, slow: Optional[float], tensors: int, wrong: List[str]) -> str:
    """Sentences on gradient clipping: the first three faults in `wrong`, else what it costs a step.

    `default` and `slow` (one tensor at a time; None if not available) are seconds.
    """
    if wrong:
        return "Clipping is wrong: %s." % "; ".join(wrong[:3])
    text = "clip_grad_norm_ finds the norm that float64 finds and leaves gradients of the norm asked for."
    text += " It costs %.0f µs a step for %d tensors" % (1e6 * default, tensors)
    return text + (", one after another %.0f µs." % (1e6 * slow) if slow else ".")


def advice(default: float, slow: Optional[float], on_cpu: bool) -> str:
    """What to do about clipping gradients, by the seconds of torch's default call and of one tensor at a time."""
    if on_cpu or (slow and slow >= 1.5 * default):
        return "Nothing to do."
    if slow:
        return "Taking all tensors at once saves little here: what it costs is memory traffic, not launches."
    return "It launches several kernels for each tensor: torch 2.0 and later take all at once."


def _variants(torch: Any) -> Dict[str, Dict[str, Any]]:
    """Extra arguments of clip_grad_norm_ by the name of each variant that this torch has."""
    if "foreach" not in inspect.signature(torch.nn.utils.clip_grad_norm_).parameters:
        return {"as called": {}}
    return {"as called": {}, "foreach": {"foreach": True}, "one by one": {"foreach": False}}


def _verdicts(context: Context) -> Iterator[Tuple[str, Judged]]:
    """Yield name and verdict of every check of clipping, by norm and by value, against float64 on the CPU."""
    for name, options in _variants(context.torch).items():
        for kind in (1.0, 2.0, math.inf):
            yield from _by_norm(context, name, kind, options)
        yield from _unclipped(context, name, options)
    parameters, before = _small_gradients(context)
    context.torch.nn.utils.clip_grad_value_(parameters, _MAX_NORM)
    yield "value", exact(context.torch, _flat_gradients(context.torch, parameters), before.clamp(-_MAX_NORM, _MAX_NORM))


def _by_norm(context: Context, name: str, order: float, options: Dict[str, Any]) -> Iterator[Tuple[str, Judged]]:
    """Yield name and verdict of two checks: the norm (`order`) that clipping returns, and the clipped gradients."""
    torch = context.torch
    parameters, before = _small_gradients(context)
    norm = torch.linalg.vector_norm(before, order).reshape(1)
    clipped_norm = torch.nn.utils.clip_grad_norm_(parameters, _MAX_NORM, norm_type=order, **options)
    yield "norm %g, %s" % (order, name), near(torch, clipped_norm.reshape(1), norm, _NEAR)
    left = near(torch, _flat_gradients(torch, parameters), before * (_MAX_NORM / norm), _NEAR)
    yield "gradients by norm %g, %s" % (order, name), left


def _unclipped(context: Context, name: str, options: Dict[str, Any]) -> Iterator[Tuple[str, Judged]]:
    """Yield two checks: gradients below the limit stay unchanged, and an infinite one makes the norm not finite."""
    torch = context.torch
    clip = torch.nn.utils.clip_grad_norm_
    parameters, before = _small_gradients(context)
    clip(parameters, 1e9, **options)
    yield "norm below the limit, " + name, exact(torch, _flat_gradients(torch, parameters), before)
    parameters[0].grad[0, 0] = math.inf
    lost = torch.isfinite(clip(parameters, _MAX_NORM, **options).reshape(1))
    yield "norm of an infinite gradient, " + name, exact(torch, lost, torch.zeros(1, dtype=torch.bool))


def _small_gradients(context: Context) -> Tuple[List[Any], Any]:
    """Parameters with random gradients on the device, and these flat in float64 on the CPU."""
    torch = context.torch
    generator = context.generator(6)
    parameters = [torch.nn.Parameter(torch.zeros(shape, device=context.device)) for shape in _SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(context.device)
    return parameters, _flat_gradients(torch, parameters).double()


def _flat_gradients(torch: Any, parameters: List[Any]) -> Any:
    """All gradients in one flat tensor on the CPU."""
    return torch.cat([parameter.grad.cpu().flatten() for parameter in parameters])


def _timed_parameters(context: Context) -> List[Any]:
    """The parameters of the timed transformer, with gradients of ones."""
    torch = context.torch
    network = _model.transformer(torch, _model.timed_size(context), context.device)
    parameters = list(network.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return parameters
