"""What tests plant in a training step; run by an interpreter that has torch: ``training_faults.py PROGRAM NAME``.

PROGRAM is the kernels' own, whose lines make the folder a package. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__mp_main__")

import torch  # type: ignore[import-not-found,unused-ignore]
from gpudoctor_kernels import _ranks  # type: ignore[import-not-found]
from gpudoctor_kernels.eager import Context  # type: ignore[import-not-found]
from gpudoctor_kernels.training import _model, accumulation, amp, clipping, parallel, utilization  # type: ignore[import-not-found]

CONTEXT = Context(torch, "cpu", 1)


def _limits(blind: bool = False) -> dict[str, Any]:
    """What limits a loop of light parts of which one is heavy."""
    light, heavy = torch.ones(8), torch.ones(512, 512)

    def tiny(count: int) -> None:
        for _ in range(count):
            light.add(1.0)

    loops = {
        "data": utilization.Loop(lambda: time.sleep(0.02), lambda _: None, lambda _: tiny(10)),
        "transfer": utilization.Loop(lambda: torch.ones(8 << 20), lambda batch: [batch.clone() for _ in range(8)], len),
        "launch": utilization.Loop(lambda: None, lambda _: None, lambda _: tiny(1500)),
        "compute": utilization.Loop(lambda: None, lambda _: None, lambda _: [heavy @ heavy for _ in range(8)]),
    }
    if blind:
        torch.profiler.profile = _broken
        del loops["launch"]
    found = {name: utilization.measure_loop(CONTEXT, loop, 3) for name, loop in loops.items()}
    return {name: [seen.shares.largest, seen.blind] for name, seen in found.items()}


def _broken(**_: Any) -> None:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def _flips() -> dict[str, Any]:
    """Of flipped bits of random gradients how many were seen; a zero that becomes -0.0 is none."""
    network = _model.exact_network(torch, CONTEXT.generator(1))
    inputs, goals = _model.exact_batch(torch, CONTEXT.generator(2), 1)
    wanted = _model.reference(network, inputs, goals, _model.exact_loss)
    _model.exact_loss(network(inputs), goals).backward()
    clean = _model.check_gradients(torch, network, wanted).differ
    generator, seen, flipped = CONTEXT.generator(9), 0, 0
    for gradient in _model.gradients(network):
        for _ in range(25):
            at = int(torch.randint(0, gradient.numel(), (1,), generator=generator))
            bit = int(torch.randint(0, 32, (1,), generator=generator))
            bits = gradient.view(-1).view(torch.int32)
            before = gradient.view(-1)[at].item()
            bits[at] ^= -(2**31) if bit == 31 else 1 << bit
            flipped += gradient.view(-1)[at].item() != before
            seen += _model.check_gradients(torch, network, wanted).differ
            bits[at] ^= -(2**31) if bit == 31 else 1 << bit
    return {"clean": clean, "flipped": flipped, "seen": seen}


def _largest_sum() -> dict[str, Any]:
    """The most that any sum's terms make together, all taken as positive, in units of what they are multiples of."""
    most = 0.0
    for seed in range(8):
        context = Context(torch, "cpu", seed)
        first, _, second = _model.exact_network(torch, context.generator(1)).double().requires_grad_(False)
        inputs, goals = (side.double() for side in _model.exact_batch(torch, context.generator(2), 8))
        hidden = first(inputs).relu()
        error = second(hidden) - goals
        back = (error @ second.weight).abs() * (hidden > 0)
        sums = (
            hidden @ second.weight.abs().t(),
            error.abs().t() @ hidden,
            error.abs() @ second.weight.abs(),
            back.t() @ inputs.abs(),
        )
        most = max(most, *(float(one.max()) for one in sums))
    return {"most": most}


def _outcomes() -> dict[str, Any]:
    """Of kernels that run on a torch in which something is planted."""
    clip, chunk = torch.nn.utils.clip_grad_norm_, torch.Tensor.chunk
    torch.nn.utils.clip_grad_norm_ = lambda parameters, most, norm_type=2.0: clip(parameters, most / 2, norm_type)
    clipped = clipping.run(CONTEXT, clipping.KERNELS[0])
    torch.Tensor.chunk = lambda tensor, count: chunk(tensor, count)[:-1]
    accumulated = accumulation.run(CONTEXT, accumulation.KERNELS[0])
    scale = torch.amp.GradScaler.scale
    torch.amp.GradScaler.scale = lambda scaler, loss: 2 * scale(scaler, loss)
    scaled = amp.run(CONTEXT, amp.KERNELS[0])
    return {
        name: [outcome.right, outcome.words]
        for name, outcome in (("clipping", clipped), ("accumulation", accumulated), ("amp", scaled))
    }


def _replicas_with(plant: str) -> dict[str, Any]:
    """What becomes of two ranks."""
    ask = {"way": "together", "devices": 2, "cpu": True, "seed": 1, "plant": plant}
    here = str(Path(__file__).resolve().parent)
    environ = {"PYTHONPATH": here, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    ends = _ranks.run_ranks("training_faults", 2, ask, 60.0, environ)
    seconds = time.monotonic() - began
    return {"faults": [end.words for end in _ranks.faults(ends)], "answers": [end.answer for end in ends], "s": seconds}


def rank(me: Any) -> Any:
    """One of these ranks."""
    if me.ask["plant"] == "no exchange":
        torch.nn.parallel.DistributedDataParallel = _NoExchange
    if me.ask["plant"] == "a death" and me.rank == 1:
        say = me.step
        me.step = lambda what: os.kill(os.getpid(), signal.SIGKILL) if what == "exchange gradients" else say(what)
    return parallel.rank(me)


class _NoExchange(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A wrapper that exchanges nothing."""

    def __init__(self, network: Any, **_: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Any) -> Any:
        return self.network(inputs)

    def no_sync(self) -> Any:
        return contextlib.nullcontext()


PLANTED: dict[str, Callable[[], dict[str, Any]]] = {
    "limits": _limits,
    "blind": lambda: _limits(blind=True),
    "flips": _flips,
    "sums": _largest_sum,
    "outcomes": _outcomes,
    "no exchange": lambda: _replicas_with("no exchange"),
    "a death": lambda: _replicas_with("a death"),
}

if __name__ == "__main__":
    print(json.dumps(PLANTED[sys.argv[2]]()))  # noqa: T201
