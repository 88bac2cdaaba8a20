"""A vector summed up in blocks: whether threads see each other's values, and whether all of them took part."""

from __future__ import annotations

from array import array
from typing import List

from .._kernel import Outcome, Spec
from . import Context, Program, compare_words, inverted, merge_outcomes, random_words

KERNELS = (Spec("driver.reduction", "shared-memory sum, driver alone", size="2¹⁶", level="standard", seconds=8.0),)
_COUNT, _BLOCKS, _THREADS = (1 << 16) + 3, 131, 256
_COUNT_CPU, _BLOCKS_CPU, _THREADS_CPU = 515, 3, 32


def run(context: Context, _: Spec) -> Outcome:
    """Check sums of random words, and of ones, which count what took part, by blocks through shared memory."""
    count = _COUNT_CPU if context.on_cpu else _COUNT
    program = context.program("reduction")
    return merge_outcomes(
        [
            _compare_sums(context, program, "sums of random words", random_words(context, count, 1)),
            _compare_sums(context, program, "numbers of values in the sums", array("I", [1]) * count),
        ]
    )


def _compare_sums(context: Context, program: Program, what: str, values: "array[int]") -> Outcome:
    """Launch the summation, and compare each block's sum and the total with those of the CPU."""
    blocks, threads = (_BLOCKS_CPU, _THREADS_CPU) if context.on_cpu else (_BLOCKS, _THREADS)
    expected = array("I", block_sums(values, blocks, threads))
    size = 4 * len(expected)
    with context.memory(4 * len(values), size) as (values_at, sums_at):
        context.machine.write(values_at, values.tobytes())
        context.machine.write(sums_at, inverted(expected[:-1].tobytes()) + bytes(4))
        program("sum_u32", blocks, threads, values_at, len(values), sums_at, sums_at + size - 4)
        return compare_words(what, context.machine.read(sums_at, size), expected.tobytes())


def block_sums(values: "array[int]", blocks: int, threads: int) -> List[int]:
    """Each block's sum modulo 2**32, and behind them the total; blocks take `threads` values each in turn."""
    totals = [0] * blocks
    for turn, at in enumerate(range(0, len(values), threads)):
        totals[turn % blocks] += sum(values[at : at + threads])
    return [total & 0xFFFFFFFF for total in (*totals, sum(totals))]
