"""Matrix products by cuBLAS: whether every value is right, and how fast they are; how torch multiplies each type.

fp8 and int8 want the right factor column by column; fp4 is packed, two to a byte, and each 16 along K share a scale.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence, Tuple

from .._kernel import CannotRun, Outcome, Spec
from . import Context, median_and_spread
from ._check import Case, Judged, attributes_set, before_bf16, exact_accumulation, run_cases

_ROWS, _COLUMNS = 128, 1024
"""Of a matrix that are worked on at a time."""
_EXAMINED = 16
"""Wrong rows that are reckoned anew, value by value; each further one counts as one wrong value."""


class Form(NamedTuple):
    """A type of matrix product and the sizes of whole numbers for which it is exact."""

    dtype: str
    out: str
    inner: int
    """K on a GPU."""
    total: int
    """Bits of a product of two factors."""
    most: int
    """Bits of the larger factor."""
    thin: int = 0
    thin_bits: int = 0
    scaled: bool = True
    """Whether powers of two are used."""
    capability: Tuple[int, int] = (0, 0)
    """The least compute capability that has it."""


FORMS = {
    # accumulator of 53 bits: 2**13 * 2**36 < 2**53
    "fp64": Form("float64", "float64", 8192, 36, 18),
    # accumulator of 24 bits: 2**13 * 2**10 < 2**24
    "fp32": Form("float32", "float32", 8192, 10, 10),
    # factors of 11 bits; tensor cores add with 24 bits or more and cut off the rest [1]: 2**13 * 2**10 < 2**24
    "tf32": Form("float32", "float32", 8192, 10, 10, capability=(8, 0)),
    # the same accumulator; the result has 11 bits: 39 * 7 * 7 < 2**11
    "fp16": Form("float16", "float16", 8192, 10, 10, 40, 3),
    # the same; the result has 8 bits: 27 * 3 * 3 < 2**8
    "bf16": Form("bfloat16", "bfloat16", 8192, 10, 8, 28, 2),
    # accumulator of 31 bits: 2**13 * 2**14 < 2**31
    "int8": Form("int8", "int32", 8192, 14, 7, scaled=False, capability=(7, 5)),
    # Ada and Hopper add fp8 products with 14 bits [2, 3], whatever the result's type: 2**9 * 2**4 = 2**13
    "fp8": Form("float8_e4m3fn", "bfloat16", 512, 4, 4, 28, 2, capability=(8, 9)),
    # more than 30 bits on the first GPUs that have it [4]; no more than 13 are needed: 2**9 * 3 * 3 < 2**13
    "fp4": Form("fp4", "bfloat16", 512, 4, 2, 28, 2, capability=(10, 0)),
}
"""By the second part of the kernel's id.

