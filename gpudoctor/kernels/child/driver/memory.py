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
from . import Context, describe_bits

KERNELS = (
    Spec("driver.memory", "memory patterns, driver alone", size="64 MiB", level="standard", seconds=12.0),
    Spec("driver.memory.all", "all free memory, driver alone", "GB/s", "half of what is free", seconds=60.0),
)
SAMPLE, CHUNK, LEAST = 64 << 20, 1 << 30, 1 << 20
"""Bytes: at level standard, the most in one piece, the fewest worth testing."""
_SAMPLE_CPU, _CHUNK_CPU, _LEAST_CPU = 1208, 640, 64
_BUDGET_SECONDS = 20.0
"""Seconds after which no further pattern is begun."""
WALKING, ADDRESS, DICE = 0, 1, 2
WRITE, FIND, FIND_TURNED = 0, 1, 2
_ENDS = 64
"""Words that are read back at both ends of a part."""
_MASK = (1 << 64) - 1
_PLANTED_BIT = 1 << 41


class Part(NamedTuple):
    """An allocation: its address, and its length in 64-bit words."""

    address: int
    words: int


class SweepReport(NamedTuple):
    """What a sweep found: number of wrong words, their lowest address, and all bits that were wrong in any."""

    number: int
    address: int
    bits: int


def pattern(kind: int, address: int, step: int) -> int:
    """The 64-bit word that a pattern puts at `address`: of kind WALKING a single one bit, which moves with `step`, of
    ADDRESS the address, of DICE splitmix64 of address and step (Steele, Lea, Flood 2014).
    """
    if kind == WALKING:
        return 1 << ((address >> 3) + step) % 64
    if kind == ADDRESS:
        return address
    mixed = (address + step + 0x9E3779B97F4A7C15) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31


def run(context: Context, spec: Spec) -> Outcome:
    """Test 64 MiB of GPU memory, for ``driver.memory.all`` half of what is free (on a CPU 1208 bytes), with as many
    patterns as can be begun within 20 s.
    """
    whole = spec.id.endswith("all")
    limit = (_SAMPLE_CPU if context.on_cpu else SAMPLE) if not whole or context.on_cpu else context.free()
    with context.memory(24) as (report,), _allocated_parts(context, limit) as parts:
        test = _MemoryTest(context, parts, report)
        test.self_test()
        began = time.perf_counter()
        for kind, step in _patterns(context):
            if time.perf_counter() - began > _BUDGET_SECONDS:
                break
            test.run_pattern(kind, step)
        return test.outcome(whole)


def _patterns(context: Context) -> Iterator[Tuple[int, int]]:
    """Yield (kind, step) of each pattern: addresses, random words, and a walking one bit (on a CPU every eighth)."""
    yield ADDRESS, 0
    yield DICE, context.seed << 40
    yield from ((WALKING, step) for step in range(0, 64, 8 if context.on_cpu else 1))


@contextmanager
def _allocated_parts(context: Context, limit: int) -> Iterator[List[Part]]:
    """A context with up to `limit` bytes in parts, half of the free memory at most; `CannotRun` if too little."""
    machine = context.machine
    size, minimum = (_CHUNK_CPU, _LEAST_CPU) if context.on_cpu else (CHUNK, LEAST)
    before = machine.memory_info()[0]
    left, kept_free = min(limit, context.free()), before - context.free()
    parts: List[Part] = []
    try:
        while left >= minimum and size >= minimum and machine.memory_info()[0] - min(size, left) >= kept_free:
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


class _MemoryTest:
    """Sweeps over the parts, with the counts and reports of what they found."""

    def __init__(self, context: Context, parts: List[Part], report: int) -> None:
        self.machine, self.parts, self.report = context.machine, parts, report
        self.program = context.program("memory")
        self.grid = (2, 16) if context.on_cpu else (1024, 256)
        self.sweeps = self.bad_sweeps = self.read = self.moved = 0
        self.seconds = 0.0
        self.wrong: List[SweepReport] = []
        self.self_test_error = ""

    def self_test(self) -> None:
        """Plant one wrong bit and sweep: not found, it sets `self_test_error`; a report of more goes to `wrong`."""
        part = self.parts[-1]
        place = part.address + 8 * (part.words // 2)
        self.sweep([part], ADDRESS, 0, WRITE)
        self.machine.write(place, struct.pack("<Q", place ^ _PLANTED_BIT))
        report = self.sweep([part], ADDRESS, 0, FIND)
        if not (report.number and report.bits & _PLANTED_BIT):
            self.self_test_error = "a bit that was turned over on purpose at %#x was not found" % place
        elif report != SweepReport(1, place, _PLANTED_BIT):
            self.wrong.append(report)

    def run_pattern(self, kind: int, step: int) -> None:
        """Write a pattern to all parts, check and invert every word, then check the inverted words."""
        self.sweep(self.parts, kind, step, WRITE)
        wrong = [report for part in self.parts for report in self._check_ends(part, kind, step)]
        wrong += [self.sweep(self.parts, kind, step, act) for act in (FIND, FIND_TURNED)]
        self.wrong += [report for report in wrong if report.number]
        self.sweeps += 2
        self.bad_sweeps += sum(bool(report.number) for report in wrong[-2:])
        self.read += 2 * sum(part.words for part in self.parts)

    def _check_ends(self, part: Part, kind: int, step: int) -> Iterator[SweepReport]:
        """Yield a report of each wrong word at both ends of a part, read back and compared on the host."""
        words = min(_ENDS, part.words)
        for first in {0, part.words - words}:
            address = part.address + 8 * first
            actual = struct.unpack("<%dQ" % words, self.machine.read(address, 8 * words))
            for place, word in zip(range(address, address + 8 * words, 8), actual):
                bits = word ^ pattern(kind, place, step)
                if bits:
                    yield SweepReport(1, place, bits)

    def sweep(self, parts: List[Part], kind: int, step: int, act: int) -> SweepReport:
        """Launch a sweep over each part; returns one report of all. `act`: WRITE, FIND (and invert) or FIND_TURNED."""
        self.machine.write(self.report, struct.pack("<3Q", 0, _MASK, 0))
        began = time.perf_counter()
        for part in parts:
            self.program("sweep", *self.grid, part.address, part.words, kind, step, act, self.report)
        self.seconds += time.perf_counter() - began
        self.moved += sum(part.words for part in parts) * (16 if act == FIND else 8)
        return SweepReport(*struct.unpack("<3Q", self.machine.read(self.report, 24)))

    def outcome(self, timed: bool) -> Outcome:
        """The result of all sweeps; GB/s as the value if `timed`."""
        size = 8 * sum(part.words for part in self.parts)
        details: Dict[str, Any] = {"bytes": size, "sweeps": self.sweeps}
        rate: Optional[float] = self.moved / self.seconds / 1e9 if timed and self.seconds else None
        differ = sum(report.number for report in self.wrong)
        if differ:
            first = min(report.address for report in self.wrong)
            bits = 0
            for report in self.wrong:
                bits |= report.bits
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
                describe_bits(bits),
            )
            return Outcome(rate, right=False, differ=differ, compared=self.read, words=words, details=details)
        return Outcome(
            rate,
            right=not self.self_test_error,
            differ=0,
            compared=self.read,
            words=self.self_test_error,
            details=details,
        )
