"""A short training loop under torch.profiler: how much of the time the GPU computes, and what limits it."""

from __future__ import annotations

import math
from typing import Any, List

from .._kernel import Outcome, Spec
from ..eager._rung import Context
from . import _model
from ._precision import autocast, half
from ._profile import Loop, Seen, warmed, watched
from ._shares import Shares

KERNELS = (
    Spec("readiness.utilization", "GPU busy in training", "%", "50 M parameters, 64 × 128 tokens", seconds=30.0),
)
_SIZE = _model.TIMED._replace(samples=64)
_SIZE_CPU = _model.Size(width=256, layers=2, heads=4, samples=16, tokens=32)
_WARM, _STEPS = 3, 12
_WARM_CPU, _STEPS_CPU = 1, 4
_VOCABULARY = 4096
_POOL = 1024
"""Sequences that batches are picked from."""


def run(context: Context, _: Spec) -> Outcome:
    """A language model in half precision, fed as a DataLoader feeds it: picked, pinned, copied without waiting."""
    size = _SIZE_CPU if context.on_cpu else _model.fitting(_SIZE, context.free())
    losses: List[Any] = []
    loop = _loop(context, size, losses)
    warm, steps = (_WARM_CPU, _STEPS_CPU) if context.on_cpu else (_WARM, _STEPS)
    warmed(context, loop, warm)
    seen = watched(context, loop, steps)
    finite = math.isfinite(float(losses[0]))
    shares = {name: 100 * share for name, share in seen.shares._asdict().items()}
    return Outcome(
        value=shares["compute"],
        right=finite,
        words=("" if finite else "The loss is not finite. ") + words(seen, context.on_cpu),
        advice=advice(seen.shares),
        details=dict(
            shares,
            limit=seen.shares.largest,
            step_ms=1e3 * seen.seconds,
            kernels_a_step=seen.kernels,
            kernel_us=seen.kernel_us,
            samples=size.samples,
            by="clock" if seen.blind else "torch.profiler",
        ),
    )


def words(seen: Seen, on_cpu: bool) -> str:
    """What the shares mean, and how they were found."""
    shares = seen.shares
    said = "The %s computes in %.0f %% of a training loop, copies in %.0f %%, and waits in %.0f %% for data and in" % (
        "CPU" if on_cpu else "GPU",
        100 * shares.compute,
        100 * shares.transfer,
        100 * shares.data,
    )
    said += " %.0f %% for its next kernel." % (100 * shares.launch)
    if seen.kernels and seen.kernel_us:
        said += " A step is %.0f kernels of %.0f µs." % (seen.kernels, seen.kernel_us)
    if seen.blind:
        said += " By the clock alone, which tells them apart roughly: %s." % seen.blind
    return said


def advice(shares: Shares) -> str:
    """From the largest of the shares."""
    return _ADVICE[shares.largest]


_ADVICE = {
    "data": (
        "Data limit: more DataLoader workers with persistent_workers=True and prefetch_factor=4, pin_memory=True,"
        " less work per sample (decode smaller, or on the GPU)."
    ),
    "transfer": (
        "Transfers limit: pin_memory=True and .to(device, non_blocking=True), the next batch on a stream of its own,"
        " and fewer bytes (uint8 or bf16, converted on the GPU)."
    ),
    "launch": (
        "Launches limit: the program issues kernels more slowly than they run. torch.compile(mode='reduce-overhead')"
        " or CUDA graphs, a larger batch, fused=True for the optimizer; no .item() or print of a tensor in the step."
    ),
    "compute": (
        "The GPU is the limit, as it should be: faster by less work alone (bf16, torch.compile, attention by SDPA) or"
        " by more GPUs."
    ),
}


def _loop(context: Context, size: _model.Size, losses: List[Any]) -> Loop:
    """A language model on random tokens; each step puts its loss, still on the device, in place of the last."""
    torch = context.torch
    network = _model.language_model(torch, size, _VOCABULARY, context.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    pool = torch.randint(0, _VOCABULARY, (_POOL, size.tokens), generator=context.generator(5))

    def data() -> Any:
        picked = pool[torch.randint(0, _POOL, (size.samples,))]
        return picked if context.on_cpu else picked.pin_memory()

    def step(tokens: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, context.device.type, half(context)):
            outputs = network(tokens)
        loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    return Loop(data, lambda tokens: tokens.to(context.device, non_blocking=True), step)