[1] Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330 (2021).
[2] DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2 (December 2024).
[3] SageAttention2, arXiv 2411.10958 (November 2024): "FP22", 13 bits of mantissa that are stored.
[4] deepseek-ai/DeepGEMM issue 176 (August 2025): 25 bits for fp8, 34 or more for fp4 on B200.
"""


class Operands(NamedTuple):
    """Integer factors on the CPU and the powers of two that scale their rows, inner dimension and columns."""

    left: Any
    right: Any
    rows: Any
    """2**s, of shape (M)."""
    inner: Any
    """2**t, of shape (K)."""
    columns: Any
    """2**u, of shape (N)."""


def operands(context: Any, form: Form, shape: Tuple[int, int, int], generator: Any) -> Operands:
    """Random factors M x K and K x N for `shape` (M, K, N), K even, whose product is exact in `form`.

    With them powers of two by which M, K and N are scaled, 1 unless `form.scaled`.
    """
    torch = context.torch
    rows, inner, columns = shape
    noise = _random_below(torch, 2 * form.most - form.total + 1, inner, generator) + form.total - form.most
    half = (inner - form.thin) // 2
    if form.thin:
        noise[: form.thin] = form.thin_bits
        noise[form.thin + half :] = noise[form.thin : form.thin + half]
    other = form.total - noise
    other[: form.thin] = form.thin_bits
    left = _random_odd_of_width(torch, (rows, inner), noise, generator)
    right = _random_odd_of_width(torch, (inner, columns), other[:, None], generator)
    right[0] = 0
    if form.thin:
        left[:, form.thin + half :] = -left[:, form.thin : form.thin + half]
        right[form.thin + half :] = right[form.thin : form.thin + half]
        order = torch.randperm(inner, generator=generator)
        left, right = left[:, order].contiguous(), right[order]
    powers = torch.tensor([0.5, 1.0, 2.0] if form.scaled else [1.0])
    return Operands(
        left, right, *(powers[_random_below(torch, len(powers), size, generator)] for size in (rows, inner, columns))
    )


def _random_below(torch: Any, limit: int, count: int, generator: Any) -> Any:
    """`count` random whole numbers from 0 to `limit` - 1."""
    return torch.randint(limit, (count,), generator=generator)


def _random_odd_of_width(torch: Any, shape: Tuple[int, int], width: Any, generator: Any) -> Any:
    """Random odd numbers of either sign, below 2**width in size (`width` is a tensor)."""
    kind, whole = (torch.int32, 32) if int(width.max()) > 14 else (torch.int16, 16)
    count = shape[0] * shape[1] * whole // 64 + 1
    raw = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator).view(kind)[: shape[0] * shape[1]]
    return raw.view(shape).bitwise_right_shift_((whole - 1 - width).to(kind)).bitwise_or_(1)


def freivalds(torch: Any, result: Any, given: Operands, generator: Any) -> Judged:
    """Judge a product of those operands by Freivalds' check, then value by value in up to 16 wrong rows."""
    columns = result.shape[1]
    probe = torch.randint(-(2**61), 2**61, (columns,), generator=generator) * 2 + 1
    expected = _product_mod_2_64(torch, given.left, _product_mod_2_64(torch, given.right, probe))
    wrong = torch.cat([_wrong_rows(torch, result, given, rows, probe, expected) for rows in _row_slices(result)])
    bad = wrong.nonzero()[:, 0]
    places = _wrong_positions(torch, result, given, bad[:_EXAMINED]) if len(bad) else []
    first = tuple(divmod(places[0], columns)) if places else ()
    further = len(bad[_EXAMINED:])
    return Judged(len(places) + further, result.numel(), first, frozenset(places), further > 0)


def _row_slices(matrix: Any) -> Iterator[slice]:
    """Yield slices that cover the rows of a matrix, 128 at a time."""
    return (slice(start, start + _ROWS) for start in range(0, matrix.shape[0], _ROWS))


def _product_mod_2_64(torch: Any, matrix: Any, vector: Any) -> Any:
    """Matrix times vector in integers modulo 2**64."""
    return torch.cat([matrix[rows].to(torch.int64) @ vector for rows in _row_slices(matrix)])


def _wrong_rows(torch: Any, result: Any, given: Operands, rows: slice, probe: Any, expected: Any) -> Any:
    """A mask over those rows: True where one holds a non-integer, or where its product with the probe is not the
    expected one.
    """
    values = _in_units(torch, result, given, rows)
    whole = values.to(torch.int64)
    return (whole.to(values.dtype) != values).any(1) | (whole @ probe != expected[rows])


def _in_units(torch: Any, result: Any, given: Operands, rows: Any) -> Any:
    """The values of those rows divided by their scale 2**(s_i + u_j), on the CPU."""
    wide = torch.float64 if result.dtype in (torch.float64, torch.int32) else torch.float32
    values = result[rows].detach().cpu().to(wide)
    return values / given.columns / given.rows[rows, None]


