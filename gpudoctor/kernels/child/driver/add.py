"""Two vectors added: the least that a GPU must get right, at sizes that fill no block."""

from __future__ import annotations

from array import array
from operator import add
from typing import Any, List

from .._kernel import Outcome, Spec
from ._check import dice, judged, together, turned
from ._rung import Context, Program

KERNELS = (Spec("driver.add", "vector add, driver alone", size="2¹⁶", level="standard", seconds=8.0),)
_SIZES, _SIZES_CPU = (1, 255, (1 << 16) + 3), (1, 31, 257)
_THREADS, _THREADS_CPU = 256, 32


def run(context: Context, _: Spec) -> Outcome:
    """f32 on whole numbers whose sums are exact, u32 on whatever bits, where sums wrap around."""
    program = context.program("add")
    parts: List[Outcome] = []
    for count in _SIZES_CPU if context.on_cpu else _SIZES:
        left, right = dice(context, count, 1), dice(context, count, 2)
        wanted = array("I", [total & 0xFFFFFFFF for total in map(add, left, right)])
        parts.append(_added(context, program, "add_u32", left, right, wanted))
        one, other = (array("f", [(bits >> 9) - (1 << 22) for bits in side]) for side in (left, right))
        parts.append(_added(context, program, "add_f32", one, other, array("f", map(add, one, other))))
    return together(parts)


def _added(
    context: Context, program: Program, name: str, left: "array[Any]", right: "array[Any]", wanted: "array[Any]"
) -> Outcome:
    """One launch, against the sums that Python makes."""
    count, size = len(left), 4 * len(left)
    threads = _THREADS_CPU if context.on_cpu else _THREADS
    with context.memory(size, size, size) as (one, other, total):
        context.machine.write(one, left.tobytes())
        context.machine.write(other, right.tobytes())
        context.machine.write(total, turned(wanted.tobytes()))
        program(name, -(-count // threads), threads, one, other, total, count)
        return judged("%s of %d" % (name, count), context.machine.read(total, size), wanted.tobytes())
