"""Automatic mixed precision: how much faster a training step is, and whether its gradients are still those of fp32."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager._rung import Context, median_and_spread
from . import _model, _whole
from ._precision import autocast, full, native_bf16, scaler

KERNELS = (
    Spec("readiness.amp.fp16", "fp16 autocast, GradScaler", "×", "50 M parameters, 32 × 128 tokens", seconds=40.0),
    Spec("readiness.amp.bf16", "bf16 autocast", "×", "50 M parameters, 32 × 128 tokens", seconds=40.0),
)
_STEPS = 20
_MOST_SKIPPED = 6
"""Steps that GradScaler may skip while it finds its scale: from 65536 down to 1024."""


class Trained(NamedTuple):
    """What some steps of training in 16 bits were like."""

    apart: float
    """The norm of the first gradient's difference from float64's, as a share of its own."""
    cosine: float
    bound: float
    losses: List[float]
    skipped: int
    scale: float
    """Of the losses, at the end; 1 without a scaler."""

    @property
    def faults(self) -> str:
        """What is wrong, in words; nothing where all is right."""
        found = []
        if not self.apart <= self.bound:
            found.append("gradients are %.2g of their norm from float64's, %.2g at most" % (self.apart, self.bound))
        lost = [at for at, loss in enumerate(self.losses) if not math.isfinite(loss)]
        if lost:
            found.append("the loss is not finite at step %d" % lost[0])
        if self.skipped > _MOST_SKIPPED:
            found.append("the scaler skipped %d of %d steps: its scale fell to %g" % (self.skipped, _STEPS, self.scale))
        return "; ".join(found)


def run(context: Context, spec: Spec) -> Outcome:
    """A small transformer is checked against float64 on the CPU; a large one is timed against fp32."""
    torch = context.torch
    short = spec.id.rpartition(".")[2]
    dtype = torch.bfloat16 if short == "bf16" else torch.float16
    full(torch)
    _require(context, dtype)
    trained = _trained(context, dtype)
    size = _model.timed(context)
    plain, spread = median_and_spread(_timed(context, size, None))
    mixed, _ = median_and_spread(_timed(context, size, dtype))
    native = dtype != torch.bfloat16 or native_bf16(context)
    return Outcome(
        value=plain / mixed,
        spread=spread,
        right=not trained.faults,
        words=words(trained, short, plain, mixed, native),
        advice=advice(plain / mixed, short, native, context.device.type),
        details=dict(_details(trained, plain, mixed), samples=size.samples),
    )


def words(trained: Trained, short: str, plain: float, mixed: float, native: bool) -> str:
    """What the figures mean; seconds of a step in fp32 and in mixed precision."""
    said = "A training step takes %.3g ms in fp32 without TF32, %.3g ms with %s." % (1e3 * plain, 1e3 * mixed, short)
    if not native:
        said += " This GPU has no bf16 units: it multiplies bf16 in fp32."
    if trained.faults:
        return "%s Wrong: %s." % (said, trained.faults)
    said += " Gradients are apart from float64's by %.2g of their norm (cosine %.5f); all %d losses are finite." % (
        trained.apart,
        trained.cosine,
        len(trained.losses),
    )
    return said + (" The scaler skipped %d steps." % trained.skipped if trained.skipped else "")


def advice(speedup: float, short: str, native: bool, kind: str = "cuda") -> str:
    """From how many times faster a step is on that kind of device."""
    if not native:
        return "Train in fp16 with GradScaler on this GPU; bf16 is for compute capability 8.0 and later."
    if speedup < 1.1:
        return (
            "Nothing is won here: matmuls do not limit the step, or run no faster in %s."
            " readiness.utilization says what does." % short
        )
    scaled = " and torch.amp.GradScaler" if short == "fp16" else ", which needs no GradScaler"
    said = "Train in torch.autocast('%s', dtype=torch.%s)%s." % (kind, _NAMES[short], scaled)
    return said if speedup >= 1.5 else said + " Much of the step is not matmuls: larger batches and torch.compile help."


_NAMES = {"fp16": "float16", "bf16": "bfloat16"}


def _require(context: Context, dtype: Any) -> None:
    """Raise `CannotRun` where autocast leaves matmuls as they are."""
    torch = context.torch
    kind = context.device.type
    one = torch.ones(2, 2, device=context.device)
    try:
        with autocast(torch, kind, dtype):
            made = (one @ one).dtype
    except RuntimeError as error:
        if not cannot(str(error)):
            raise
        raise CannotRun("torch %s: %s" % (torch.__version__, error)) from error
    if made != dtype:
        raise CannotRun("torch %s has no autocast to %s on a %s" % (torch.__version__, dtype, kind))


def cannot(said: str) -> bool:
    """Whether torch says there that it has no such type here, not that the GPU failed."""
    return "CUDA error" not in said or "NOT_SUPPORTED" in said


def _trained(context: Context, dtype: Any) -> Trained:
    torch = context.torch
    network, inputs, goals = _model.small(context)
    wanted = _model.reference(network, inputs, goals)
    step = _Step(context, network, dtype)
    inputs, goals = inputs.to(context.device), goals.to(context.device)
    losses = [step(inputs, goals)]
    apart, cosine = _model.distance(torch, step.gradients, wanted)
    skipped = 0
    for _ in range(_STEPS - 1):
        before = step.scale
        losses.append(step(inputs, goals))
        skipped += step.scale < before
    finite = [float(loss) for loss in losses]
    return Trained(apart, cosine, _model.bound(torch, dtype), finite, skipped, step.scale)


class _Step:
    """A step of training: in mixed precision, or in fp32 where the dtype is None."""

    def __init__(self, context: Context, network: Any, dtype: Any) -> None:
        self._torch = context.torch
        self._kind = context.device.type
        self._dtype = dtype
        self._network = network.to(context.device)
        self._optimizer = self._torch.optim.SGD(network.parameters(), lr=1e-3)
        self._scaler = scaler(self._torch, self._kind) if dtype == self._torch.float16 else None

    def __call__(self, inputs: Any, goals: Any) -> Any:
        """The loss, left on the device."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(inputs, goals)
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.unscale_(self._optimizer)
            self._scaler.step(self._optimizer)
            self._scaler.update()
        return loss.detach()

    @property
    def gradients(self) -> List[Any]:
        """As the step left them, with no scale in them."""
        return _whole.gradients(self._network)

    @property
    def scale(self) -> float:
        """Of the losses."""
        return float(self._scaler.get_scale()) if self._scaler else 1.0

    def _loss(self, inputs: Any, goals: Any) -> Any:
        if self._dtype is None:
            return _model.loss(self._network(inputs), goals)
        with autocast(self._torch, self._kind, self._dtype):
            outputs = self._network(inputs)
        return _model.loss(outputs.float(), goals)


def _timed(context: Context, size: _model.Size, dtype: Any) -> List[float]:
    """Seconds of a step of the large model, in each of some series."""
    torch = context.torch
    step = _Step(context, _model.transformer(torch, size, context.device), dtype)
    inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
    return context.seconds(lambda: step(inputs, goals), least=0.5, rounds=3)


def _details(trained: Trained, plain: float, mixed: float) -> Dict[str, Any]:
    return {
        "step_fp32_ms": 1e3 * plain,
        "step_ms": 1e3 * mixed,
        "apart": trained.apart,
        "apart_most": trained.bound,
        "cosine": trained.cosine,
        "skipped": trained.skipped,
        "scale": trained.scale,
        "first_loss": trained.losses[0],
        "last_loss": trained.losses[-1],
    }