def _wrong_positions(torch: Any, result: Any, given: Operands, rows: Any) -> List[int]:
    """Flat positions of the wrong values in those rows, ascending; every value is recomputed in float64."""
    columns = result.shape[1]
    here, left = _in_units(torch, result, given, rows).double(), given.left[rows].double()
    parts = [slice(start, start + _COLUMNS) for start in range(0, columns, _COLUMNS)]
    wrong = torch.cat([here[:, part] != left @ given.right[:, part].double() for part in parts], 1)
    down, across = wrong.nonzero().unbind(1)
    places: List[int] = (rows[down] * columns + across).tolist()
    return places


KERNELS = tuple(
    Spec(
        "matmul." + name,
        name + " matmul",
        "TOP/s" if name == "int8" else "TFLOP/s",
        "8192³ or less",
        "standard" if name == "fp32" else "deep",
        40.0,
    )
    for name in FORMS
)
_SIDES, _SIDE_CPU = (8192, 4096, 2048), 192
"""Of what level standard runs, the largest is left out."""
_LONGEST_SECONDS = 0.2
"""Seconds that one product may take; where it would take longer, the matrices are smaller."""
_SUSTAINED = {"standard": 0.3, "deep": 1.0}
"""Seconds that the rate is measured over, for clocks to settle; on a CPU the rate means nothing."""
Multiply = Callable[[Any, Any], Any]
_PLAIN = ("float64", "float32", "float16", "bfloat16")
"""What every torch multiplies on every device: an error there is an error."""
_REFUSALS = ("not support", "not_supported", "not implemented", "not compiled", "require", "only", "invalid scaling")
"""In what torch raises where another type of product is none of this GPU, this build or this release."""
_EMULATED = "Multiplied in a wider type: torch has no such product on this CPU"


def run(context: Context, spec: Spec) -> Outcome:
    """Check an exact product in every value, then measure TFLOP/s (int8: TOP/s) with normally distributed numbers."""
    name, torch = spec.id.partition(".")[2], context.torch
    form = FORMS[name]
    if not context.on_cpu:
        context.need(_bytes_needed(_SIDES[-1]))
    multiply, note = multiplication(context, form)
    default = bool(torch.backends.cuda.matmul.allow_tf32)
    with attributes_set(torch.backends.cuda.matmul, allow_tf32=name == "tf32"):
        side = largest_side(context, form, _SIDES[spec.level == "standard" :])
        check = run_cases(context, cases(context, spec.id, side))
        left, right = random_factors(context, form, side)
        seconds = context.seconds(lambda: multiply(left, right), 0.02 if context.on_cpu else _SUSTAINED[spec.level])
    once, spread = median_and_spread(seconds)
    check["details"].update(side=side, tf32_by_default=default)
    if "NVIDIA_TF32_OVERRIDE" in os.environ:
        check["details"]["NVIDIA_TF32_OVERRIDE"] = os.environ["NVIDIA_TF32_OVERRIDE"]
    check["words"] = ". ".join(part for part in (check["words"], note) if part)
    return Outcome(value=2 * side**3 / once / 1e12, spread=spread, **check)


