"""Batches from pinned memory, copied while the GPU computes: how much sooner all are done than one after the other."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, List

from .. import _protocol
from .._kernel import Broken, Outcome, Spec
from ..eager._check import Judged
from ._rung import Context
from ._words import rate, size

KERNELS = (Spec("readiness.pinned", "copy beside compute", "×", "6 batches of 32 MB"),)

_BATCHES = 6
_NUMBERS, _NUMBERS_CPU = 8 << 20, 1 << 14
_MOST_STEPS = 400
_ROUNDS = 5


def run(context: Context, _: Spec) -> Outcome:
    """Each batch is copied and 1 is added to it until that has taken as long as the copy: 12/7 is the most there is."""
    batches = _Batches(context)
    steps = batches.balanced()
    judged, seconds = [], []
    for way in (batches.in_turn, batches.overlapped):
        seconds.append(batches.best(way, steps))
        judged.append(batches.judged(steps))
    wrong = next((one.words for one in judged if one.differ), "")
    outcome = Outcome(
        advice="Nothing to do.",
        right=not wrong,
        differ=sum(one.differ for one in judged),
        compared=sum(one.compared for one in judged),
        words=wrong or "Only the values were checked: a CPU copies and computes on the same cores.",
    )
    if context.on_cpu:
        return outcome
    gain = seconds[0] / seconds[1]
    pinned, pageable = batches.rate(batches.host[0]), batches.rate(batches.host[0].clone())
    return outcome._replace(
        value=gain,
        words="Batches of %s done in %.2f ms one after the other, in %.2f ms with the next copy beside the compute;"
        " pinned memory is copied at %s, pageable memory at %s. %s"
        % (size(batches.bytes), 1e3 * seconds[0], 1e3 * seconds[1], rate(pinned), rate(pageable), wrong),
        advice=advice(gain, pinned / pageable, os.environ.get("CUDA_LAUNCH_BLOCKING", "")),
        details={"pinned_gb_s": pinned / 1e9, "pageable_gb_s": pageable / 1e9},
    )


def advice(gain: float, pinned: float, blocking: str) -> str:
    """From the gain by overlap, pinned over pageable rate, and the value of CUDA_LAUNCH_BLOCKING."""
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
    """A copy of the tensor in pinned memory; raises `Broken` where the driver gives none."""
    try:
        return tensor.pin_memory()
    except RuntimeError as error:
        raise Broken(
            "the driver pins no %s of host memory: %s" % (size(tensor.nbytes), _protocol.last_line(error)),
            "Free host memory, or raise the container's memory limit; WSL 2 pins only a part of it.",
        ) from error


class _Batches:
    """Batches of whole numbers in the host's memory, and room for each on the device."""

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

    def balanced(self) -> int:
        """How many additions take as long as one copy."""
        if self.context.on_cpu:
            return 3
        copy = min(self.context.seconds(lambda: self._copy(0), least=0.02))
        add = min(self.context.seconds(lambda: self.there[0].add_(1), least=0.02))
        return max(1, min(_MOST_STEPS, round(copy / add)))

    def in_turn(self, steps: int) -> None:
        """All on one stream."""
        for at in range(_BATCHES):
            self._copy(at)
            self._compute(at, steps)

    def overlapped(self, steps: int) -> None:
        """Copies on a stream of their own; each batch's compute waits for its copy alone."""
        if self.context.on_cpu:
            self.in_turn(steps)
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

    def best(self, way: Callable[[int], None], steps: int) -> float:
        """Seconds of the fastest round."""
        return min(self._seconds(way, steps) for _ in range(_ROUNDS))

    def judged(self, steps: int) -> Judged:
        """Every number on the device against what was sent, plus the steps."""
        wrong = [self.there[at].cpu() != self.host[at] + steps for at in range(_BATCHES)]
        counts = [int(one.sum()) for one in wrong]
        at = next((index for index, count in enumerate(counts) if count), None)
        first = () if at is None else (at, int(wrong[at].nonzero()[0]))
        return Judged(sum(counts), sum(one.numel() for one in wrong), first)

    def rate(self, source: Any) -> float:
        """Bytes a second from that memory to the device."""
        there = self.there[0]
        return self.bytes / min(self.context.seconds(lambda: there.copy_(source, non_blocking=True), least=0.05))

    def _seconds(self, way: Callable[[int], None], steps: int) -> float:
        for there in self.there:
            there.fill_(-1)
        self.context.synchronize()
        began = time.perf_counter()
        way(steps)
        self.context.synchronize()
        return time.perf_counter() - began

    def _copy(self, at: int) -> None:
        self.there[at].copy_(self.host[at], non_blocking=True)

    def _compute(self, at: int, steps: int) -> None:
        for _ in range(steps):
            self.there[at].add_(1)
