"""What evaluation saves without gradients: the memory that autograd would keep, and the time."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from .._kernel import Outcome, Spec
from ..eager import Context
from ..eager._check import exact
from . import Meter, format_bytes

KERNELS = (Spec("readiness.no_grad", "memory that no_grad saves", "%", "16 layers, batch 4096"),)

_LAYERS, _WIDTH = 16, 256
_BATCH, _BATCH_CPU = 4096, 512


def run(context: Context, _: Spec) -> Outcome:
    """Check and measure a forward pass with gradients and without; value: % of memory that no_grad saves."""
    torch = context.torch
    model, batch = _exact_model(context)
    reference = _forward(torch, [(w.double(), b.double()) for w, b in model], batch.double())
    model_on_device = [(w.to(context.device).requires_grad_(), b.to(context.device).requires_grad_()) for w, b in model]
    batch_on_device = batch.to(context.device)
    context.need(3 * _LAYERS * batch_on_device.numel() * 4)

    modes: Dict[str, Callable[[], Any]] = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }
    results = {
        name: _measure(context, mode, lambda: _forward(torch, model_on_device, batch_on_device))
        for name, mode in modes.items()
    }
    verdicts = [exact(torch, result, reference) for result, _, _ in results.values()]
    peak = {name: most for name, (_, most, _) in results.items()}
    time = {name: seconds for name, (_, _, seconds) in results.items()}
    share = 1 - peak["no_grad"] / peak["grad"]
    faster = {name: time["grad"] / time[name] for name in ("no_grad", "inference_mode")}
    wrong = next((verdict.words for verdict in verdicts if verdict.differ), "")
    return Outcome(
        value=100 * share,
        right=not wrong,
        differ=sum(verdict.differ for verdict in verdicts),
        compared=sum(verdict.compared for verdict in verdicts),
        words="A forward pass takes %s with gradients and %s without; it is %.2f times as fast under no_grad and %.2f"
        " times under inference_mode. %s"
        % (
            format_bytes(peak["grad"]),
            format_bytes(peak["no_grad"]),
            faster["no_grad"],
            faster["inference_mode"],
            wrong,
        ),
        advice=advice(share),
        details={
            "grad_bytes": peak["grad"],
            "no_grad_bytes": peak["no_grad"],
            "inference_mode_bytes": peak["inference_mode"],
            "no_grad_speedup": faster["no_grad"],
            "inference_mode_speedup": faster["inference_mode"],
        },
    )


def advice(share: float) -> str:
    """What to do in evaluation, by the share of memory (0 to 1) that no_grad saves."""
    if share < 0.1:
        return "no_grad saved next to nothing here: something keeps activations alive, such as hooks or anomaly mode."
    return "Evaluate under torch.inference_mode(): batches there may be up to %.1f times as large." % (1 / (1 - share))


def _exact_model(context: Context) -> Tuple[Any, Any]:
    """Layers (weight, bias) and a batch of whole numbers whose sums are exact, even in TF32."""
    torch = context.torch
    generator = context.generator()
    batch_size = _BATCH_CPU if context.on_cpu else _BATCH

    def numbers(*shape: int) -> Any:
        """Random -1, 0 or 1 of that shape in float32."""
        return torch.randint(-1, 2, shape, generator=generator).float()

    return [(numbers(_WIDTH, _WIDTH), numbers(_WIDTH)) for _ in range(_LAYERS)], 4 * numbers(batch_size, _WIDTH)


def _forward(torch: Any, layers: Any, batch: Any) -> Any:
    """The output of the layers, each followed by Hardtanh."""
    for weight, bias in layers:
        batch = torch.nn.functional.hardtanh(torch.nn.functional.linear(batch, weight, bias), -4.0, 4.0)
    return batch


def _measure(context: Context, mode: Callable[[], Any], forward: Callable[[], Any]) -> Tuple[Any, int, float]:
    """The output, peak bytes above those held before, and seconds of a forward pass in that mode; on a CPU, which
    counts only what autograd saves, a layer's input and output are added to the bytes.
    """
    with mode():
        forward()
        with Meter(context) as meter:
            result = forward()
        seconds = min(context.seconds(forward, least=0.2, rounds=3))
    least = 2 * result.numel() * result.element_size() if context.on_cpu else 1  # a layer's input and its output
    return result, meter.bytes + least, seconds
