"""The largest batch of a small transformer's training step that fits, found without ever running out of memory."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence

from .._kernel import CannotRun, Outcome, Spec, last_line, no_memory
from ..eager import Context
from . import Meter, _model, format_bytes

KERNELS = (Spec("readiness.headroom", "largest batch that fits", "sequences", "27 M parameters, 512 tokens each"),)

_SIZE, _VOCABULARY = _model.Size(width=512, layers=6, heads=8, samples=1, tokens=512), 8192
_SIZE_CPU, _VOCABULARY_CPU = _model.Size(width=32, layers=1, heads=2, samples=1, tokens=16), 64
_NEAR = 5e-3
"""How far, as a share, a loss in fp32 or TF32 may be from float64's."""
_MOST_BATCH = 4096
_SECONDS = 4.0
_STEPS = 2
"""Of each batch size."""
_MARGIN = 1.1
"""Of what a step is estimated to take: fragments, work spaces of libraries."""
_SAME_RATE = 0.05
"""Rates that differ by less are the same."""


class BatchResult(NamedTuple):
    """A training step at one batch size: peak bytes above the model's own, sequences a second, loss."""

    batch: int
    bytes: int
    rate: float
    loss: float


def run(context: Context, _: Spec) -> Outcome:
    """Find the largest batch of a training step that fits into memory, in 4 s; value: sequences.

    Right if all losses are finite and one is that of float64. Raises `CannotRun` where not one sequence fits.
    """
    free = context.free()
    step = _LanguageModelStep(context)
    until = time.monotonic() + _SECONDS
    with _memory_limit(context, free):
        results = grow_batches(step.try_batch, free, lambda: until - time.monotonic())
    if not results:
        raise CannotRun("not one sequence fits: %s may be taken" % format_bytes(free))
    nonfinite = [result.batch for result in results if not math.isfinite(result.loss)]
    largest = results[-1]
    return Outcome(
        value=float(largest.batch),
        right=not nonfinite and step.is_right(),
        differ=len(nonfinite),
        compared=len(results),
        words=summary(results, free, time.monotonic() < until),
        advice=advice(results),
        details={
            "sequences_per_s": largest.rate,
            "bytes": largest.bytes,
            "may_take_bytes": free,
            "batches": [result.batch for result in results],
            "rates": [result.rate for result in results],
        },
    )


def grow_batches(
    attempt: Callable[[int], Optional[BatchResult]], free: int, seconds_left: Callable[[], float]
) -> List[BatchResult]:
    """Results of batch sizes doubled, then bisected, while the next should fit `free` bytes and the seconds left.

    Empty where not even one fits; `attempt` returns None for a size for which memory ran out.
    """
    result = attempt(1)
    if result is None or result.bytes > free:
        return []
    results = [result]
    too_large = _MOST_BATCH + 1
    while True:
        largest = results[-1].batch
        batch = 2 * largest if 2 * largest < too_large else (largest + too_large) // 2
        if too_large - largest <= max(1, largest // 8) or _STEPS * batch / results[-1].rate > seconds_left():
            return results
        result = attempt(batch) if _MARGIN * estimated_bytes(results, batch) <= free else None
        if result is None:
            too_large = batch
        else:
            results.append(result)


def estimated_bytes(results: Sequence[BatchResult], batch: int) -> float:
    """Estimated bytes of a step of `batch`: proportional to the only result, or linear through the last two."""
    last = results[-1]
    if len(results) < 2:
        return last.bytes * batch / last.batch
    slope = max(0.0, (last.bytes - results[-2].bytes) / (last.batch - results[-2].batch))
    return last.bytes + slope * (batch - last.batch)


def summary(results: Sequence[BatchResult], free: int, in_time: bool) -> str:
    """Sentences on the largest batch: bytes, rate, not finite losses; `in_time`: memory ended the sweep, not time."""
    largest = results[-1]
    text = "Such a step takes %s of the %s that may be taken, %s a sequence, and does %.4g sequences/s." % (
        format_bytes(largest.bytes),
        format_bytes(free),
        format_bytes(largest.bytes / largest.batch),
        largest.rate,
    )
    if not in_time or largest.bytes < free / 2:
        text += " Larger ones were not tried."
    nonfinite = [result.batch for result in results if not math.isfinite(result.loss)]
    return text + (" The loss is not finite with %s sequences." % ", ".join(map(str, nonfinite)) if nonfinite else "")


def advice(results: Sequence[BatchResult]) -> str:
    """Whether larger batches are worth it, by the rates of those tried, and what to do with the memory."""
    largest, fastest = results[-1], max(result.rate for result in results)
    enough = next(result for result in results if result.rate >= (1 - _SAME_RATE) * fastest)
    if enough.batch <= largest.batch // 2:
        return (
            "Beyond %d sequences a step gains no speed: give the rest of the memory to longer sequences or a larger"
            " model." % enough.batch
        )
    return (
        "Speed still grows with the batch: torch.utils.checkpoint makes room for larger ones. Where only the gradient"
        " is to be of more sequences, accumulate it over several steps of %d." % largest.batch
    )


class _LanguageModelStep:
    """Forward, backward and AdamW step of a next-token transformer; in mixed precision on a GPU."""

    def __init__(self, context: Context) -> None:
        torch = context.torch
        self.context = context
        self.size, self.words = (_SIZE_CPU, _VOCABULARY_CPU) if context.on_cpu else (_SIZE, _VOCABULARY)
        torch.manual_seed(context.seed)
        self.first = _model.language_model(torch, self.size, self.words, "cpu")
        context.need(5 * 4 * sum(one.numel() for one in self.first.parameters()))
        self.model = copy.deepcopy(self.first).to(context.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._train_step(1)

    def try_batch(self, batch: int) -> Optional[BatchResult]:
        """Two steps of that batch; the second is measured. None where memory ran out after all."""
        try:
            self._train_step(batch)
            with Meter(self.context) as meter:
                loss = self._train_step(batch)
        except RuntimeError as error:
            if not no_memory(last_line(error)):
                raise
            return None
        return BatchResult(batch, max(1, meter.kept), batch / meter.seconds, loss)

    def is_right(self) -> bool:
        """True if the loss of one sequence with the initial fp32 weights is that of float64 on the CPU."""
        model = copy.deepcopy(self.first).to(self.context.device)
        tokens = self._sequences(1)
        loss = float(self._loss(model, tokens).detach())
        expected = float(self._loss(copy.deepcopy(self.first).double(), tokens.cpu()).detach())
        return abs(loss - expected) <= _NEAR * expected

    def _train_step(self, batch: int) -> float:
        """Train one step on `batch` sequences; the loss."""
        torch = self.context.torch
        self.optimizer.zero_grad(set_to_none=False)
        half = _model.training_dtype(self.context)
        with contextlib.nullcontext() if self.context.on_cpu else torch.autocast("cuda", dtype=half):
            loss = self._loss(self.model, self._sequences(batch))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _sequences(self, batch: int) -> Any:
        """`batch` random token sequences on the device, one token longer than the model's input."""
        shape = batch, self.size.tokens + 1
        tokens = self.context.torch.randint(0, self.words, shape, generator=self.context.generator(7))
        return tokens.to(self.context.device)

    def _loss(self, model: Any, tokens: Any) -> Any:
        """Cross entropy of the model's next tokens, a scalar tensor."""
        logits = model(tokens[:, :-1]).flatten(0, 1)
        return self.context.torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())


@contextlib.contextmanager
def _memory_limit(context: Context, free: int) -> Iterator[None]:
    """A context in which torch may allocate at most `free` bytes more than it has reserved; no limit on a CPU."""
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
