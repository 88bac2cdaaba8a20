"""Two vectors added: the least that a GPU must get right, at sizes that fill no block."""

from __future__ import annotations

from array import array
from operator import add
from typing import Any, List

from .._kernel import Outcome, Spec
from . import Context, Program, compare_words, inverted, merge_outcomes, random_words

KERNELS = (Spec("driver.add", "vector add, driver alone", size="2¹⁶", level="standard", seconds=8.0),)
_SIZES, _SIZES_CPU = (1, 255, (1 << 16) + 3), (1, 31, 257)
_THREADS, _THREADS_CPU = 256, 32


def run(context: Context, _: Spec) -> Outcome:
    """Add u32 vectors of random bits (sums wrap around) and f32 vectors of whole numbers, at several sizes, exactly."""
    program = context.program("add")
    parts: List[Outcome] = []
    for count in _SIZES_CPU if context.on_cpu else _SIZES:
        left, right = random_words(context, count, 1), random_words(context, count, 2)
        expected = array("I", [total & 0xFFFFFFFF for total in map(add, left, right)])
        parts.append(_compare_sum(context, program, "add_u32", left, right, expected))
        left_floats, right_floats = (array("f", [(bits >> 9) - (1 << 22) for bits in side]) for side in (left, right))
        parts.append(
            _compare_sum(
                context, program, "add_f32", left_floats, right_floats, array("f", map(add, left_floats, right_floats))
            )
        )
    return merge_outcomes(parts)


def _compare_sum(
    context: Context, program: Program, name: str, left: "array[Any]", right: "array[Any]", expected: "array[Any]"
) -> Outcome:
    """Add two vectors on the device with kernel `name`, and compare the sums with the expected ones."""
    count, size = len(left), 4 * len(left)
    threads = _THREADS_CPU if context.on_cpu else _THREADS
    with context.memory(size, size, size) as (left_at, right_at, total_at):
        context.machine.write(left_at, left.tobytes())
        context.machine.write(right_at, right.tobytes())
        context.machine.write(total_at, inverted(expected.tobytes()))
        program(name, -(-count // threads), threads, left_at, right_at, total_at, count)
        return compare_words("%s of %d" % (name, count), context.machine.read(total_at, size), expected.tobytes())
