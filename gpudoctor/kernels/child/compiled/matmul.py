"""Matrix products by ``tl.dot``: that Triton reaches the tensor cores and every value is right."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager._check import exact
from ..eager._rung import median_and_spread
from ._rung import Context

_SIDES = (3000, 3008, 3024)
_SIDES_CPU = (40, 48, 56)
"""m, n and k: multiples of 8, as the memory wants them, and none of a tile."""

KERNELS = tuple(
    Spec("triton.matmul." + kind, "Triton: %s matmul" % kind, "TFLOP/s", "3000 × 3008 × 3024", seconds=60.0)
    for kind in ("fp16", "bf16", "fp32")
)


class _Kind(NamedTuple):
    """How a type is multiplied; the tiles fit into the shared memory of every GPU since sm_75 (64 KiB)."""

    torch: str
    tile: Tuple[int, int, int]
    warps: int
    least: Tuple[int, int]
    """The compute capability that it needs."""


KINDS = {
    "fp16": _Kind("float16", (128, 128, 32), 8, (7, 0)),
    "bf16": _Kind("bfloat16", (128, 128, 32), 8, (8, 0)),
    "fp32": _Kind("float32", (64, 64, 32), 4, (7, 0)),
}
_TILE_CPU = (32, 32, 32)


def run(context: Context, spec: Spec) -> Outcome:
    """Whole numbers from -3 to 3: exact in every type, tf32 among them, and in fp32 sums in whatever order."""
    kind, torch = KINDS[spec.id.rpartition(".")[2]], context.torch
    if not context.on_cpu and context.capability() < kind.least:
        raise CannotRun("%s has no tensor cores before sm_%d%d" % (kind.torch, *kind.least))
    m, n, k = _SIDES_CPU if context.on_cpu else _SIDES
    context.need(8 * (m * k + k * n + m * n))
    left, right = (
        torch.randint(-3, 4, shape, generator=context.generator(salt)).double()
        for salt, shape in ((1, (m, k)), (2, (k, n)))
    )
    a, b = (matrix.to(context.device, getattr(torch, kind.torch)) for matrix in (left, right))
    c = torch.full((m, n), -1.0, device=context.device)
    work = _product(context, kind, a, b, c)
    warm = context.first(work)[1]
    judged = exact(torch, c, left @ right)
    once, spread = median_and_spread(context.seconds(work))
    return Outcome(value=2 * m * n * k / once / 1e12, spread=spread, details=warm, **judged.outcome())


def _product(context: Context, kind: _Kind, a: Any, b: Any, c: Any) -> Any:
    """What does ``c = a @ b`` when called."""
    (m, k), n = a.shape, b.shape[1]
    tm, tn, tk = _TILE_CPU if context.on_cpu else kind.tile
    kernel = context.kernels.matmul[(-(-m // tm), -(-n // tn))]
    return lambda: kernel(a, b, c, m, n, k, M=tm, N=tn, K=tk, WIDEN=context.on_cpu, num_warps=kind.warps)
