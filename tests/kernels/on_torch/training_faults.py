"""What tests plant in a training step, in loading and in memory; run by an interpreter that has torch with PROGRAM.

PROGRAM is the kernels' own, whose lines make the folder a package. Prints a line of JSON for each: its name, and what
was found.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__mp_main__")

import torch  # type: ignore[import-not-found,unused-ignore]
from gpudoctor_kernels import _ranks  # type: ignore[import-not-found]
from gpudoctor_kernels.eager import Context  # type: ignore[import-not-found]
from gpudoctor_kernels.training import (  # type: ignore[import-not-found]
    _dataset,
    _model,
    accumulation,
    amp,
    clipping,
    headroom,
    memory,
    no_grad,
    parallel,
    pinned,
    transfers,
    utilization,
)

CONTEXT = Context(torch, "cpu", 1)
TRIALS = 300


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


def _copied_bits() -> dict[str, Any]:
    """Of one flipped bit in the copy of a tensor of each dtype, and in a loaded picture, how many were seen."""
    generator, seen, pictures = CONTEXT.generator(9), 0, _dataset.Pictures(16)
    for trial in range(TRIALS):
        name = transfers.DTYPES[trial % len(transfers.DTYPES)]
        sent = torch.randint(0, 2, (8, 64), generator=generator, dtype=torch.uint8).view(getattr(torch, name))
        got = sent.clone()
        memory_of = got.view(torch.uint8).view(-1)
        memory_of[int(torch.randint(0, memory_of.numel(), (1,), generator=generator))] ^= (
            1 if name == "bool" else 1 << trial % 8
        )
        seen += transfers.same_bits(torch, got, sent).differ == 1 and not transfers.same_bits(torch, sent, sent).differ
    loaded = 0
    for trial in range(TRIALS):
        batch = torch.stack([pictures[trial], pictures[trial + 1]])
        assert _dataset.wrong_sums(torch, pictures, trial, batch) == 0
        at = int(torch.randint(0, batch.numel(), (1,), generator=generator))
        batch.view(-1)[at] ^= 1 << trial % 8
        loaded += _dataset.wrong_sums(torch, pictures, trial, batch)
    return {"copied": seen, "loaded": loaded, "trials": TRIALS}


def _copies() -> dict[str, Any]:
    """A device that loses the last bit of what it is sent."""
    usual = torch.Tensor.to

    def to(tensor: Any, *args: Any, **options: Any) -> Any:
        sent = usual(tensor, *args, **options)
        if options.get("copy") and sent.dtype == torch.int16 and sent.is_contiguous() and sent.numel():
            sent.view(-1)[-1] ^= 1
        return sent

    torch.Tensor.to = to
    return _brief(transfers.run(CONTEXT, transfers.KERNELS[0]))


def _overlap() -> dict[str, Any]:
    """Compute that began before its batch was there."""
    usual = pinned._Batches._compute

    def compute(batches: Any, at: int, steps: int) -> None:
        usual(batches, at, steps)
        if at == 2:
            batches.there[at][17] -= 1

    pinned._Batches._compute = compute
    return _brief(pinned.run(CONTEXT, pinned.KERNELS[0]))


def _block() -> dict[str, Any]:
    """Two blocks of memory that are the same."""
    usual, blocks = torch.full, []

    def full(*args: Any, **options: Any) -> Any:
        blocks.append(usual(*args, **options))
        if len(blocks) == 7:
            blocks[3].view(-1)[-1] = 99.0
        return blocks[-1]

    torch.full = full
    return _brief(memory.run(CONTEXT, memory.KERNELS[0]))


def _layer() -> dict[str, Any]:
    """A layer that is wrong in one value without gradients alone."""
    usual = torch.nn.functional.linear

    def linear(*args: Any) -> Any:
        out = usual(*args)
        if not torch.is_grad_enabled() and out.dtype == torch.float32:
            out[3, 5] += 1
        return out

    torch.nn.functional.linear = linear
    return _brief(no_grad.run(CONTEXT, no_grad.KERNELS[0]))


def _loss() -> dict[str, Any]:
    """A loss that is not finite."""
    usual = torch.nn.functional.cross_entropy

    def cross_entropy(said: Any, goals: Any) -> Any:
        return usual(said, goals) * float("nan")

    torch.nn.functional.cross_entropy = cross_entropy
    return _brief(headroom.run(CONTEXT, headroom.KERNELS[0]))


def _brief(outcome: Any) -> dict[str, Any]:
    return {"right": outcome.right, "differ": outcome.differ, "words": outcome.words}


PLANTED: dict[str, Callable[[], dict[str, Any]]] = {
    "limits": _limits,
    "blind": lambda: _limits(blind=True),
    "flips": _flips,
    "sums": _largest_sum,
    "outcomes": _outcomes,
    "no exchange": lambda: _replicas_with("no exchange"),
    "a death": lambda: _replicas_with("a death"),
    "copied bits": _copied_bits,
    "copies": _copies,
    "overlap": _overlap,
    "block": _block,
    "layer": _layer,
    "loss": _loss,
}


def _each_alone() -> None:
    """Each in a process of its own, which need not import torch again."""
    for name, find in PLANTED.items():
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        try:
            print(json.dumps([name, find()]), flush=True)  # noqa: T201
        except BaseException:  # what ends here would go on with the others
            traceback.print_exc()
        os._exit(0)


if __name__ == "__main__":
    _each_alone()
