"""torch on one device, and compilers whose files go to a folder of their own."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from typing import Any, Callable, Dict, Mapping, Tuple

from .. import _scratch
from .._kernel import CannotRun
from ..eager import _rung as eager
from . import _causes


class Context(eager.Context):
    """As for torch, with our Triton kernels."""

    @property
    def kernels(self) -> Any:
        """The module of our Triton kernels; raises `CannotRun` where there is no Triton."""
        if importlib.util.find_spec("triton") is None:
            raise CannotRun("triton is not installed in this interpreter")
        if self.on_cpu and importlib.util.find_spec("numpy") is None:
            raise CannotRun("Triton's interpreter for the CPU needs numpy, which is not installed")
        try:
            from . import _kernels
        except Exception as error:
            raise _causes.told(error, self.on_cpu) from error
        return _kernels

    def first(self, work: Callable[[], Any]) -> Tuple[Any, Dict[str, Any]]:
        """Do it once, which compiles it: what it gave, and how long that took."""
        began = time.perf_counter()
        try:
            given = work()
            self.synchronize()
        except Exception as error:
            raise _causes.told(error, self.on_cpu) from error
        return given, {"first_call_s": round(time.perf_counter() - began, 3)}


def opened(ask: Mapping[str, Any]) -> Context:
    """torch and the device; nothing is compiled yet. Raises as the rung of torch does."""
    prepare(on_cpu=ask["device"] == "cpu")
    below = eager.opened(ask)
    if not below.on_cpu:
        below.torch.cuda.set_device(below.device)  # Triton launches on the current one
    return Context(below.torch, str(below.device), below.seed)


def prepare(on_cpu: bool) -> None:
    """Variables that torch and Triton read when they are imported."""
    places = [tempfile.gettempdir(), "/var/tmp", "/dev/shm", os.path.expanduser("~")]
    cache = _scratch.folder(next(filter(_scratch.may_run_from, places), None))
    os.environ["TRITON_CACHE_DIR"] = os.path.join(cache, "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache, "inductor")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else a pool of processes
    if on_cpu:
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
