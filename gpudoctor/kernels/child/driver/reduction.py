"""A vector summed up in blocks: whether threads see each other's values, and whether all of them took part."""

from __future__ import annotations

from array import array
from typing import List

from .._kernel import Outcome, Spec
from ._check import dice, judged, together, turned
from ._rung import Context, Program

KERNELS = (Spec("driver.reduction", "shared-memory sum, driver alone", size="2¹⁶", level="standard", seconds=8.0),)
_COUNT, _BLOCKS, _THREADS = (1 << 16) + 3, 131, 256
_COUNT_CPU, _BLOCKS_CPU, _THREADS_CPU = 515, 3, 32


def run(context: Context, _: Spec) -> Outcome:
    """Random words, whose sums wrap around; then ones, whose sums say how many threads' values are in them."""
    count = _COUNT_CPU if context.on_cpu else _COUNT
    program = context.program("reduction")
    return together(
        [
            _summed(context, program, "sums of random words", dice(context, count, 1)),
            _summed(context, program, "numbers of values in the sums", array("I", [1]) * count),
        ]
    )


def _summed(context: Context, program: Program, what: str, values: "array[int]") -> Outcome:
    """One launch: each block's sum, and behind them that of all."""
    blocks, threads = (_BLOCKS_CPU, _THREADS_CPU) if context.on_cpu else (_BLOCKS, _THREADS)
    wanted = array("I", sums(values, blocks, threads))
    size = 4 * len(wanted)
    with context.memory(4 * len(values), size) as (there, parts):
        context.machine.write(there, values.tobytes())
        context.machine.write(parts, turned(wanted[:-1].tobytes()) + bytes(4))
        program("sum_u32", blocks, threads, there, len(values), parts, parts + size - 4)
        return judged(what, context.machine.read(parts, size), wanted.tobytes())


def sums(values: "array[int]", blocks: int, threads: int) -> List[int]:
    """Of each block's values, modulo 2**32, and of all: the blocks take `threads` values each, over and over."""
    found = [0] * blocks
    for turn, at in enumerate(range(0, len(values), threads)):
        found[turn % blocks] += sum(values[at : at + threads])
    return [total & 0xFFFFFFFF for total in (*found, sum(found))]
