"""Gradient clipping: the norm it finds, what it leaves of the gradients, and what it costs a step."""

from __future__ import annotations

import inspect
import math
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .._kernel import Outcome, Spec
from ..eager._check import Judged, exact, near
from ..eager._rung import Context, median_and_spread
from . import _model

KERNELS = (Spec("readiness.clipping", "gradient clipping", "µs", "50 M parameters in 48 tensors"),)
_NEAR = 1e-5
"""How far a norm or a clipped gradient may be from float64's, as a share; clipping adds 1e-6 to what it divides by."""
_MOST = 0.5
"""The norm, or the value, that is asked for: below that of the gradients."""
_SHAPES = ((64, 64), (64,), (3, 5, 7), (1,), (1000,))


def run(context: Context, _: Spec) -> Outcome:
    """By norm 1, 2 and infinity, with and without foreach, and by value; then the time of the usual way."""
    judged = dict(_checked(context))
    parameters = _parameters(context)
    times = {name: _seconds(context, parameters, more) for name, more in _ways(context.torch).items()}
    usual, spread = median_and_spread(times["as called"])
    slow = median_and_spread(times["one by one"])[0] if "one by one" in times else None
    wrong = ["%s: %s" % (how, one.words) for how, one in judged.items() if one.differ]
    return Outcome(
        value=1e6 * usual,
        spread=spread,
        right=not wrong,
        differ=sum(one.differ for one in judged.values()),
        compared=sum(one.compared for one in judged.values()),
        words=words(usual, slow, len(parameters), wrong),
        advice=advice(usual, slow, context.on_cpu),
        details={"%s_us" % name.replace(" ", "_"): 1e6 * median_and_spread(one)[0] for name, one in times.items()},
    )


def words(usual: float, slow: Optional[float], tensors: int, wrong: List[str]) -> str:
    """What the figures mean, in seconds; `slow` is one tensor after another, None where this torch has no choice."""
    if wrong:
        return "Clipping is wrong: %s." % "; ".join(wrong[:3])
    said = "clip_grad_norm_ finds the norm that float64 finds and leaves gradients of the norm asked for."
    said += " It costs %.0f µs a step for %d tensors" % (1e6 * usual, tensors)
    return said + (", one after another %.0f µs." % (1e6 * slow) if slow else ".")


def advice(usual: float, slow: Optional[float], on_cpu: bool) -> str:
    """From seconds of the usual way and of one tensor after another."""
    if on_cpu or (slow and slow >= 1.5 * usual):
        return "Nothing to do."
    if slow:
        return "Taking all tensors at once saves little here: what it costs is memory traffic, not launches."
    return "It launches several kernels for each tensor: torch 2.0 and later take all at once."


def _ways(torch: Any) -> Dict[str, Dict[str, Any]]:
    """Arguments of each way that this torch has."""
    if "foreach" not in inspect.signature(torch.nn.utils.clip_grad_norm_).parameters:
        return {"as called": {}}
    return {"as called": {}, "foreach": {"foreach": True}, "one by one": {"foreach": False}}


def _checked(context: Context) -> Iterator[Tuple[str, Judged]]:
    """Each way, named, against float64 on the CPU."""
    for name, more in _ways(context.torch).items():
        for kind in (1.0, 2.0, math.inf):
            yield from _by_norm(context, name, kind, more)
        yield from _unclipped(context, name, more)
    parameters, before = _small(context)
    context.torch.nn.utils.clip_grad_value_(parameters, _MOST)
    yield "value", exact(context.torch, _flat(context.torch, parameters), before.clamp(-_MOST, _MOST))


def _by_norm(context: Context, name: str, kind: float, more: Dict[str, Any]) -> Iterator[Tuple[str, Judged]]:
    """The norm that is found, and the gradients that are left."""
    torch = context.torch
    parameters, before = _small(context)
    norm = torch.linalg.vector_norm(before, kind).reshape(1)
    found = torch.nn.utils.clip_grad_norm_(parameters, _MOST, norm_type=kind, **more)
    yield "norm %g, %s" % (kind, name), near(torch, found.reshape(1), norm, _NEAR)
    left = near(torch, _flat(torch, parameters), before * (_MOST / norm), _NEAR)
    yield "gradients by norm %g, %s" % (kind, name), left


def _unclipped(context: Context, name: str, more: Dict[str, Any]) -> Iterator[Tuple[str, Judged]]:
    """Gradients below the limit stay as they are; one that is infinite is told by the norm."""
    torch = context.torch
    clip = torch.nn.utils.clip_grad_norm_
    parameters, before = _small(context)
    clip(parameters, 1e9, **more)
    yield "norm below the limit, " + name, exact(torch, _flat(torch, parameters), before)
    parameters[0].grad[0, 0] = math.inf
    lost = torch.isfinite(clip(parameters, _MOST, **more).reshape(1))
    yield "norm of an infinite gradient, " + name, exact(torch, lost, torch.zeros(1, dtype=torch.bool))


def _small(context: Context) -> Tuple[List[Any], Any]:
    """Parameters with gradients on the device, and all of these in float64 on the CPU."""
    torch = context.torch
    generator = context.generator(6)
    parameters = [torch.nn.Parameter(torch.zeros(shape, device=context.device)) for shape in _SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(context.device)
    return parameters, _flat(torch, parameters).double()


def _flat(torch: Any, parameters: List[Any]) -> Any:
    return torch.cat([parameter.grad.cpu().flatten() for parameter in parameters])


def _parameters(context: Context) -> List[Any]:
    """Those of the timed transformer, with gradients."""
    torch = context.torch
    network = _model.transformer(torch, _model.timed(context), context.device)
    parameters = list(network.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return parameters


def _seconds(context: Context, parameters: List[Any], more: Dict[str, Any]) -> List[float]:
    clip = context.torch.nn.utils.clip_grad_norm_
    return context.seconds(lambda: clip(parameters, 1e9, **more), least=0.2, rounds=3)
