"""Training readiness: what a training step needs beyond a right matmul, each measured and checked.

The rung is torch on one device or on all of a node, as in ``eager``; what is written meanwhile goes when this process
does. Here are also a meter of memory and time, and figures as people say them.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any, Dict, Mapping

from .. import _scratch, eager
from .._kernel import CannotRun
from ..eager import Context

MAX_SOCKET_PATH = 107
"""Bytes that the path of a Unix socket may have on Linux (unix(7))."""
SOCKET_SUFFIX = "/pymp-12345678/listener-12345678"
"""What multiprocessing adds to the folder for temporary files, to name a socket."""
_SCRATCH_SUFFIX = "/gpudoctor-12345678"
_PREFIXES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class TrainingContext(Context):
    """torch's context, with a scratch folder that temporary files of libraries and workers go to."""

    def __init__(self, below: Context) -> None:
        super().__init__(below.torch, str(below.device), below.seed, below.devices, below.numbers)
        self.original_temp = tempfile.gettempdir()
        """Where temporary files are without us."""
        fits = len((self.original_temp + _SCRATCH_SUFFIX + SOCKET_SUFFIX).encode()) <= MAX_SOCKET_PATH
        self._folder = _scratch.Folder(self.original_temp if fits else "/tmp")
        tempfile.tempdir = os.environ["TMPDIR"] = self._folder.path


def opened(ask: Mapping[str, Any]) -> TrainingContext:
    """torch's context on the device, with this process's TMPDIR in a scratch folder; raises as `eager.opened`."""
    return TrainingContext(eager.opened(ask))


class Meter:
    """Peak bytes above those held before, and seconds, of a ``with`` block.

    On a GPU `bytes` is what the allocator gave out and `kept` what it reserved; where that is switched off, entering
    raises `CannotRun`. On a CPU, which counts nothing, both are what autograd saves for a backward pass.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saved: Dict[int, int] = {}
        self._hooks: Any = None
        self.bytes = self.kept = 0
        self.seconds = 0.0

    def __enter__(self) -> Meter:
        context = self._context
        if context.on_cpu:
            self._hooks = context.torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
            self._hooks.__enter__()
        else:
            if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
                raise CannotRun("with PYTORCH_NO_CUDA_MEMORY_CACHING torch does not count what it holds")
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
        """Count the bytes of a tensor that autograd saves, once for each storage; returns the tensor."""
        storage = getattr(tensor, "untyped_storage", tensor.storage)()  # torch 2.0
        self._saved[storage.data_ptr()] = storage.nbytes()
        return tensor


def format_bytes(count: float) -> str:
    """Bytes as ``1.5 GB``: three digits, in kB to TB as powers of ten; ``999 B`` below."""
    for unit, name in _PREFIXES:
        if count >= unit:
            return "%.3g %s" % (count / unit, name)
    return "%d B" % count


def format_rate(count: float) -> str:
    """Bytes per second as ``12.4 GB/s``."""
    return format_bytes(count) + "/s"
