"""Matrix products whose every partial sum is exact, and Freivalds' check of them in whole numbers.

A and B hold whole numbers times powers of two: a_ik 2**(s_i + t_k) and b_kj 2**(u_j - t_k). All summands of c_ij so
have the unit 2**(s_i + u_j), and a sum is exact wherever the sum of their sizes in that unit stays below what the
accumulator's significand holds, whichever way it is ordered, tiled or split. That sum is bounded by construction:
a_ik has ``bits_k`` bits and b_kj ``total - bits_k`` bits, so it is below inner * 2**total.

Where the result's own type is narrower than that, K is made of a thin part and of noise that cancels:
A = [L, N, -N], B = [R; M; M], both shuffled along K; then C = L R, and |c| <= thin * 2**(2 thin_bits) fits.

All numbers but one row of zeros are odd and K is even: every c_ij is odd, hence never zero, and its sign counts.
Freivalds (1977): C r = A (B r) costs O(n²). Here r is odd and random and the arithmetic is that of whole numbers modulo
2**64: one wrong value in a row is seen for certain, several are missed with a chance of about 2**-60.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Tuple

from ._check import Judged

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
    """Random factors M x K and K x N for `shape` (M, K, N), with powers of two to scale M, K and N by (1 unless
    `form.scaled`); their product is exact in `form`. K must be even.
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
    """Slices over the rows, 128 at a time."""
    return (slice(start, start + _ROWS) for start in range(0, matrix.shape[0], _ROWS))


def _product_mod_2_64(torch: Any, matrix: Any, vector: Any) -> Any:
    """Matrix times vector in integers modulo 2**64."""
    return torch.cat([matrix[rows].to(torch.int64) @ vector for rows in _row_slices(matrix)])


def _wrong_rows(torch: Any, result: Any, given: Operands, rows: slice, probe: Any, expected: Any) -> Any:
    """A mask of those rows that hold a non-integer, or whose product with the probe is not the expected one."""
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
