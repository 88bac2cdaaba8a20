"""The largest batch of a small transformer's training step that fits, found without ever running out of memory."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ._rung import Context
from ._words import size

KERNELS = (Spec("readiness.headroom", "largest batch that fits", "sequences", "a transformer, 512 tokens each"),)

_MOST_BATCH = 4096
_SECONDS = 4.0
_MARGIN = 1.1
"""Of what a step is estimated to take: fragments, work spaces of libraries."""
_ALIKE = 0.05
"""Rates that differ by less are the same."""


class Tried(NamedTuple):
    """A step of that batch size: bytes at its most beside the model's own, sequences a second, its loss."""

    batch: int
    bytes: int
    rate: float
    loss: float


def run(context: Context, _: Spec) -> Outcome:
    """Batches grow while the next is sure to fit in half of what nobody holds."""
    step = _Step(context)
    free = context.free()
    until = time.monotonic() + _SECONDS
    tried = grown(step.tried, free, lambda: time.monotonic() < until)
    if not tried:
        raise CannotRun("not one sequence fits: %s may be taken" % size(free))
    best = max(tried, key=lambda one: one.batch)
    finite = [math.isfinite(one.loss) for one in tried]
    ended = best.batch >= _MOST_BATCH or time.monotonic() >= until
    judged = finite.count(False)
    return Outcome(
        value=float(best.batch),
        right=not judged and step.right(),
        differ=judged,
        compared=len(tried),
        words="A step of %d sequences takes %s of the %s that may be taken%s and does %.4g sequences/s; %s each."
        % (best.batch, size(best.bytes), size(free), ", not the most," if ended else "", best.rate, _each(tried)),
        advice=advice(tried),
        details={
            "sequences_per_s": best.rate,
            "bytes": best.bytes,
            "may_take_bytes": free,
            "batches": [one.batch for one in tried],
            "rates": [one.rate for one in tried],
        },
    )


def grown(attempt: Callable[[int], Tried], free: int, may_go_on: Callable[[], bool]) -> List[Tried]:
    """Batch sizes tried: doubled, then bisected, each only where its estimate fits in `free` bytes."""
    tried = [attempt(1)]
    if tried[0].bytes > free:
        return []
    size_of, known_too_large = 2, _MOST_BATCH + 1
    while may_go_on():
        if _MARGIN * estimate(tried, size_of) <= free:
            tried.append(attempt(size_of))
        else:
            known_too_large = size_of
        most = max(one.batch for one in tried)
        size_of = 2 * most if 2 * most < known_too_large else (most + known_too_large) // 2
        if known_too_large - most <= max(1, most // 8) or size_of > _MOST_BATCH:
            break
    return sorted(tried, key=lambda one: one.batch)


def estimate(tried: List[Tried], batch: int) -> float:
    """Bytes of a step of that size: in proportion to the largest tried, or along the line through the last two."""
    last = max(tried, key=lambda one: one.batch)
    if len(tried) < 2:
        return last.bytes * batch / last.batch
    before = sorted(tried, key=lambda one: one.batch)[-2]
    slope = max(0.0, (last.bytes - before.bytes) / (last.batch - before.batch))
    return last.bytes + slope * (batch - last.batch)


def advice(tried: List[Tried]) -> str:
    """From the batch sizes that were tried and their rates."""
    most = tried[-1]
    enough = next(one for one in tried if one.rate >= (1 - _ALIKE) * max(each.rate for each in tried))
    if enough.batch <= most.batch // 2:
        return (
            "Beyond %d sequences a step gains no speed: give the rest of the memory to longer sequences or a larger"
            " model." % enough.batch
        )
    return (
        "Speed still grows where memory ends: torch.utils.checkpoint trades compute for room. For larger batches"
        " without it, accumulate gradients over several steps of %d." % most.batch
    )


def _each(tried: List[Tried]) -> str:
    last = tried[-1]
    return size(last.bytes / last.batch)


class _Step:
    """Forward, backward and AdamW of a transformer for the next token, of `tokens` tokens a sequence."""

    def __init__(self, context: Context) -> None:
        torch = context.torch
        self.context = context
        self.vocabulary, width, heads, layers, self.tokens = (
            (64, 32, 2, 1, 16) if context.on_cpu else (8192, 512, 8, 6, 512)
        )
        torch.manual_seed(context.seed)
        nn = torch.nn
        blocks = [
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        ]
        self.plain = nn.Sequential(nn.Embedding(self.vocabulary, width), *blocks, nn.Linear(width, self.vocabulary))
        context.need(5 * 4 * sum(one.numel() for one in self.plain.parameters()))
        self.model = _copy(self.plain).to(context.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._once(1)

    def tried(self, batch: int) -> Tried:
        """Two steps: what they take at the most, and the second one's time."""
        self._once(batch)
        loss, most, seconds = self._measured(batch)
        return Tried(batch, most, batch / seconds, loss)

    def right(self) -> bool:
        """Whether the loss of one sequence, with the first weights, is that of float64 on the CPU."""
        there = _copy(self.plain).to(self.context.device)
        here = _copy(self.plain).double()
        words = self._words(1, "cpu")
        found = float(self._loss(there, words.to(self.context.device)).detach())
        return abs(found - float(self._loss(here, words).detach())) <= 5e-3 * abs(found)

    def _once(self, batch: int) -> float:
        self.optimizer.zero_grad(set_to_none=False)
        loss = self._loss(self.model, self._words(batch, self.context.device))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _measured(self, batch: int) -> Tuple[float, int, float]:
        """Loss, bytes at the most beside what is always held, seconds."""
        torch, context = self.context.torch, self.context
        before, saved = 0, _Saved()
        if not context.on_cpu:
            before = int(torch.cuda.memory_allocated(context.device))
            torch.cuda.reset_peak_memory_stats(context.device)
        context.synchronize()
        began = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor) if context.on_cpu else _Open():
            loss = self._once(batch)
        context.synchronize()
        seconds = max(time.perf_counter() - began, 1e-9)
        peak = saved.total() if context.on_cpu else int(torch.cuda.max_memory_reserved(context.device)) - before
        return loss, max(peak, 1), seconds

    def _words(self, batch: int, device: Any) -> Any:
        words = self.context.torch.randint(
            0, self.vocabulary, (batch, self.tokens + 1), generator=self.context.generator(7)
        )
        return words.to(device)

    def _loss(self, model: Any, words: Any) -> Any:
        said = model(words[:, :-1]).flatten(0, 1)
        return self.context.torch.nn.functional.cross_entropy(said, words[:, 1:].flatten())


class _Open:
    """A context that does nothing (contextlib.nullcontext by another name would read no better)."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> Optional[bool]:
        return None


class _Saved:
    """What autograd keeps for the backward pass, by storage."""

    def __init__(self) -> None:
        self._bytes: Dict[int, int] = {}

    def keep(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        self._bytes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def total(self) -> int:
        return sum(self._bytes.values())


def _copy(model: Any) -> Any:
    import copy

    return copy.deepcopy(model)
