"""Matrix products by ``tl.dot``: that Triton reaches the tensor cores and every value is right."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Tuple

from .._kernel import CannotRun, Outcome, Spec
from ..eager._check import Case, exact, random_odd
from . import Context, Launch, check_and_time

_SIDE, _SIDE_CPU = 3000, 40
KERNELS = tuple(
    Spec("triton.matmul." + kind, "Triton: %s matmul" % kind, "TFLOP/s", "2984 × 2992 × 3000", seconds=60.0)
    for kind in ("fp16", "bf16", "fp32")
)


class _Kind(NamedTuple):
    """Parameters for one type; the tiles fit into the shared memory of every GPU since sm_75 (64 KiB)."""

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
    """Check and time a Triton matrix product in TFLOP/s; odd factors from -3 to 3 make it exact in every type.

    Raises `CannotRun` on a GPU below the type's compute capability.
    """
    kind = KINDS[spec.id.rpartition(".")[2]]
    if not context.on_cpu and context.capability() < kind.least:
        raise CannotRun("%s has no tensor cores before sm_%d%d" % (kind.torch, *kind.least))
    m, n, k = _sides(_SIDE_CPU if context.on_cpu else _SIDE)
    context.need(8 * (m * k + k * n + 2 * m * n))
    left, right = _operands(context, m)
    launch = _launch(context, kind, left, right)
    case = _case(context, spec.id, launch, left, right)
    outcome = check_and_time(context, [case], launch.again(), lambda once: 2 * m * n * k / once / 1e12)
    return outcome if context.on_cpu else _with_tensor_core_use(outcome, launch)


def _with_tensor_core_use(outcome: Outcome, launch: Launch) -> Outcome:
    """The outcome with the detail ``tensor_cores``: whether the compiled PTX uses them, with words that say so if it
    does not; unchanged without PTX.
    """
    compiled = launch.into(launch.blank())
    ptx = str(getattr(compiled, "asm", {}).get("ptx", ""))
    if not ptx:
        return outcome
    tensor_cores = "mma" in ptx
    words = "" if tensor_cores else "This Triton compiles it for this GPU without its tensor cores"
    return outcome._replace(
        words="; ".join(filter(None, (outcome.words, words))),
        details=dict(outcome.details or {}, tensor_cores=tensor_cores),
    )


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield one case: an exact product of about size × size values, in the type that the kernel's id ends in."""
    left, right = _operands(context, size)
    yield _case(context, name, _launch(context, KINDS[name.rpartition(".")[2]], left, right), left, right)


def _sides(size: int) -> Tuple[int, int, int]:
    """m, n and k near `size`: multiples of 8 but not of a tile."""
    m = max(1, size // 32) * 32 + 8
    return m, m + 8, m + 16


def _operands(context: Context, size: int) -> Tuple[Any, Any]:
    """Random odd factors from -3 to 3, m × k and k × n."""
    m, n, k = _sides(size)
    return random_odd(context, (m, k), 3, 1), random_odd(context, (k, n), 3, 2)


def _launch(context: Context, kind: _Kind, left: Any, right: Any) -> Launch:
    """The tiled kernel on copies of the factors in the kind's type, ready but not yet run; its output starts as NaN."""
    torch, ((m, k), n) = context.torch, (left.shape, right.shape[1])
    a, b = (matrix.to(context.device, getattr(torch, kind.torch)) for matrix in (left, right))
    tm, tn, tk = _TILE_CPU if context.on_cpu else kind.tile
    kernel = context.kernels.matmul[(-(-m // tm), -(-n // tn))]
    return Launch(
        lambda: torch.full((m, n), float("nan"), device=context.device),
        lambda c: kernel(a, b, c, m, n, k, M=tm, N=tn, K=tk, WIDEN=context.on_cpu, num_warps=kind.warps),
    )


def _case(context: Context, name: str, launch: Launch, left: Any, right: Any) -> Case:
    """A case: the launch's product must be exactly that of float64 on the CPU."""
    reference = left.double() @ right.double()
    return Case(name, launch.once, lambda result: exact(context.torch, result, reference))
