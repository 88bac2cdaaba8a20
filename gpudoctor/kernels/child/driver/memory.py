"""Patterns through the memory that is free: a bit that does not hold what was written, or answers for another address.

Each word's pattern follows from its address (see memory.ptx). It is written, found and turned over, and found again,
by sweeps over all that was taken. The GPU compares; that it compares rightly is shown twice: words at both ends of each
part are read back and compared with `pattern`, reckoned here, and a bit turned over on purpose must be found. 64 MiB
may stay in the cache of a large GPU: only ``driver.memory.all`` is sure to reach the memory itself.
"""

from __future__ import annotations

import struct
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ._check import bits_in_words
from ._rung import Context

KERNELS = (
    Spec("driver.memory", "memory patterns, driver alone", size="64 MiB", level="standard", seconds=12.0),
    Spec("driver.memory.all", "all free memory, driver alone", "GB/s", "half of what is free", seconds=60.0),
)
SAMPLE, CHUNK, LEAST = 64 << 20, 1 << 30, 1 << 20
"""Bytes: at level standard, the most in one piece, the fewest worth testing."""
_SAMPLE_CPU, _CHUNK_CPU, _LEAST_CPU = 1208, 640, 64
_BUDGET = 20.0
"""Seconds after which no further pattern is begun."""
WALKING, ADDRESS, DICE = 0, 1, 2
WRITE, FIND, FIND_TURNED = 0, 1, 2
_ENDS = 64
"""Words that are read back at both ends of a part."""
_MASK = (1 << 64) - 1
_PLANTED = 1 << 41


class Part(NamedTuple):
    """Memory that was taken: its address and how many 64-bit words it has."""

    address: int
    words: int


class Found(NamedTuple):
    """What a sweep reports: words that were wrong, the lowest address of them, every bit that was."""

    number: int
    address: int
    bits: int


def pattern(kind: int, address: int, step: int) -> int:
    """What the word at that address shall hold; kind 2 is splitmix64 (Steele, Lea, Flood 2014)."""
    if kind == WALKING:
        return 1 << ((address >> 3) + step) % 64
    if kind == ADDRESS:
        return address
    mixed = (address + step + 0x9E3779B97F4A7C15) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31


def run(context: Context, spec: Spec) -> Outcome:
    """All patterns through a sample, or through half of what is free."""
    whole = spec.id.endswith("all")
    most = (_SAMPLE_CPU if context.on_cpu else SAMPLE) if not whole or context.on_cpu else context.free()
    with context.memory(24) as (report,), _taken(context, most) as parts:
        test = _Test(context, parts, report)
        test.plant()
        began = time.perf_counter()
        for kind, step in _patterns(context):
            if time.perf_counter() - began > _BUDGET:
                break
            test.go_through(kind, step)
        return test.outcome(whole)


def _patterns(context: Context) -> Iterator[Tuple[int, int]]:
    """The address, dice thrown anew each run, and a one that walks through all 64 bits (on a CPU every eighth)."""
    yield ADDRESS, 0
    yield DICE, context.seed << 40
    yield from ((WALKING, step) for step in range(0, 64, 8 if context.on_cpu else 1))


@contextmanager
def _taken(context: Context, most: int) -> Iterator[List[Part]]:
    """Parts of free memory, `most` bytes in all, and never more than half of what is free; given back in the end."""
    machine = context.machine
    size, least = (_CHUNK_CPU, _LEAST_CPU) if context.on_cpu else (CHUNK, LEAST)
    before = machine.room()[0]
    left, kept_free = min(most, context.free()), before - context.free()
    parts: List[Part] = []
    try:
        while left >= least and size >= least and machine.room()[0] - min(size, left) >= kept_free:
            words = min(size, left) // 8
            try:
                parts.append(Part(machine.allocate(8 * words), words))
                left -= 8 * words
            except CannotRun:  # free, but not in one piece, or taken by another at this moment
                size //= 2
        if not parts:
            raise CannotRun("%d MiB of its memory are free: too little to test" % (before >> 20))
        yield parts
    finally:
        for part in parts:
            machine.release(part.address)


