"""Products under heat: one exact product again and again for as long as is asked, each compared bit for bit.

Whatever the order of its sums, its bits are the same. The first is judged by Freivalds' check, in which the device has
no part; the last one, too, in case the copy to compare with has changed meanwhile.
"""

from __future__ import annotations

import time
from typing import List

from .._kernel import Outcome, Spec
from . import Context, matmul, median_and_spread
from .matmul import FORMS

KERNELS = (Spec("soak.matmul", "products under heat", "TFLOP/s", "8192³ or less, one after another", "soak", 60.0),)
_SERIES_SECONDS = 0.5
"""Seconds of products between two looks at how many were wrong."""
_SERIES_SECONDS_CPU = 0.02


def run(context: Context, _: Spec) -> Outcome:
    """Multiply and compare for `Context.work` seconds; value: the median TFLOP/s of the second half, when it is hot."""
    torch, name = context.torch, _form_name(context)
    side = matmul.largest_side(context, FORMS[name])
    (case,) = matmul.cases(context, "matmul." + name, side)
    reference = case.compute()
    verdict = case.judge(reference)
    wrong = torch.zeros(2, dtype=torch.int64, device=context.device)

    def multiply() -> None:
        """One product, compared with the first; wrong values, and products with any, are counted on the device."""
        count = (case.compute() != reference).sum()
        wrong.add_(torch.stack([count, (count > 0).to(count.dtype)]))

    once = min(context.seconds(multiply, _SERIES_SECONDS_CPU))
    calls = max(1, int((_SERIES_SECONDS_CPU if context.on_cpu else _SERIES_SECONDS) / once))
    series: List[float] = []
    until = time.perf_counter() + context.work
    while not series or time.perf_counter() < until:
        began = time.perf_counter()
        for _call in range(calls):
            multiply()
        context.synchronize()
        series.append((time.perf_counter() - began) / calls)
    last = case.judge(case.compute())
    differ, products = (int(number) for number in wrong.tolist())
    differ += verdict.differ + last.differ
    usual, spread = median_and_spread(series[len(series) // 2 :])
    operations = 2 * side * side * min(FORMS[name].inner, side) / 1e12
    return Outcome(
        value=operations / usual,
        spread=spread,
        right=not differ,
        differ=differ,
        compared=(len(series) * calls + 2) * reference.numel(),
        words=_words(products, len(series) * calls, verdict.words or last.words) if differ else "",
        details={
            "type": name,
            "side": side,
            "products": len(series) * calls,
            "wrong_products": products,
            "first_rate": operations / series[0],
            "last_rate": operations / series[-1],
        },
    )


def _form_name(context: Context) -> str:
    """The type that heats most, ``bf16`` or ``fp16`` where tensor cores multiply it, else ``fp32``."""
    capability = context.capability()
    if context.on_cpu or capability < (7, 0):
        return "fp32"
    return "bf16" if capability >= (8, 0) else "fp16"


def _words(wrong: int, products: int, judged: str) -> str:
    """``12 of 40000 equal products under heat have wrong values``; without wrong ones `judged` as it is."""
    if not wrong:
        return judged
    return "%d of %d equal products under heat have wrong values" % (wrong, products)
