"""Automatic mixed precision: how much faster a training step is, and whether its gradients are still those of fp32."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager import Context, median_and_spread
from ..eager._check import DTYPES
from . import _model

KERNELS = (
    Spec("readiness.amp.fp16", "fp16 autocast, GradScaler", "×", "50 M parameters, 32 × 128 tokens", seconds=40.0),
    Spec("readiness.amp.bf16", "bf16 autocast", "×", "50 M parameters, 32 × 128 tokens", seconds=40.0),
)
_STEPS = 20
_MOST_SKIPPED = 6
"""Steps that GradScaler may skip while it finds its scale: from 65536 down to 1024."""


class TrainingResult(NamedTuple):
    """Results of some training steps of a small transformer in 16 bits."""

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
        """What is wrong, in words; empty if nothing is."""
        faults = []
        if not self.apart <= self.bound:
            faults.append("gradients are %.2g of their norm from float64's, %.2g at most" % (self.apart, self.bound))
        nonfinite = [at for at, loss in enumerate(self.losses) if not math.isfinite(loss)]
        if nonfinite:
            faults.append("the loss is not finite at step %d" % nonfinite[0])
        if self.skipped > _MOST_SKIPPED:
            faults.append(
                "the scaler skipped %d of %d steps: its scale fell to %g" % (self.skipped, _STEPS, self.scale)
            )
        return "; ".join(faults)


def run(context: Context, spec: Spec) -> Outcome:
    """Check training steps of a small transformer in the type that the id ends in (fp16, bf16) against float64.

    Value: speedup of a large one's step over fp32, timed even if that is wrong. `CannotRun` without such autocast.
    """
    torch = context.torch
    name = spec.id.rpartition(".")[2]
    dtype = getattr(torch, DTYPES[name])
    _model.use_full_fp32(torch)
    _require_autocast(context, dtype)
    result = _train_small(context, dtype)
    size = _model.timed_size(context)
    plain, spread = median_and_spread(_step_seconds(context, size, None))
    mixed, _ = median_and_spread(_step_seconds(context, size, dtype))
    native = dtype != torch.bfloat16 or _model.native_bf16(context)
    return Outcome(
        value=plain / mixed,
        spread=spread,
        right=not result.faults,
        words=summary(result, name, plain, mixed, native),
        advice=advice(plain / mixed, name, native, context.device.type),
        details={
            "step_fp32_ms": 1e3 * plain,
            "step_ms": 1e3 * mixed,
            "apart": result.apart,
            "apart_most": result.bound,
            "cosine": result.cosine,
            "skipped": result.skipped,
            "scale": result.scale,
            "first_loss": result.losses[0],
            "last_loss": result.losses[-1],
            "samples": size.samples,
        },
    )


def summary(result: TrainingResult, dtype_name: str, plain: float, mixed: float, native: bool) -> str:
    """Sentences on mixed precision; `plain` and `mixed`: seconds of a step in fp32 and with that type."""
    text = "A training step takes %.3g ms in fp32 without TF32, %.3g ms with %s." % (
        1e3 * plain,
        1e3 * mixed,
        dtype_name,
    )
    if not native:
        text += " This GPU has no bf16 units: it multiplies bf16 in fp32."
    if result.faults:
        return "%s Wrong: %s." % (text, result.faults)
    text += " Gradients are apart from float64's by %.2g of their norm (cosine %.5f); all %d losses are finite." % (
        result.apart,
        result.cosine,
        len(result.losses),
    )
    return text + (" The scaler skipped %d steps." % result.skipped if result.skipped else "")


def advice(speedup: float, dtype_name: str, native: bool, kind: str = "cuda") -> str:
    """Whether to train in mixed precision and how, by the speedup of a step; `native`: the device has units for it."""
    if not native:
        return "Train in fp16 with GradScaler on this GPU; bf16 is for compute capability 8.0 and later."
    if speedup < 1.1:
        return (
            "Nothing is won here: matmuls do not limit the step, or run no faster in %s."
            " readiness.utilization says what does." % dtype_name
        )
    scaled = " and torch.amp.GradScaler" if dtype_name == "fp16" else ", which needs no GradScaler"
    text = "Train in torch.autocast('%s', dtype=torch.%s)%s." % (kind, DTYPES[dtype_name], scaled)
    return text if speedup >= 1.5 else text + " Much of the step is not matmuls: larger batches and torch.compile help."


def _require_autocast(context: Context, dtype: Any) -> None:
    """Raise `CannotRun` where autocast does not make products run in that type."""
    torch = context.torch
    kind = context.device.type
    ones = torch.ones(2, 2, device=context.device)
    try:
        with torch.autocast(kind, dtype=dtype):
            result_dtype = (ones @ ones).dtype
    except RuntimeError as error:
        if not is_unsupported(str(error)):
            raise
        raise CannotRun("torch %s: %s" % (torch.__version__, error)) from error
    if result_dtype != dtype:
        raise CannotRun("torch %s has no autocast to %s on a %s" % (torch.__version__, dtype, kind))


def is_unsupported(message: str) -> bool:
    """True if an error only says that autocast cannot run here: any but a "CUDA error", and CUDA's NOT_SUPPORTED."""
    return "CUDA error" not in message or "NOT_SUPPORTED" in message


