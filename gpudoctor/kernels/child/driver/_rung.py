"""The driver alone: no toolkit, no torch. The same programs run on a GPU by libcuda, on a CPU by `_interpreter`."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping

from .._kernel import CannotRun
from . import _ptx

_SHARE = 0.5
"""Of the memory that is free, the most that a kernel may take."""


class Context:
    """A device and how to work on it. What is free is asked anew each time: what others hold is never counted on."""

    def __init__(self, machine: Any, seed: int) -> None:
        self.machine = machine
        self.seed = seed
        self.on_cpu: bool = machine.on_cpu

    @property
    def spent(self) -> bool:
        """Whether nothing more can be run in this process."""
        return bool(self.machine.spent)

    def told(self) -> Dict[str, Any]:
        """What it is, for the protocol."""
        return dict(self.machine.told())

    def free(self) -> int:
        """Bytes that a kernel may take: half of what nobody holds."""
        return int(self.machine.room()[0] * _SHARE)

    def random(self, salt: int) -> random.Random:
        """Random numbers, the same for the same seed on whatever machine."""
        return random.Random(self.seed * 1000003 + salt)

    def program(self, name: str) -> "Program":
        """``name.ptx``, made ready for this device."""
        return Program(self.machine, self.machine.load(_ptx.text(name)))

    @contextmanager
    def memory(self, *sizes: int) -> Iterator[List[int]]:
        """The addresses of so many bytes each, given back in the end; raises `CannotRun` where they are not free."""
        held: List[int] = []
        try:
            for size in sizes:
                held.append(self.machine.allocate(size))  # noqa: PERF401 - given back whatever becomes of the next
            yield held
        finally:
            for address in held:
                self.machine.release(address)


class Program:
    """Kernels that were compiled together."""

    def __init__(self, machine: Any, kernels: Mapping[str, Any]) -> None:
        self._machine, self._kernels = machine, kernels

    def __call__(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        """Run a kernel to its end."""
        self._machine.launch(self._kernels[name], blocks, threads, arguments)


class Listed:
    """What CUDA lists, for who must know before any context is made; where its library is not here, nothing and why."""

    def __init__(self) -> None:
        from ._cuda import devices

        self._told: Dict[str, Any] = {"devices": []}
        try:
            self._told["devices"] = devices()
        except CannotRun as error:
            self._told["because"] = str(error)

    def told(self) -> Dict[str, Any]:
        """Number, name and whether it takes one process only, of each."""
        return self._told


def opened(ask: Mapping[str, Any]) -> Any:
    """The device, ready; ``node``: a list of all. Raises `CannotRun`, and `CudaError` where the driver fails."""
    device = str(ask["device"])
    if device == "node":
        return Listed()
    if device == "cpu":
        from ._interpreter import Machine as Cpu

        return Context(Cpu(), int(ask.get("seed", 1)))
    from ._cuda import Machine

    return Context(Machine(int(device.rpartition(":")[2])), int(ask.get("seed", 1)))
