"""Our Triton kernels. Imported when a measurement runs, never before: importing needs Triton.

One source for both: compiled for a GPU, or interpreted on the CPU where TRITON_INTERPRET is set before the import.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"

from __future__ import annotations

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit
def add(x, y, out, count, factor, BLOCK: tl.constexpr):  # noqa: N803 - Triton's constants are written so
    """``out = factor * x + y`` for the first `count` elements; nothing is written behind them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_range = at < count
    tl.store(out + at, factor * tl.load(x + at, mask=in_range) + tl.load(y + at, mask=in_range), mask=in_range)


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WIDEN: tl.constexpr):  # noqa: N803
    """``c[m, n] = a[m, k] @ b[k, n]``, row-major, in tiles of M × N × K, summed in fp32.

    `WIDEN` has the factors made fp32 first, for the interpreter, which takes bf16's bits for whole numbers.
    """
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        depth = start + inner
        left = tl.load(a + row[:, None] * k + depth[None, :], mask=(row < m)[:, None] & (depth < k)[None, :], other=0.0)
        right = tl.load(
            b + depth[:, None] * n + column[None, :], mask=(depth < k)[:, None] & (column < n)[None, :], other=0.0
        )
        if WIDEN:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total += tl.dot(left, right)  # as an argument, total is known since Triton 2.1 only
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row < m)[:, None] & (column < n)[None, :])


@triton.jit
def softmax(x, out, sums, columns, BLOCK: tl.constexpr):  # noqa: N803
    """One row for each program: its softmax into `out`, and the sum of its values into `sums`."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    in_range = at < columns
    values = tl.load(x + row * columns + at, mask=in_range, other=-float("inf"))
    tl.store(sums + row, tl.sum(tl.where(in_range, values, 0.0), axis=0))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=in_range)


@triton.jit
def histogram(values, bins, count, BLOCK: tl.constexpr):  # noqa: N803
    """Count each of the integers `values` in its bin, by atomic additions."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_range = at < count
    tl.atomic_add(bins + tl.load(values + at, mask=in_range, other=0), 1, mask=in_range)
