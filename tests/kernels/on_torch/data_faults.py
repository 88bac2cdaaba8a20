"""What tests plant in transfers, memory, loading and headroom; run by an interpreter that has torch with PROGRAM NAME.

PROGRAM is the kernels' own, whose lines make the folder a package. Prints one JSON object.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__mp_main__")

import torch  # type: ignore[import-not-found,unused-ignore]
from gpudoctor_kernels.eager import Context  # type: ignore[import-not-found]
from gpudoctor_kernels.training import (  # type: ignore[import-not-found]
    _dataset,
    headroom,
    memory,
    no_grad,
    pinned,
    transfers,
)

CONTEXT = Context(torch, "cpu", 1)
TRIALS = 300


def flips() -> dict[str, Any]:
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


def copies() -> dict[str, Any]:
    """A device that loses the last bit of what it is sent."""
    usual = torch.Tensor.to

    def to(tensor: Any, *args: Any, **options: Any) -> Any:
        sent = usual(tensor, *args, **options)
        if options.get("copy") and sent.dtype == torch.int16 and sent.is_contiguous() and sent.numel():
            sent.view(-1)[-1] ^= 1
        return sent

    torch.Tensor.to = to
    return _brief(transfers.run(CONTEXT, transfers.KERNELS[0]))


def overlap() -> dict[str, Any]:
    """Compute that began before its batch was there."""
    usual = pinned._Batches._compute

    def compute(batches: Any, at: int, steps: int) -> None:
        usual(batches, at, steps)
        if at == 2:
            batches.there[at][17] -= 1

    pinned._Batches._compute = compute
    return _brief(pinned.run(CONTEXT, pinned.KERNELS[0]))


def block() -> dict[str, Any]:
    """Two blocks of memory that are the same."""
    usual, blocks = torch.full, []

    def full(*args: Any, **options: Any) -> Any:
        blocks.append(usual(*args, **options))
        if len(blocks) == 7:
            blocks[3].view(-1)[-1] = 99.0
        return blocks[-1]

    torch.full = full
    return _brief(memory.run(CONTEXT, memory.KERNELS[0]))


def layer() -> dict[str, Any]:
    """A layer that is wrong in one value without gradients alone."""
    usual = torch.nn.functional.linear

    def linear(*args: Any) -> Any:
        out = usual(*args)
        if not torch.is_grad_enabled() and out.dtype == torch.float32:
            out[3, 5] += 1
        return out

    torch.nn.functional.linear = linear
    return _brief(no_grad.run(CONTEXT, no_grad.KERNELS[0]))


def loss() -> dict[str, Any]:
    """A loss that is not finite."""
    usual = torch.nn.functional.cross_entropy

    def cross_entropy(said: Any, goals: Any) -> Any:
        return usual(said, goals) * float("nan")

    torch.nn.functional.cross_entropy = cross_entropy
    return _brief(headroom.run(CONTEXT, headroom.KERNELS[0]))


def _brief(outcome: Any) -> dict[str, Any]:
    return {"right": outcome.right, "differ": outcome.differ, "words": outcome.words}


PLANTED: dict[str, Callable[[], dict[str, Any]]] = {
    made.__name__: made for made in (flips, copies, overlap, block, layer, loss)
}

if __name__ == "__main__":
    print(json.dumps(PLANTED[sys.argv[2]]()))  # noqa: T201 - its answer
