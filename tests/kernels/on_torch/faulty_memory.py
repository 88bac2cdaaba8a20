"""A torch whose memory is faulty: ``python faulty_memory.py KIND PROGRAM WORDS...`` runs a program that uses it.

Faults lie in the third tensor of 4096 whole numbers that is made, and act on its memory itself after each operation
that writes to it, as cells do: a bit that is stuck, one that another word disturbs as it rises, one that is lost in a
wait. What is planted is printed to standard error as JSON.
"""

from __future__ import annotations

import ctypes
import json
import runpy
import sys
import time
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.utils._python_dispatch import TorchDispatchMode  # type: ignore[import-not-found,unused-ignore]

WORDS, WHICH = 4096, 2
STUCK, STUCK_BIT = 1234, 17
LEAKING, LEAKING_BIT = 77, 63
VICTIM, AGGRESSOR, VICTIM_BIT = 2048 + 5, 9, 3
SECOND = 3000
"""Another word that disturbs the same one."""
DEAF, DEAF_BIT = 4095, 0


class Faults(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Acts on the memory of one tensor."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.made = 0
        self.cells: Any = None
        self.first = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = [self.read(word) for word in self.aggressors]
        result = func(*args, **(kwargs or {}))
        made = isinstance(result, torch.Tensor) and result.dtype is torch.int64 and result.numel() == WORDS
        if made and func is torch.ops.aten.zeros.default:
            if self.made == WHICH:
                self.cells, self.first = (ctypes.c_uint64 * WORDS).from_address(result.data_ptr()), result.data_ptr()
                self.keep = result
                self.say()
            self.made += 1
        if self.cells is not None and func._schema.is_mutable and self.first <= self.start(args[0]) < self.end:
            self.act(before, args[0])
        return result

    @property
    def end(self) -> int:
        """The address behind the faulty memory."""
        return self.first + 8 * WORDS

    def start(self, tensor: Any) -> int:
        """The address of a tensor, whichever view it is."""
        return int(tensor.data_ptr())

    def read(self, word: int) -> int:
        """A word of the faulty memory."""
        return int(self.cells[word]) if self.cells is not None else 0

    @property
    def aggressors(self) -> tuple[int, ...]:
        """The words that disturb the victim."""
        return {"disturbed": (AGGRESSOR,), "disturbed twice": (AGGRESSOR, SECOND)}.get(self.kind, ())

    def act(self, before: list[int], written: Any) -> None:
        """What the faults do to what has been written."""
        if self.kind == "stuck":
            self.cells[STUCK] |= 1 << STUCK_BIT
            self.cells[DEAF] &= ~(1 << DEAF_BIT) & ((1 << 64) - 1)
        rise = any(
            self.read(word) & ~bits & 1 << VICTIM_BIT for word, bits in zip(self.aggressors, before, strict=True)
        )
        if rise and not self.after(written):
            self.cells[VICTIM] ^= 1 << VICTIM_BIT

    def after(self, written: Any) -> bool:
        """Whether the same operation writes the victim, which comes after what disturbs it."""
        first = (self.start(written) - self.first) // 8
        places = [first + word for word in torch_places(written)]
        return VICTIM in places

    def wait(self, seconds: float) -> None:
        """A wait, in which a charge is lost."""
        if self.kind == "leaking" and self.cells is not None:
            self.cells[LEAKING] &= ~(1 << LEAKING_BIT) & ((1 << 64) - 1)

    def say(self) -> None:
        """Tell where the faults are."""
        places = {"stuck": (STUCK, DEAF), "leaking": (LEAKING,), "sound": ()}
        addresses = [hex(self.first + 8 * word) for word in places.get(self.kind, (VICTIM, *self.aggressors))]
        sys.stderr.write("planted " + json.dumps(addresses) + "\n")


def torch_places(view: Any) -> list[int]:
    """The words of a view, counted from its first."""
    places = [0]
    for size, stride in zip(view.shape, view.stride(), strict=True):
        places = [place + stride * step for place in places for step in range(size)]
    return places


def main() -> None:
    """Run the program in whose torch the faults are."""
    kind, sys.argv = sys.argv[1], sys.argv[2:]
    mode, sleep = Faults(kind), time.sleep

    def waits(seconds: Any) -> None:
        sleep(min(seconds, 0.01))
        mode.wait(seconds)

    time.sleep = waits
    with mode:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
