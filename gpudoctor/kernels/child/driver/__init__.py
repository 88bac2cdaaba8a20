"""The driver alone: small PTX programs through libcuda, no toolkit and no torch. On a CPU an interpreter runs them.

The rung, what its kernels work with, and how they compare arrays of machine words bit by bit.
"""

from __future__ import annotations

import random
from array import array
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from .._kernel import CannotRun, Outcome
from . import _ptx
from ._cuda import Machine, devices

_MEMORY_SHARE = 0.5
"""Of the memory that is free, the most that a kernel may take."""


class Context:
    """A device and how to work on it; free memory is asked anew each time."""

    def __init__(self, machine: Any, seed: int) -> None:
        self.machine = machine
        self.seed = seed
        self.on_cpu: bool = machine.on_cpu

    @property
    def spent(self) -> bool:
        """True once a failed launch made the context unusable: nothing more can be run in this process."""
        return bool(self.machine.spent)

    def description(self) -> Dict[str, Any]:
        """The machine's ``name`` and ``driver``, and of a GPU its ``compute_capability``."""
        return dict(self.machine.description())

    def free(self) -> int:
        """Bytes that a kernel may allocate: half of the free memory."""
        return int(self.machine.memory_info()[0] * _MEMORY_SHARE)

    def random(self, salt: int) -> random.Random:
        """A random generator that depends on the seed and `salt` alone."""
        return random.Random(self.seed * 1000003 + salt)

    def program(self, name: str) -> "Program":
        """The program ``name.ptx`` compiled for this device."""
        return Program(self.machine, self.machine.load(_ptx.text(name)))

    @contextmanager
    def memory(self, *sizes: int) -> Iterator[List[int]]:
        """A context with the addresses of `sizes` bytes each, freed in the end; `CannotRun` if too few are free."""
        addresses: List[int] = []
        try:
            for size in sizes:
                addresses.append(self.machine.allocate(size))  # noqa: PERF401 - given back whatever becomes of the next
            yield addresses
        finally:
            for address in addresses:
                self.machine.release(address)


class Program:
    """Kernels compiled from one PTX file; calling it launches one by name."""

    def __init__(self, machine: Any, kernels: Mapping[str, Any]) -> None:
        self._machine, self._kernels = machine, kernels

    def __call__(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        """Launch the kernel with integer arguments and wait for its end; raises `CudaError` where it fails."""
        self._machine.launch(self._kernels[name], blocks, threads, arguments)


class DeviceList:
    """The GPUs that CUDA lists, without creating a context; empty, with the reason, where the library is missing."""

    def __init__(self) -> None:
        self._description: Dict[str, Any] = {"devices": []}
        try:
            self._description["devices"] = devices()
        except CannotRun as error:
            self._description["because"] = str(error)

    def description(self) -> Dict[str, Any]:
        """``devices`` (index, name, exclusive) and ``because``, if there is a reason for none."""
        return self._description


def opened(ask: Mapping[str, Any]) -> Any:
    """The `Context` of the device in `ask`: a GPU by the driver, a PTX interpreter for ``cpu``.

    For ``node`` a `DeviceList`. Raises `CannotRun`, or `CudaError` where the driver fails.
    """
    device = str(ask["device"])
    if device == "node":
        return DeviceList()
    if device == "cpu":
        return Context(_ptx.Interpreter(), int(ask.get("seed", 1)))
    return Context(Machine(int(device.rpartition(":")[2])), int(ask.get("seed", 1)))


# ---- Arrays of machine words, and how they differ from those that we reckoned ----


def inverted(data: bytes) -> bytes:
    """The bytes with each bit inverted: written where a result is to come, so that old contents cannot pass for it."""
    return bytes(data).translate(_INVERTED)


_INVERTED = bytes(range(255, -1, -1))


def random_words(context: Any, count: int, salt: int) -> "array[int]":
    """An array of `count` random 32-bit words."""
    bits: int = context.random(salt).getrandbits(32 * count)
    return array("I", bits.to_bytes(4 * count, "little"))


def compare_words(what: str, actual: bytes, expected: bytes) -> Outcome:
    """Compare two arrays of 32-bit words bit by bit; the outcome counts differences and describes the first."""
    count = len(expected) // 4
    if actual == expected:
        return Outcome(right=True, differ=0, compared=count)
    words = list(zip(array("I", actual), array("I", expected)))
    differences = [
        (at, actual_word ^ expected_word)
        for at, (actual_word, expected_word) in enumerate(words)
        if actual_word != expected_word
    ]
    at, bits = differences[0]
    message = "%s: %d of %d values %s wrong, the first at %d, where %s" % (
        what,
        len(differences),
        count,
        "is" if len(differences) == 1 else "are",
        at,
        describe_bits(bits),
    )
    return Outcome(right=False, differ=len(differences), compared=count, words=message)


def describe_bits(difference: int) -> str:
    """The set bits of a difference: ``bit 5 is wrong``, ``bits 0, 1, 7 are wrong``; their number if above eight."""
    bits = [at for at in range(difference.bit_length()) if difference >> at & 1]
    if len(bits) > 8:
        return "%d bits are wrong" % len(bits)
    return "bit%s %s %s wrong" % ("s" * (len(bits) > 1), ", ".join(map(str, bits)), "are" if len(bits) > 1 else "is")


def merge_outcomes(parts: Sequence[Outcome], **details: Any) -> Outcome:
    """Several comparisons as one outcome: right if all are, counts added up, the first two faults as words."""
    wrong = [part for part in parts if not part.right]
    more: Dict[str, Any] = details
    return Outcome(
        right=not wrong,
        differ=sum(part.differ or 0 for part in parts),
        compared=sum(part.compared or 0 for part in parts),
        words="; ".join(part.words for part in wrong[:2]),
        details=more or None,
    )