def cases(context: Context, name: str, size: int) -> Iterator[Case]:
    """Yield one case: an exact product of about size × size values in the type that the id ends in."""
    name = name.partition(".")[2]
    form, torch, generator = FORMS[name], context.torch, context.generator(1)
    side = max(32, size // 32 * 32)
    inner = max(64, min(form.inner, side))
    given = operands(context, form, (side, inner, side), generator)
    multiply, _ = multiplication(context, form)
    left, right = exact_factors(context, form, given)

    def compute() -> Any:
        """The product on the device, accumulated exactly."""
        with exact_accumulation(torch, tf32=name == "tf32"):
            return multiply(left, right)

    yield Case("%s product" % name, compute, lambda result: freivalds(torch, result, given, generator))


def largest_side(context: Context, form: Form, sides: Sequence[int] = _SIDES) -> int:
    """The first of `sides`, descending, that fits into memory and multiplies in 0.2 s, else the last; 192 on a CPU."""
    if context.on_cpu:
        return _SIDE_CPU
    smallest = sides[-1]
    left, right = random_factors(context, form, smallest)
    multiply, _ = multiplication(context, form)
    once, _ = median_and_spread(context.seconds(lambda: multiply(left, right), 0.02))
    for side in sides:
        if once * (side / smallest) ** 3 < _LONGEST_SECONDS and _bytes_needed(side) < context.free():
            return side
    return smallest


def _bytes_needed(side: int) -> int:
    """Bytes that a product of matrices with that side needs: factors as made and in their type, three results."""
    return side * side * 48


# ---- How torch multiplies matrices of each type, and factors as it takes them ----


def multiplication(context: Any, form: Form) -> Tuple[Multiply, str]:
    """A function that multiplies in that form, and a note on it (empty if native); raises `CannotRun` if there is none.

    Where torch has none on the CPU, the factors are multiplied in a wider type and the result is rounded.
    """
    if not context.on_cpu and context.capability() < form.capability:
        needed, present = ("%d.%d" % one for one in (form.capability, context.capability()))
        raise CannotRun("it needs compute capability %s, this GPU has %s" % (needed, present))
    ones = context.torch.ones(128, 128)
    try:
        multiply = _native_product(context, form)
        multiply(*typed(context, form, ones, ones))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        lacking = context.on_cpu and "not implemented for" in str(error)
        if form.dtype in _PLAIN and not lacking and not (form.dtype == "bfloat16" and before_bf16(context, error)):
            raise
        if context.on_cpu and hasattr(context.torch, "float8_e4m3fn" if form.dtype == "fp4" else form.dtype):
            return _emulated_product(context.torch, form), _EMULATED
        if isinstance(error, AttributeError) or any(words in str(error).lower() for words in _REFUSALS):
            why = " ".join(str(error).split())[:200]
            raise CannotRun("torch %s has none here: %s" % (context.torch.__version__, why)) from error
        raise
    return multiply, ""


def exact_factors(context: Any, form: Form, given: Operands) -> Tuple[Any, Any]:
    """The whole numbers times their powers of two, on the device in the form's type; every step is exact."""
    torch, device = context.torch, context.device
    wide = torch.float64 if form.dtype == "float64" else torch.float32
    left, right = given.left.to(device), given.right.to(device)
    if not form.scaled:
        return typed(context, form, left, right)
    rows, columns = given.rows.to(device, wide), given.columns.to(device, wide)
    left = left.to(wide) * given.inner.to(device, wide)
    right = right.to(wide) * (1 / given.inner).to(device, wide)[:, None]
    if form.dtype == "fp4":
        return Packed.of(torch, left, rows), Packed.of(torch, right.t(), columns)
    return typed(context, form, left * rows[:, None], right * columns)


def random_factors(context: Any, form: Form, side: int) -> Tuple[Any, Any]:
    """Two normally distributed square matrices; their bits toggle like a network's, which decides power and clocks."""
    torch = context.torch
    drawn = [torch.randn(side, side, device=context.device) for _ in range(2)]
    if form.dtype == "int8":
        drawn = [(matrix * 40).clamp(-127, 127) for matrix in drawn]
    return typed(context, form, *drawn)


def typed(context: Any, form: Form, left: Any, right: Any) -> Tuple[Any, Any]:
    """Both factors on the device in the type and memory layout that the form's product takes."""
    torch, device = context.torch, context.device
    left, right = left.to(device), right.to(device)
    if form.dtype == "fp4":
        ones = torch.ones(1, device=device)
        packed = [Packed.of(torch, matrix, ones.expand(matrix.shape[0])) for matrix in (left, right.t())]
        return packed[0], packed[1]
    dtype = getattr(torch, form.dtype)
    left, right = left.to(dtype), right.to(dtype)
    return (left, right.t().contiguous().t()) if left.element_size() == 1 else (left, right)


def _native_product(context: Any, form: Form) -> Multiply:
    """torch's own product for the form; raises `AttributeError` where this torch has none."""
    torch = context.torch
    if form.dtype == "int8":
        whole: Multiply = torch._int_mm  # noqa: SLF001 - torch has no public name for it
        return whole
    if form.dtype == "fp4":
        return lambda left, right: _scaled_product(
            torch, form, left.values(torch), right.values(torch).t(), left.scales, right.scales
        )
    if form.dtype.startswith("float8"):
        one = torch.ones((), device=context.device)
        return lambda left, right: _scaled_product(torch, form, left, right, one, one)
    plain: Multiply = torch.mm
    return plain


def _scaled_product(torch: Any, form: Form, left: Any, right: Any, scale: Any, other: Any) -> Any:
    """torch's scaled product (fp8, fp4) in the form's result type."""
    out = getattr(torch, form.out)
    result = torch._scaled_mm(left, right, scale_a=scale, scale_b=other, out_dtype=out)  # noqa: SLF001 - as above
    return result[0] if isinstance(result, tuple) else result  # torch before 2.5 also gives the largest value


def _emulated_product(torch: Any, form: Form) -> Multiply:
    """A function that multiplies in a wider type and rounds to the form's result type."""
    if form.dtype == "int8":
        return lambda left, right: (left.double() @ right.double()).to(torch.int32)
    if form.dtype == "fp4":
        return lambda left, right: (left.unpacked(torch) @ right.unpacked(torch).t()).to(torch.bfloat16)
    return lambda left, right: (left.float() @ right.float()).to(getattr(torch, form.out))


# ---- NVIDIA's 4-bit floats: sign, 2 bits of exponent, 1 of mantissa; 16 along K share an e4m3 scale ----
# Scales lie as cuBLAS wants them: tiles of 128 rows by 4, each as 32 by 16 (cuBLAS documentation, "1D block scaling
# factors layout", release 12.9, May 2025).


MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""By the three bits below the sign."""
_BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
BLOCK = 16


class Packed(NamedTuple):
    """An fp4 matrix whose rows run along K, with its scales."""

    codes: Any
    """uint8 of shape (rows, K / 2)."""
    scales: Any
    """e4m3, flat, in the order of cuBLAS."""
    row_scales: Any
    """float32 of shape (rows): the scale of every block of a row."""

    @classmethod
    def of(cls, torch: Any, numbers: Any, row_scales: Any) -> Packed:
        """The matrix rounded to 4-bit floats, with one scale for each row; `row_scales` must be exact in e4m3."""
        numbers = numbers.contiguous()
        codes = torch.bucketize(numbers.abs(), torch.tensor(_BETWEEN, device=numbers.device)).to(torch.uint8)
        codes = codes | ((numbers < 0).to(torch.uint8) << 3)
        blocks = row_scales[:, None].expand(-1, numbers.shape[1] // BLOCK).to(torch.float8_e4m3fn)
        return cls(codes[:, ::2] | (codes[:, 1::2] << 4), _tiled_scales(torch, blocks), row_scales)

    def values(self, torch: Any) -> Any:
        """The packed codes viewed as torch's fp4 type; no copy."""
        return self.codes.view(torch.float4_e2m1fn_x2)

    def unpacked(self, torch: Any) -> Any:
        """The scaled values as float32 of shape (rows, K)."""
        halves = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1).long()
        numbers = torch.tensor([*MAGNITUDES, *(-one for one in MAGNITUDES)])[halves]
        return numbers * self.row_scales[:, None].float()


def _tiled_scales(torch: Any, blocks: Any) -> Any:
    """The scales of (rows, blocks) as flat e4m3, padded and in the tile order of cuBLAS."""
    rows, columns = blocks.shape
    high, wide = -(-rows // 128), -(-columns // 4)
    padded = torch.zeros(high * 128, wide * 4, device=blocks.device)
    padded[:rows, :columns] = blocks.float()
    tiles = padded.view(high, 128, wide, 4).permute(0, 2, 1, 3).reshape(-1, 4, 32, 4).transpose(1, 2)
    return tiles.reshape(-1).to(torch.float8_e4m3fn)
