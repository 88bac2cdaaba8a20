"""What tests plant in a training step; run by an interpreter that has torch: ``training_faults.py PROGRAM NAME``.

PROGRAM is the kernels' own, whose lines make the folder a package. Prints one JSON object.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from typing import Any

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__mp_main__")

import torch  # type: ignore[import-not-found,unused-ignore]
from gpudoctor_kernels.eager._rung import Context  # type: ignore[import-not-found]
from gpudoctor_kernels.training import _profile, _whole, clipping  # type: ignore[import-not-found]

CONTEXT = Context(torch, "cpu", 1)


def _limits(blind: bool = False) -> dict[str, Any]:
    """What limits a loop of light parts of which one is heavy."""
    light, heavy = torch.ones(8), torch.ones(512, 512)

    def tiny(count: int) -> None:
        for _ in range(count):
            light.add(1.0)

    loops = {
        "data": _profile.Loop(lambda: time.sleep(0.02), lambda _: None, lambda _: tiny(10)),
        "transfer": _profile.Loop(lambda: torch.ones(8 << 20), lambda batch: [batch.clone() for _ in range(8)], len),
        "launch": _profile.Loop(lambda: None, lambda _: None, lambda _: tiny(3000)),
        "compute": _profile.Loop(lambda: None, lambda _: None, lambda _: [heavy @ heavy for _ in range(8)]),
    }
    if blind:
        torch.profiler.profile = _broken
        del loops["launch"]
    found = {name: _profile.watched(CONTEXT, loop, 4) for name, loop in loops.items()}
    return {name: [seen.shares.largest, seen.blind] for name, seen in found.items()}


def _broken(**_: Any) -> None:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def _flips() -> dict[str, Any]:
    """Of flipped bits of random gradients how many were seen; a zero that becomes -0.0 is none."""
    network = _whole.network(torch, CONTEXT.generator(1))
    inputs, goals = _whole.batch(torch, CONTEXT.generator(2), 1)
    wanted = _whole.reference(network, inputs, goals)
    _whole.loss(network(inputs), goals).backward()
    clean = _whole.judged(torch, network, wanted).differ
    generator, seen, flipped = CONTEXT.generator(9), 0, 0
    for gradient in _whole.gradients(network):
        for _ in range(50):
            at = int(torch.randint(0, gradient.numel(), (1,), generator=generator))
            bit = int(torch.randint(0, 32, (1,), generator=generator))
            bits = gradient.view(-1).view(torch.int32)
            before = gradient.view(-1)[at].item()
            bits[at] ^= -(2**31) if bit == 31 else 1 << bit
            flipped += gradient.view(-1)[at].item() != before
            seen += _whole.judged(torch, network, wanted).differ
            bits[at] ^= -(2**31) if bit == 31 else 1 << bit
    return {"clean": clean, "flipped": flipped, "seen": seen}


def _largest_sum() -> dict[str, Any]:
    """The most that any sum's terms make together, all taken as positive, in units of what they are multiples of."""
    most = 0.0
    for seed in range(8):
        context = Context(torch, "cpu", seed)
        first, _, second = _whole.network(torch, context.generator(1)).double()
        inputs, goals = (side.double() for side in _whole.batch(torch, context.generator(2), 8))
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


def _clipping() -> dict[str, Any]:
    """By a torch that divides by the number of tensors, too."""
    real = torch.nn.utils.clip_grad_norm_

    def clip(parameters: Any, max_norm: float, norm_type: float = 2.0) -> Any:
        return real(parameters, max_norm / 2, norm_type)

    torch.nn.utils.clip_grad_norm_ = clip
    outcome = clipping.run(CONTEXT, clipping.KERNELS[0])
    return {"right": outcome.right, "words": outcome.words}


PLANTED = {
    "limits": _limits,
    "blind": lambda: _limits(blind=True),
    "flips": _flips,
    "sums": _largest_sum,
    "clipping": _clipping,
}

if __name__ == "__main__":
    print(json.dumps(PLANTED[sys.argv[2]]()))  # noqa: T201
