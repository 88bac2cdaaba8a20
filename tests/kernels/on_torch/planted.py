"""Datasets with a known bottleneck or fault, for the sweep: ``GPUDOCTOR_DATASET=planted:Waiting``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import UserDict
from typing import Any


class Waiting:
    """Every item waits, as for storage; no core works meanwhile."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return [float(index)]


class Burning(Waiting):
    """Every item keeps a core busy."""

    def __getitem__(self, index: int) -> Any:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return [float(index)]


class _FaultyInWorkers(Waiting):
    """Sound in the main process."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self._pid:
            self.fail()
        return [float(index)]

    def fail(self) -> None:
        """What befalls a worker."""
        raise NotImplementedError


class UsingCuda(_FaultyInWorkers):
    """As CUDA answers in a process that was forked after it was initialised."""

    def fail(self) -> None:
        if type(multiprocessing.current_process()).__name__ == "ForkProcess":
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
                " 'spawn' start method"
            )


class UsingCudaInEveryFork(_FaultyInWorkers):
    """As where the process from which workers are forked has initialised CUDA, too."""

    def fail(self) -> None:
        if type(multiprocessing.current_process()).__name__ != "SpawnProcess":
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")


class Large(Waiting):
    """Items of 4 MB, which nobody foresees."""

    def __getitem__(self, index: int) -> Any:
        import torch  # type: ignore[import-not-found,unused-ignore]

        return UserDict(numbers=torch.full((1 << 20,), float(index)))


class Killed(_FaultyInWorkers):
    """As the kernel ends a process where memory ends."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class BusError(_FaultyInWorkers):
    """As a worker ends that writes to shared memory for which there is no room."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGBUS)


class Hanging(_FaultyInWorkers):
    """Waits for ever."""

    def fail(self) -> None:
        time.sleep(3600)


class Broken(Waiting):
    """Has no item at all."""

    def __getitem__(self, index: int) -> Any:
        raise FileNotFoundError("/data/train.tar")