class _Test:
    """Sweeps over the parts, and what they found."""

    def __init__(self, context: Context, parts: List[Part], report: int) -> None:
        self.machine, self.parts, self.report = context.machine, parts, report
        self.program = context.program("memory")
        self.grid = (2, 16) if context.on_cpu else (1024, 256)
        self.sweeps = self.bad_sweeps = self.read = self.moved = 0
        self.seconds = 0.0
        self.wrong: List[Found] = []
        self.blind = ""

    def plant(self) -> None:
        """Turn one bit over on purpose: a test that does not find it is worth nothing."""
        part = self.parts[-1]
        place = part.address + 8 * (part.words // 2)
        self.sweep([part], ADDRESS, 0, WRITE)
        self.machine.write(place, struct.pack("<Q", place ^ _PLANTED))
        found = self.sweep([part], ADDRESS, 0, FIND)
        if not (found.number and found.bits & _PLANTED):
            self.blind = "a bit that was turned over on purpose at %#x was not found" % place
        elif found != Found(1, place, _PLANTED):
            self.wrong.append(found)

    def go_through(self, kind: int, step: int) -> None:
        """One pattern: written everywhere, found and turned over everywhere, found turned over everywhere."""
        self.sweep(self.parts, kind, step, WRITE)
        wrong = [found for part in self.parts for found in self._ends(part, kind, step)]
        wrong += [self.sweep(self.parts, kind, step, act) for act in (FIND, FIND_TURNED)]
        self.wrong += [found for found in wrong if found.number]
        self.sweeps += 2
        self.bad_sweeps += sum(bool(found.number) for found in wrong[-2:])
        self.read += 2 * sum(part.words for part in self.parts)

    def _ends(self, part: Part, kind: int, step: int) -> Iterator[Found]:
        """Words at both ends, read back and compared here."""
        words = min(_ENDS, part.words)
        for first in {0, part.words - words}:
            address = part.address + 8 * first
            held = struct.unpack("<%dQ" % words, self.machine.read(address, 8 * words))
            for place, word in zip(range(address, address + 8 * words, 8), held):
                bits = word ^ pattern(kind, place, step)
                if bits:
                    yield Found(1, place, bits)

    def sweep(self, parts: List[Part], kind: int, step: int, act: int) -> Found:
        """One launch a part; what they report together."""
        self.machine.write(self.report, struct.pack("<3Q", 0, _MASK, 0))
        began = time.perf_counter()
        for part in parts:
            self.program("sweep", *self.grid, part.address, part.words, kind, step, act, self.report)
        self.seconds += time.perf_counter() - began
        self.moved += sum(part.words for part in parts) * (16 if act == FIND else 8)
        return Found(*struct.unpack("<3Q", self.machine.read(self.report, 24)))

    def outcome(self, timed: bool) -> Outcome:
        """What was found, in words and figures."""
        size = 8 * sum(part.words for part in self.parts)
        details: Dict[str, Any] = {"bytes": size, "sweeps": self.sweeps}
        rate: Optional[float] = self.moved / self.seconds / 1e9 if timed and self.seconds else None
        differ = sum(found.number for found in self.wrong)
        if differ:
            first = min(found.address for found in self.wrong)
            bits = 0
            for found in self.wrong:
                bits |= found.bits
            details.update(
                first_address="%#x" % first,
                bits=[at for at in range(64) if bits >> at & 1],
                sweeps_with_errors=self.bad_sweeps,
            )
            words = "%d of %d words read are wrong, in %d of %d sweeps; the first lies at %#x; %s" % (
                differ,
                self.read,
                self.bad_sweeps,
                self.sweeps,
                first,
                bits_in_words(bits),
            )
            return Outcome(rate, right=False, differ=differ, compared=self.read, words=words, details=details)
        return Outcome(rate, right=not self.blind, differ=0, compared=self.read, words=self.blind, details=details)
