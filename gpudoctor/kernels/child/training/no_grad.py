"""What evaluation saves without gradients: the memory that autograd would keep, and the time."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from .._kernel import Outcome, Spec
from ..eager._check import exact
from ._meter import Meter
from ._rung import Context
from ._words import size

KERNELS = (Spec("readiness.no_grad", "memory that no_grad saves", "%", "16 layers, batch 4096"),)

_LAYERS, _WIDTH = 16, 256
_BATCH, _BATCH_CPU = 4096, 512


def run(context: Context, _: Spec) -> Outcome:
    """One forward pass with gradients, under no_grad and under inference_mode: equal outputs, each exact."""
    torch = context.torch
    model, batch = _whole_numbers(context)
    reference = _forward(torch, [(w.double(), b.double()) for w, b in model], batch.double())
    there = [(w.to(context.device).requires_grad_(), b.to(context.device).requires_grad_()) for w, b in model]
    here = batch.to(context.device)
    context.need(3 * _LAYERS * here.numel() * 4)

    modes: Dict[str, Callable[[], Any]] = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }
    seen = {name: _measured(context, mode, lambda: _forward(torch, there, here)) for name, mode in modes.items()}
    judged = [exact(torch, result, reference) for result, _, _ in seen.values()]
    peak = {name: most for name, (_, most, _) in seen.items()}
    time = {name: seconds for name, (_, _, seconds) in seen.items()}
    share = 1 - peak["no_grad"] / peak["grad"]
    faster = {name: time["grad"] / time[name] for name in ("no_grad", "inference_mode")}
    wrong = next((one.words for one in judged if one.differ), "")
    return Outcome(
        value=100 * share,
        right=not wrong,
        differ=sum(one.differ for one in judged),
        compared=sum(one.compared for one in judged),
        words="A forward pass takes %s with gradients and %s without; it is %.2f times as fast under no_grad and %.2f"
        " times under inference_mode. %s"
        % (size(peak["grad"]), size(peak["no_grad"]), faster["no_grad"], faster["inference_mode"], wrong),
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
    """From the share of a forward pass's memory that is saved."""
    if share < 0.1:
        return "no_grad saved next to nothing here: something keeps activations alive, such as hooks or anomaly mode."
    return "Evaluate under torch.inference_mode(): batches there may be up to %.1f times as large." % (1 / (1 - share))


def _whole_numbers(context: Context) -> Tuple[Any, Any]:
    """Weights and inputs so small that every sum is exact, even in TF32; Hardtanh keeps them small."""
    torch = context.torch
    generator = context.generator()
    size_of = _BATCH_CPU if context.on_cpu else _BATCH

    def numbers(*shape: int) -> Any:
        return torch.randint(-1, 2, shape, generator=generator).float()

    return [(numbers(_WIDTH, _WIDTH), numbers(_WIDTH)) for _ in range(_LAYERS)], 4 * numbers(size_of, _WIDTH)


def _forward(torch: Any, layers: Any, batch: Any) -> Any:
    for weight, bias in layers:
        batch = torch.nn.functional.hardtanh(torch.nn.functional.linear(batch, weight, bias), -4.0, 4.0)
    return batch


def _measured(context: Context, mode: Callable[[], Any], forward: Callable[[], Any]) -> Tuple[Any, int, float]:
    """The output, the bytes taken at the most beside what was there before, and the seconds."""
    with mode():
        forward()
        with Meter(context) as meter:
            result = forward()
        seconds = min(context.seconds(forward, least=0.2, rounds=3))
    least = 2 * result.numel() * result.element_size() if context.on_cpu else 1  # a layer's input and its output
    return result, meter.bytes + least, seconds
