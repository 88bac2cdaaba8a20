"""Batches from pinned memory, copied while the GPU computes: how much sooner all are done than one after the other."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, List

from .._kernel import Broken, Outcome, Spec, last_line
from ..eager import Context
from ..eager._check import Judged
from . import format_bytes, format_rate

KERNELS = (Spec("readiness.pinned", "copy beside compute", "×", "6 batches of 32 MB"),)

_BATCHES = 6
_NUMBERS, _NUMBERS_CPU = 8 << 20, 1 << 14
_MOST_STEPS = 400
_ROUNDS = 5


def run(context: Context, _: Spec) -> Outcome:
    """Check and time copies beside compute; value: speedup over one after the other, none on a CPU, 12/7 at most."""
    batches = _Batches(context)
    steps = batches.balanced_steps()
    verdicts, seconds = [], []
    for run_batches in (batches.run_in_turn, batches.run_overlapped):
        seconds.append(batches.best_seconds(run_batches, steps))
        verdicts.append(batches.check(steps))
    wrong = next((verdict.words for verdict in verdicts if verdict.differ), "")
    outcome = Outcome(
        advice="Nothing to do.",
        right=not wrong,
        differ=sum(verdict.differ for verdict in verdicts),
        compared=sum(verdict.compared for verdict in verdicts),
        words=wrong or "Only the values were checked: a CPU copies and computes on the same cores.",
    )
    if context.on_cpu:
        return outcome
    gain = seconds[0] / seconds[1]
    pinned, pageable = batches.bytes_per_second(batches.host[0]), batches.bytes_per_second(batches.host[0].clone())
    return outcome._replace(
        value=gain,
        words="Batches of %s done in %.2f ms one after the other, in %.2f ms with the next copy beside the compute;"
        " pinned memory is copied at %s, pageable memory at %s. %s"
        % (
            format_bytes(batches.bytes),
            1e3 * seconds[0],
            1e3 * seconds[1],
            format_rate(pinned),
            format_rate(pageable),
            wrong,
        ),
        advice=advice(gain, pinned / pageable, os.environ.get("CUDA_LAUNCH_BLOCKING", "")),
        details={"pinned_gb_s": pinned / 1e9, "pageable_gb_s": pageable / 1e9},
    )


def advice(gain: float, pinned: float, blocking: str) -> str:
    """What to do about copies of batches, by the gain from overlap, pinned over pageable rate, CUDA_LAUNCH_BLOCKING."""
    if blocking not in {"", "0"}:
        return "CUDA_LAUNCH_BLOCKING=%s makes every launch wait: unset it, nothing can overlap." % blocking
    if gain < 1.2:
        return (
            "Copies wait for kernels here, although they were asked to run beside them: cuda-gdb, compute-sanitizer,"
            " profilers and WSL make them."
        )
    use = "Use DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)"
    if pinned < 1.2:
        return use + "."
    return use + ": without pinning a copy takes %.1f times as long, and nothing runs beside it." % pinned


def pin(tensor: Any) -> Any:
    """A copy of the tensor in pinned memory; raises `Broken` where the driver does not provide it."""
    try:
        return tensor.pin_memory()
    except RuntimeError as error:
        raise Broken(
            "the driver pins no %s of host memory: %s" % (format_bytes(tensor.nbytes), last_line(error)),
            "Free host memory, or raise the container's memory limit; WSL 2 pins only a part of it.",
        ) from error


class _Batches:
    """Batches of whole numbers in (pinned) host memory, with a buffer on the device for each."""

    def __init__(self, context: Context) -> None:
        torch = context.torch
        self.context = context
        count = _NUMBERS_CPU if context.on_cpu else _NUMBERS
        self.bytes = 4 * count
        context.need(_BATCHES * self.bytes)
        self.host: List[Any] = [
            torch.randint(0, 1 << 20, (count,), generator=context.generator(at)).float() for at in range(_BATCHES)
        ]
        if not context.on_cpu:
            self.host = [pin(batch) for batch in self.host]
        self.there = [torch.empty(count, device=context.device) for _ in self.host]

    def balanced_steps(self) -> int:
        """How many additions take as long as one copy, 1 to 400; 3 on a CPU."""
        if self.context.on_cpu:
            return 3
        copy = min(self.context.seconds(lambda: self._copy(0), least=0.02))
        add = min(self.context.seconds(lambda: self.there[0].add_(1), least=0.02))
        return max(1, min(_MOST_STEPS, round(copy / add)))

    def run_in_turn(self, steps: int) -> None:
        """Copy a batch, compute on it, then the next, all on one stream; does not wait for the end."""
        for at in range(_BATCHES):
            self._copy(at)
            self._compute(at, steps)

    def run_overlapped(self, steps: int) -> None:
        """Copy batches on a stream of their own; each one's compute waits for its copy alone; on a CPU in turn."""
        if self.context.on_cpu:
            self.run_in_turn(steps)
            return
        cuda = self.context.torch.cuda
        with cuda.device(self.context.device):
            copies = cuda.Stream()
            copies.wait_stream(cuda.current_stream())  # what computed on these batches before
            arrived = []
            with cuda.stream(copies):
                for at in range(_BATCHES):
                    self._copy(at)
                    arrived.append(copies.record_event())
            for at, event in enumerate(arrived):
                cuda.current_stream().wait_event(event)
                self._compute(at, steps)

    def best_seconds(self, run_batches: Callable[[int], None], steps: int) -> float:
        """Seconds of the fastest of five rounds over buffers filled with -1, until the device has finished."""
        seconds: List[float] = []
        for _ in range(_ROUNDS):
            for buffer in self.there:
                buffer.fill_(-1)
            self.context.synchronize()
            began = time.perf_counter()
            run_batches(steps)
            self.context.synchronize()
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    def check(self, steps: int) -> Judged:
        """The verdict on every number on the device, which must be what was sent plus `steps`."""
        wrong = [self.there[at].cpu() != self.host[at] + steps for at in range(_BATCHES)]
        counts = [int(mask.sum()) for mask in wrong]
        at = next((index for index, count in enumerate(counts) if count), None)
        first = () if at is None else (at, int(wrong[at].nonzero()[0]))
        return Judged(sum(counts), sum(mask.numel() for mask in wrong), first)

    def bytes_per_second(self, source: Any) -> float:
        """Bytes a second from `source` to the device."""
        on_device = self.there[0]
        return self.bytes / min(self.context.seconds(lambda: on_device.copy_(source, non_blocking=True), least=0.05))

    def _copy(self, at: int) -> None:
        """Copy batch `at` to the device, asynchronously."""
        self.there[at].copy_(self.host[at], non_blocking=True)

    def _compute(self, at: int, steps: int) -> None:
        """Add 1 to batch `at` on the device, `steps` times."""
        for _ in range(steps):
            self.there[at].add_(1)