def _train_small(context: Context, dtype: Any) -> TrainingResult:
    """Train a small transformer for 20 steps in that type; its first gradients are compared with float64."""
    torch = context.torch
    network, inputs, goals = _model.small_problem(context)
    wanted = _model.reference(network, inputs, goals)
    step = _TrainingStep(context, network, dtype)
    inputs, goals = inputs.to(context.device), goals.to(context.device)
    losses = [step(inputs, goals)]
    apart, cosine = _model.gradient_distance(torch, step.gradients, wanted)
    skipped = 0
    for _ in range(_STEPS - 1):
        before = step.scale
        losses.append(step(inputs, goals))
        skipped += step.scale < before
    finite = [float(loss) for loss in losses]
    return TrainingResult(apart, cosine, _model.gradient_bound(torch, dtype), finite, skipped, step.scale)


class _TrainingStep:
    """A training step in mixed precision, or in fp32 for None; fp16 uses a GradScaler where there is one."""

    def __init__(self, context: Context, network: Any, dtype: Any) -> None:
        self._torch = context.torch
        self._kind = context.device.type
        self._dtype = dtype
        self._network = network.to(context.device)
        self._optimizer = self._torch.optim.SGD(network.parameters(), lr=1e-3)
        self._scaler = _model.gradient_scaler(self._torch, self._kind) if dtype == self._torch.float16 else None

    def __call__(self, inputs: Any, goals: Any) -> Any:
        """Run one step; the loss, left on the device."""
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
        """The gradients of the last step, unscaled."""
        return _model.gradients(self._network)

    @property
    def scale(self) -> float:
        """The loss scale; 1 without a scaler."""
        return float(self._scaler.get_scale()) if self._scaler else 1.0

    def _loss(self, inputs: Any, goals: Any) -> Any:
        """The loss of the batch; the network runs under autocast, the loss in float32."""
        if self._dtype is None:
            return _model.loss(self._network(inputs), goals)
        with self._torch.autocast(self._kind, dtype=self._dtype):
            outputs = self._network(inputs)
        return _model.loss(outputs.float(), goals)


def _step_seconds(context: Context, size: _model.Size, dtype: Any) -> List[float]:
    """Seconds of a training step of the large model, in each of three series."""
    torch = context.torch
    step = _TrainingStep(context, _model.transformer(torch, size, context.device), dtype)
    inputs, goals = (side.to(context.device) for side in _model.batch(torch, size, context.generator(4)))
    return context.seconds(lambda: step(inputs, goals), least=0.5, rounds=3)
