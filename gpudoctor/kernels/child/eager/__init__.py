"""torch in the target interpreter, each operation as it is called: element-wise, matmul, convolution, attention, ...

The rung: torch on one device, which every kernel here, and of the rungs that stand on this one, works with.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .._kernel import CannotRun, import_torch
from ..driver._cuda import CudaError, Machine

NODE = "node"
_MEMORY_SHARE = 0.5
"""Of the memory that is free, the most that a kernel may take."""
_WORK_SECONDS = 2.0
"""Seconds that a kernel of level soak works where it is not said."""


class Context:
    """torch on one device, with its seed; free memory is asked anew each time."""

    def __init__(
        self, torch: Any, device: str, seed: int, devices: Sequence[int] = (), numbers: Sequence[int] = ()
    ) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.seed = seed
        self.devices = tuple(devices)
        """All GPUs that may be worked on, as torch numbers them; only what is run once a node has more than one."""
        self.numbers = tuple(numbers) or self.devices
        """What the session calls them: it may see others, too."""
        self.on_cpu = self.device.type == "cpu"
        self.work = _WORK_SECONDS
        """Seconds that a kernel of level soak works."""

    def description(self) -> Dict[str, Any]:
        """``torch`` (version), ``device``, and of a GPU its ``name``."""
        description = {"torch": str(self.torch.__version__), "device": str(self.device)}
        if not self.on_cpu:
            description["name"] = self.torch.cuda.get_device_name(self.device)
        return description

    def capability(self) -> Tuple[int, int]:
        """Compute capability of the GPU, (major, minor); (0, 0) for a CPU."""
        return (0, 0) if self.on_cpu else tuple(self.torch.cuda.get_device_capability(self.device))

    def synchronize(self) -> None:
        """Wait until the device has finished all work; does nothing on a CPU."""
        if not self.on_cpu:
            self.torch.cuda.synchronize(self.device)

    @property
    def spent(self) -> bool:
        """True if a CUDA error made the process's context unusable: every further call would raise it again."""
        if self.on_cpu or not self.torch.cuda.is_initialized():
            return False
        try:
            for device in self.devices or (self.device,):
                self.torch.cuda.synchronize(device)
        except RuntimeError:
            return True
        return False

    def free(self) -> int:
        """Bytes that a kernel may allocate: half of the free GPU memory; on a CPU 64 MiB."""
        if self.on_cpu:
            return 64 << 20
        self.torch.cuda.empty_cache()
        return int(self.torch.cuda.mem_get_info(self.device)[0] * _MEMORY_SHARE)

    def need(self, size: int) -> None:
        """Raise `CannotRun` where `size` bytes are more than `free` allows."""
        free = self.free()
        if size > free:
            raise CannotRun("%d MiB are needed and %d MiB may be taken" % (size >> 20, free >> 20))

    def generator(self, salt: int = 0) -> Any:
        """A random generator on the CPU that depends on the seed and `salt` alone."""
        return self.torch.Generator().manual_seed(self.seed * 1000003 + salt)

    def seconds(self, work: Callable[[], Any], least: float = 0.3, rounds: int = 5) -> List[float]:
        """Mean seconds of one call of `work` in each of `rounds` series, which take about `least` seconds together, or
        a call each if that is longer.

        Measured by the device's own events on a GPU, by the clock on a CPU; two calls before are for warming up.
        """
        work()
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        once = max(time.perf_counter() - began, 1e-7)
        calls = max(1, int(least / rounds / once))
        return [self._time_series(work, calls) / calls for _ in range(rounds)]

    def _time_series(self, work: Callable[[], Any], calls: int) -> float:
        """Seconds of `calls` calls of `work` together, by CUDA events, or by the clock on a CPU."""
        if self.on_cpu:
            began = time.perf_counter()
            for _ in range(calls):
                work()
            return time.perf_counter() - began
        with self.torch.cuda.device(self.device):
            first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(calls):
                work()
            last.record()
            last.synchronize()
            return float(first.elapsed_time(last)) / 1e3


def mean_microseconds(context: Context, work: Callable[[], Any], calls: int) -> float:
    """Mean µs of `calls` calls of `work` by the host's clock, including the wait for the device to finish them all."""
    context.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        work()
    context.synchronize()
    return (time.perf_counter() - began) / calls * 1e6


def median_and_spread(values: List[float]) -> Tuple[float, float]:
    """The median (of an even number the upper one), and half the range as a share of it (0 if the median is 0)."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return middle, (ordered[-1] - ordered[0]) / 2 / middle if middle else 0.0


def opened(ask: Mapping[str, Any]) -> Context:
    """The context of torch on the device; raises `CannotRun` where torch or a GPU is missing, and what torch raises.

    ``node`` is all GPUs that this process sees, the first of them the device itself. `Context.work` is set as asked.
    """
    context = _opened(ask)
    context.work = float(ask.get("work") or _WORK_SECONDS)
    return context


def _opened(ask: Mapping[str, Any]) -> Context:
    """As `opened`, with the usual `Context.work`; raises the same.

    Takes NVIDIA_TF32_OVERRIDE, unless it is 0, out of the environment before torch is imported.
    """
    if os.environ.get("NVIDIA_TF32_OVERRIDE") != "0":  # any other value rounds to tf32 what is judged as fp32
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    torch = import_torch()
    device, seed = str(ask["device"]), int(ask.get("seed", 1))
    if device == "cpu":
        torch.set_num_threads(1)  # all is small there; of several GPUs the ladder shares the cores out
        return Context(torch, device, seed)
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        raise CannotRun("torch %s is built without CUDA" % torch.__version__)
    if device != NODE:
        _start_device(torch, device)
        return Context(torch, device, seed)
    if not torch.cuda.is_available():
        raise CannotRun("torch %s sees no GPU" % torch.__version__)
    return Context(torch, "cuda:0", seed, range(torch.cuda.device_count()), ask.get("numbers", ()))


def _start_device(torch: Any, device: str) -> None:
    """Create the CUDA context on the device and make it the current one.

    Raises `CannotRun` where by the driver no memory is free on it, or its compute mode lets nobody in; else torch's
    error.
    """
    try:
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
    except RuntimeError:
        with suppress(CudaError):
            Machine(int(device.rpartition(":")[2]))
        raise
