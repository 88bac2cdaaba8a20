"""torch on one device: what every kernel of this rung, and of those that stand on it, works with."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .._kernel import CannotRun

NODE = "node"
_SHARE = 0.5
"""Of the memory that is free, the most that a kernel may take."""


class Context:
    """A device and how to work on it. `free` is asked anew each time: memory that others hold is never counted on."""

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

    def told(self) -> Dict[str, Any]:
        """What it is, for the protocol."""
        said = {"torch": str(self.torch.__version__), "device": str(self.device)}
        if not self.on_cpu:
            said["name"] = self.torch.cuda.get_device_name(self.device)
        return said

    def capability(self) -> Tuple[int, int]:
        """Of the GPU; (0, 0) for a CPU."""
        return (0, 0) if self.on_cpu else tuple(self.torch.cuda.get_device_capability(self.device))

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked."""
        if not self.on_cpu:
            self.torch.cuda.synchronize(self.device)

    @property
    def spent(self) -> bool:
        """Whether an error outlived its kernel: from then on CUDA answers every call of this process with it."""
        if self.on_cpu or not self.torch.cuda.is_initialized():
            return False
        try:
            for device in self.devices or (self.device,):
                self.torch.cuda.synchronize(device)
        except RuntimeError:
            return True
        return False

    def free(self) -> int:
        """Bytes that a kernel may take: half of what nobody holds; on a CPU 64 MiB."""
        if self.on_cpu:
            return 64 << 20
        self.torch.cuda.empty_cache()
        return int(self.torch.cuda.mem_get_info(self.device)[0] * _SHARE)

    def need(self, size: int) -> None:
        """Raise `CannotRun` where that many bytes are not free."""
        free = self.free()
        if size > free:
            raise CannotRun("%d MiB are needed and %d MiB may be taken" % (size >> 20, free >> 20))

    def generator(self, salt: int = 0) -> Any:
        """Random numbers of the CPU, the same for the same seed on whatever machine."""
        return self.torch.Generator().manual_seed(self.seed * 1000003 + salt)

    def seconds(self, work: Callable[[], Any], least: float = 0.3, rounds: int = 5) -> List[float]:
        """Seconds that one call takes, in each of `rounds` series that together take `least` seconds or more.

        Measured by the device's own events on a GPU, by the clock on a CPU; the calls before are for warming up.
        """
        work()
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        once = max(time.perf_counter() - began, 1e-7)
        calls = max(1, int(least / rounds / once))
        return [self._series(work, calls) / calls for _ in range(rounds)]

    def _series(self, work: Callable[[], Any], calls: int) -> float:
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


def median_and_spread(values: List[float]) -> Tuple[float, float]:
    """The median, and half the distance between the least and the most as a share of it."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return middle, (ordered[-1] - ordered[0]) / 2 / middle if middle else 0.0


def opened(ask: Mapping[str, Any]) -> Context:
    """torch and the device, started; raises `CannotRun` where there is none, and whatever torch raises.

    ``node`` is all GPUs that this process sees, the first of them the device itself.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise CannotRun("torch is not installed in this interpreter")
    import torch  # type: ignore[import-not-found,unused-ignore]

    device, seed = str(ask["device"]), int(ask.get("seed", 1))
    if device == "cpu":
        torch.set_num_threads(1)  # all is small there; of several GPUs the ladder shares the cores out
        return Context(torch, device, seed)
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        raise CannotRun("torch %s is built without CUDA" % torch.__version__)
    if device != NODE:
        torch.cuda.set_device(device)  # torch asks the current one which cuDNN and attention back ends there are
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
        return Context(torch, device, seed)
    if not torch.cuda.is_available():
        raise CannotRun("torch %s sees no GPU" % torch.__version__)
    return Context(torch, "cuda:0", seed, range(torch.cuda.device_count()), ask.get("numbers", ()))
