"""A training canary: some steps of a small transformer by DistributedDataParallel, over all ranks of a job.

In steps with an exchange every rank takes as long as the slowest one. So each rank also trains alone, without exchange,
all at the same time: these seconds tell ranks apart. What a step should take is reckoned from what this rank's own
matrix products and an all-reduce of all gradients take, measured here as well. On a CPU, where ranks share cores with
whatever else runs, a rank's own steps are counted in processor time.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Callable, Dict, List

from ..eager import Context, median_and_spread
from ..training import _model
from ._operations import Group, max_over_ranks

OPERATION = "training_step"
"""By what name it is planned."""
_WARM, _STEPS, _SERIES, _SERIES_CPU = 2, 5, 3, 12
"""Steps before anything is measured; steps of a series, and series of each way. A step on a CPU takes milliseconds, and
what shares its caches slows some: the fastest of many is its own."""
_MATMUL_SIDE, _MATMUL_SIDE_CPU = 4096, 192
_TENSOR_CORES = (7, 0)
"""Compute capability from which there are any (CUDA C++ Programming Guide, tensor cores)."""
_VOCABULARY = 512


def train(group: Group, samples: int) -> Dict[str, Any]:
    """Train on this rank, in step with the others, `samples` sequences a step; what each step took, in seconds.

    ``own``: a step without exchange; ``step``: with; ``exchange``: an all-reduce of all gradients; ``products``: what
    the step's floating-point operations take at the measured rate of a product. Beside them ``samples``,
    ``parameters``, ``dtype`` and ``loss``. Raises `RuntimeError` where the loss is not finite.
    """
    torch = group.torch
    context = Context(torch, str(group.device), 1)
    size = (_model.TIMED_CPU if context.on_cpu else _model.TIMED)._replace(samples=samples)
    trainer = _Trainer(context, size, group.rank)
    for _ in range(_WARM):
        trainer.step()
    own_clock = time.process_time if context.on_cpu else time.perf_counter
    own = _fastest(group, context, lambda: trainer.step(exchange=False), own_clock)
    step = _fastest(group, context, trainer.step, time.perf_counter)
    gradients = torch.zeros(trainer.parameters, device=group.device)
    exchange = _fastest(group, context, lambda: group.dist.all_reduce(gradients), time.perf_counter)
    rate = _product_rate(context, trainer.dtype)
    loss = trainer.loss()
    if not math.isfinite(loss):
        raise RuntimeError("the loss of the canary's training is %s" % loss)
    return {
        "own": own,
        "step": step,
        "exchange": exchange,
        "products": _step_operations(trainer.parameters, size) / rate,
        "samples": samples,
        "parameters": trainer.parameters,
        "dtype": str(trainer.dtype).rpartition(".")[2] if trainer.dtype else "float32",
        "loss": loss,
    }


class _Trainer:
    """A language model in DistributedDataParallel, with its batch; every rank has the same model and other tokens."""

    def __init__(self, context: Context, size: _model.Size, rank: int) -> None:
        torch = context.torch
        self._context, self._torch = context, torch
        mixed = not context.on_cpu and context.capability() >= _TENSOR_CORES
        self.dtype: Any = _model.training_dtype(context) if mixed else None
        """The 16-bit type of automatic mixed precision; None where there are no tensor cores."""
        torch.manual_seed(1)
        network = _model.language_model(torch, size, _VOCABULARY, context.device)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        where = None if context.on_cpu else [context.device]
        self.wrapped = torch.nn.parallel.DistributedDataParallel(network, device_ids=where)
        self._optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
        tokens = torch.randint(_VOCABULARY, (size.samples, size.tokens), generator=context.generator(rank))
        self._tokens = tokens.to(context.device)
        self._last: Any = None

    def step(self, exchange: bool = True) -> None:
        """Train one step on the rank's batch; without `exchange` gradients are not averaged over the ranks."""
        half = self.dtype and self._torch.autocast(self._context.device.type, dtype=self.dtype)
        self._optimizer.zero_grad(set_to_none=True)
        with contextlib.nullcontext() if exchange else self.wrapped.no_sync():
            with half or contextlib.nullcontext():
                logits = self.wrapped(self._tokens)
            loss = self._torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), self._tokens.flatten())
            loss.backward()
        self._optimizer.step()
        self._last = loss.detach()

    def loss(self) -> float:
        """The loss of the last step."""
        return float(self._last)


def _fastest(group: Group, context: Context, work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds of one call of `work` in the fastest of some series, each of which all ranks begin together."""
    series: List[float] = []
    for _ in range(_SERIES_CPU if context.on_cpu else _SERIES):
        max_over_ranks(group, 0.0)
        context.synchronize()
        began = clock()
        for _call in range(_STEPS):
            work()
        context.synchronize()
        series.append((clock() - began) / _STEPS)
    return min(series)


def _product_rate(context: Context, dtype: Any) -> float:
    """Floating-point operations a second of a matrix product in that type (None: fp32), measured now."""
    torch = context.torch
    side = _MATMUL_SIDE_CPU if context.on_cpu else _MATMUL_SIDE
    left, right = (torch.randn(side, side, device=context.device).to(dtype or torch.float32) for _ in range(2))
    once, _ = median_and_spread(context.seconds(lambda: left @ right, 0.05))
    return 2 * side**3 / once


def _step_operations(parameters: int, size: _model.Size) -> float:
    """Floating-point operations of a training step, by the formula of PaLM (arXiv 2204.02311, appendix B, 2022)."""
    tokens = size.samples * size.tokens
    return float(tokens) * (6 * parameters + 12 * size.layers * size.width * size.tokens)
