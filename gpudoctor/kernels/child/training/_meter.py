"""What is done within takes so many bytes and seconds."""

from __future__ import annotations

import os
import time
from typing import Any, Dict

from .._kernel import CannotRun
from ._rung import Context


def counted() -> None:
    """Raise `CannotRun` where torch's allocator does not count what it gives."""
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        raise CannotRun("with PYTORCH_NO_CUDA_MEMORY_CACHING torch does not count what it holds")


class Meter:
    """Bytes at the most beside those held before, and seconds.

    A GPU's allocator says what it gave (`bytes`) and what it kept for that (`kept`). On a CPU, which counts nothing,
    both are what autograd saves for a backward pass.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saved: Dict[int, int] = {}
        self._hooks = context.torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        self.bytes = self.kept = 0
        self.seconds = 0.0

    def __enter__(self) -> Meter:
        context = self._context
        if context.on_cpu:
            self._hooks.__enter__()
        else:
            counted()
            cuda = context.torch.cuda
            cuda.empty_cache()
            cuda.reset_peak_memory_stats(context.device)
            self.bytes, self.kept = -cuda.memory_allocated(context.device), -cuda.memory_reserved(context.device)
        context.synchronize()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        context = self._context
        context.synchronize()
        self.seconds = max(time.perf_counter() - self._began, 1e-9)
        if context.on_cpu:
            self._hooks.__exit__(*error)
            self.bytes = self.kept = sum(self._saved.values())
        else:
            self.bytes += context.torch.cuda.max_memory_allocated(context.device)
            self.kept += context.torch.cuda.max_memory_reserved(context.device)

    def _save(self, tensor: Any) -> Any:
        storage = getattr(tensor, "untyped_storage", tensor.storage)()  # torch 2.0
        self._saved[storage.data_ptr()] = storage.nbytes()
        return tensor
