"""torch on one device, and compilers whose files go to a folder of their own."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from typing import Any, Mapping, Optional

from .. import _scratch
from .._kernel import CannotRun
from ..eager import _rung as eager
from . import _causes

LEAST = (7, 0)
"""Compute capability: Triton 2.0's README, 2023-03. On older GPUs LLVM ends the whole process."""


class Context(eager.Context):
    """As for torch, with our Triton kernels and a folder for what is compiled."""

    cache: Optional[_scratch.Folder] = None
    before: Mapping[str, str] = {}
    """The environment as it was given."""

    @property
    def kernels(self) -> Any:
        """The module of our Triton kernels; raises `CannotRun` where there is no Triton."""
        need_triton()
        if not self.on_cpu and self.capability() < LEAST:
            raise CannotRun("Triton supports GPUs of compute capability %d.%d and newer" % LEAST)
        if self.on_cpu and importlib.util.find_spec("numpy") is None:
            raise CannotRun("Triton's interpreter for the CPU needs numpy, which is not installed")
        try:
            from . import _kernels
        except Exception as error:
            raise _causes.told(error, self.on_cpu) from error
        return _kernels


def need_triton() -> None:
    """Raise `CannotRun` where there is none."""
    if importlib.util.find_spec("triton") is None:
        raise CannotRun("triton is not installed in this interpreter")


def opened(ask: Mapping[str, Any]) -> Context:
    """torch and the device; nothing is compiled yet. Raises as the rung of torch does."""
    before = dict(os.environ, TMPDIR=tempfile.gettempdir())
    cache = prepare(on_cpu=ask["device"] == "cpu")
    below = eager.opened(ask)
    if not below.on_cpu and ask["device"] != eager.NODE:
        below.torch.cuda.set_device(below.device)  # Triton launches on the current one
    context = Context(below.torch, str(below.device), below.seed, below.devices)
    context.cache, context.before = cache, before
    return context


def prepare(on_cpu: bool) -> _scratch.Folder:
    """Variables that torch and Triton read when they are imported, and the folder for what they compile."""
    places = [tempfile.gettempdir(), "/var/tmp", "/dev/shm", os.path.expanduser("~")]
    cache = _scratch.Folder(next(filter(_scratch.may_run_from, places), None))
    os.environ["TRITON_CACHE_DIR"] = os.path.join(cache.path, "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache.path, "inductor")
    os.environ["TMPDIR"] = tempfile.tempdir = cache.path  # inductor's precompiled headers heed no other
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else a pool of processes
    if on_cpu:
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    return cache
