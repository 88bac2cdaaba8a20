"""The largest batch of a small transformer's training step that fits, found without ever running out of memory."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence

from .._kernel import CannotRun, Outcome, Spec, no_memory
from .._protocol import last_line
from . import _model
from ._meter import Meter
from ._precision import autocast, half
from ._rung import Context
from ._words import size

KERNELS = (Spec("readiness.headroom", "largest batch that fits", "sequences", "27 M parameters, 512 tokens each"),)

_SIZE, _WORDS = _model.Size(width=512, layers=6, heads=8, samples=1, tokens=512), 8192
_SIZE_CPU, _WORDS_CPU = _model.Size(width=32, layers=1, heads=2, samples=1, tokens=16), 64
_NEAR = 5e-3
"""How far, as a share, a loss in fp32 or TF32 may be from float64's."""
_MOST_BATCH = 4096
_SECONDS = 4.0
_STEPS = 2
"""Of each batch size."""
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
    """Batches grow while the next is sure to fit in what may be taken, and in the time there is."""
    free = context.free()
    step = _Step(context)
    until = time.monotonic() + _SECONDS
    with _limited(context, free):
        tried = grown(step.tried, free, lambda: until - time.monotonic())
    if not tried:
        raise CannotRun("not one sequence fits: %s may be taken" % size(free))
    lost = [one.batch for one in tried if not math.isfinite(one.loss)]
    most = tried[-1]
    return Outcome(
        value=float(most.batch),
        right=not lost and step.right(),
        differ=len(lost),
        compared=len(tried),
        words=words(tried, free, time.monotonic() < until),
        advice=advice(tried),
        details={
            "sequences_per_s": most.rate,
            "bytes": most.bytes,
            "may_take_bytes": free,
            "batches": [one.batch for one in tried],
            "rates": [one.rate for one in tried],
        },
    )


def grown(attempt: Callable[[int], Optional[Tried]], free: int, left: Callable[[], float]) -> List[Tried]:
    """Batch sizes tried: doubled, then bisected, each only where it should fit in `free` bytes and `left` seconds."""
    one = attempt(1)
    if one is None or one.bytes > free:
        return []
    tried = [one]
    too_large = _MOST_BATCH + 1
    while True:
        most = tried[-1].batch
        batch = 2 * most if 2 * most < too_large else (most + too_large) // 2
        if too_large - most <= max(1, most // 8) or _STEPS * batch / tried[-1].rate > left():
            return tried
        found = attempt(batch) if _MARGIN * estimate(tried, batch) <= free else None
        if found is None:
            too_large = batch
        else:
            tried.append(found)


def estimate(tried: Sequence[Tried], batch: int) -> float:
    """Bytes of a step of that size: in proportion to the only one tried, or along the line through the last two."""
    last = tried[-1]
    if len(tried) < 2:
        return last.bytes * batch / last.batch
    slope = max(0.0, (last.bytes - tried[-2].bytes) / (last.batch - tried[-2].batch))
    return last.bytes + slope * (batch - last.batch)


def words(tried: Sequence[Tried], free: int, in_time: bool) -> str:
    """What was found; `in_time`: whether memory, not time, was the end of it."""
    most = tried[-1]
    said = "Such a step takes %s of the %s that may be taken, %s a sequence, and does %.4g sequences/s." % (
        size(most.bytes),
        size(free),
        size(most.bytes / most.batch),
        most.rate,
    )
    if not in_time or most.bytes < free / 2:
        said += " Larger ones were not tried."
    lost = [one.batch for one in tried if not math.isfinite(one.loss)]
    return said + (" The loss is not finite with %s sequences." % ", ".join(map(str, lost)) if lost else "")


def advice(tried: Sequence[Tried]) -> str:
    """From the batch sizes that were tried and their rates."""
    most, fastest = tried[-1], max(one.rate for one in tried)
    enough = next(one for one in tried if one.rate >= (1 - _ALIKE) * fastest)
    if enough.batch <= most.batch // 2:
        return (
            "Beyond %d sequences a step gains no speed: give the rest of the memory to longer sequences or a larger"
            " model." % enough.batch
        )
    return (
        "Speed still grows with the batch: torch.utils.checkpoint makes room for larger ones. Where only the gradient"
        " is to be of more sequences, accumulate it over several steps of %d." % most.batch
    )


class _Step:
    """Forward, backward and AdamW of a transformer that guesses the next token, in mixed precision on a GPU."""

    def __init__(self, context: Context) -> None:
        torch = context.torch
        self.context = context
        self.size, self.words = (_SIZE_CPU, _WORDS_CPU) if context.on_cpu else (_SIZE, _WORDS)
        torch.manual_seed(context.seed)
        self.first = _model.language_model(torch, self.size, self.words, "cpu")
        context.need(5 * 4 * sum(one.numel() for one in self.first.parameters()))
        self.model = copy.deepcopy(self.first).to(context.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._once(1)

    def tried(self, batch: int) -> Optional[Tried]:
        """Two steps: what they take at the most, and the second one's time; None where that did not fit after all."""
        try:
            self._once(batch)
            with Meter(self.context) as meter:
                loss = self._once(batch)
        except RuntimeError as error:
            if not no_memory(last_line(error)):
                raise
            return None
        return Tried(batch, max(1, meter.kept), batch / meter.seconds, loss)

    def right(self) -> bool:
        """Whether the loss of one sequence, with the first weights in fp32, is that of float64 on the CPU."""
        there = copy.deepcopy(self.first).to(self.context.device)
        words = self._sequences(1)
        found = float(self._loss(there, words).detach())
        wanted = float(self._loss(copy.deepcopy(self.first).double(), words.cpu()).detach())
        return abs(found - wanted) <= _NEAR * wanted

    def _once(self, batch: int) -> float:
        torch = self.context.torch
        self.optimizer.zero_grad(set_to_none=False)
        with contextlib.nullcontext() if self.context.on_cpu else autocast(torch, "cuda", half(self.context)):
            loss = self._loss(self.model, self._sequences(batch))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _sequences(self, batch: int) -> Any:
        shape = batch, self.size.tokens + 1
        words = self.context.torch.randint(0, self.words, shape, generator=self.context.generator(7))
        return words.to(self.context.device)

    def _loss(self, model: Any, words: Any) -> Any:
        said = model(words[:, :-1]).flatten(0, 1)
        return self.context.torch.nn.functional.cross_entropy(said, words[:, 1:].flatten())


@contextlib.contextmanager
def _limited(context: Context, free: int) -> Iterator[None]:
    """Within, torch takes at most `free` bytes beside what it has: where an estimate errs, others do not pay for it."""
    if context.on_cpu:
        yield
        return
    cuda = context.torch.cuda
    whole = cuda.get_device_properties(context.device).total_memory
    cuda.set_per_process_memory_fraction(
        min(1.0, (cuda.memory_reserved(context.device) + free) / whole), context.device
    )
    try:
        yield
    finally:
        cuda.set_per_process_memory_fraction(1.0, context.device)
        cuda.empty_cache()
