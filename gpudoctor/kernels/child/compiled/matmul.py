"""Matrix products by ``tl.dot``: that Triton reaches the tensor cores and every value is right."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager._case import Case
from ..eager._check import exact
from ..eager._numbers import odd
from ._launch import Launch, measured
from ._rung import Context

_SIDE, _SIDE_CPU = 3000, 40
KERNELS = tuple(
    Spec("triton.matmul." + kind, "Triton: %s matmul" % kind, "TFLOP/s", "2984 × 2992 × 3000", seconds=60.0)
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
    """Odd numbers from -3 to 3: exact in every type, tf32 among them, and in fp32 sums in whatever order."""
    kind = KINDS[spec.id.rpartition(".")[2]]
    if not context.on_cpu and context.capability() < kind.least:
        raise CannotRun("%s has no tensor cores before sm_%d%d" % (kind.torch, *kind.least))
    m, n, k = _sides(_SIDE_CPU if context.on_cpu else _SIDE)
    context.need(8 * (m * k + k * n + 2 * m * n))
    left, right = _operands(context, m)
    launch = _launch(context, kind, left, right)
    case = _case(context, spec.id, launch, left, right)
    outcome = measured(context, [case], launch.again(), lambda once: 2 * m * n * k / once / 1e12)
    return outcome if context.on_cpu else _with_instructions(outcome, launch)


def _with_instructions(outcome: Outcome, launch: Launch) -> Outcome:
    """Whether what was compiled multiplies on the tensor cores."""
    made = launch.into(launch.blank())
    ptx = str(getattr(made, "asm", {}).get("ptx", ""))
    if not ptx:
        return outcome
    tensor_cores = "mma" in ptx
    words = "" if tensor_cores else "This Triton compiles it for this GPU without its tensor cores"
    return outcome._replace(
        words="; ".join(filter(None, (outcome.words, words))),
        details=dict(outcome.details or {}, tensor_cores=tensor_cores),
    )


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """One product of about size × size values."""
    left, right = _operands(context, size)
    yield _case(context, name, _launch(context, KINDS[name.rpartition(".")[2]], left, right), left, right)


def _sides(size: int) -> Tuple[int, int, int]:
    """m, n and k: multiples of 8, as the memory wants them, and none of a tile."""
    m = max(1, size // 32) * 32 + 8
    return m, m + 8, m + 16


def _operands(context: Context, size: int) -> Tuple[Any, Any]:
    m, n, k = _sides(size)
    return odd(context, (m, k), 3, 1), odd(context, (k, n), 3, 2)


def _launch(context: Context, kind: _Kind, left: Any, right: Any) -> Launch:
    torch, ((m, k), n) = context.torch, (left.shape, right.shape[1])
    a, b = (matrix.to(context.device, getattr(torch, kind.torch)) for matrix in (left, right))
    tm, tn, tk = _TILE_CPU if context.on_cpu else kind.tile
    kernel = context.kernels.matmul[(-(-m // tm), -(-n // tn))]
    return Launch(
        lambda: torch.full((m, n), float("nan"), device=context.device),
        lambda c: kernel(a, b, c, m, n, k, M=tm, N=tn, K=tk, WIDEN=context.on_cpu, num_warps=kind.warps),
    )


def _case(context: Context, name: str, launch: Launch, left: Any, right: Any) -> Case:
    reference = left.double() @ right.double()
    return Case(name, launch.once, lambda result: exact(context.torch, result, reference))
