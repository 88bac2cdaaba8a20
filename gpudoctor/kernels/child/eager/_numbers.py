"""Random inputs of the CPU that every type holds exactly, and torch's switches while they are worked on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Tuple


def uniform(context: Any, shape: Tuple[int, ...], low: float, high: float, salt: int) -> Any:
    """float64 between the two, rounded to the 8 bits of a bf16."""
    torch = context.torch
    values = torch.rand(shape, generator=context.generator(salt)) * (high - low) + low
    return values.clamp(low, high).to(torch.bfloat16).double()


def odd(context: Any, shape: Tuple[int, ...], most: int, salt: int) -> Any:
    """Odd int64 of either sign, up to the odd number `most` in size.

    The sum of an odd number of products of odd numbers is odd: never zero, so that its sign counts.
    """
    half = (most + 1) // 2
    return context.torch.randint(-half, half, shape, generator=context.generator(salt)) * 2 + 1


def shuffled(context: Any, count: int, salt: int) -> Any:
    """The numbers below `count` in a random order."""
    return context.torch.randperm(count, generator=context.generator(salt))


@contextmanager
def switched(owner: Any, **wanted: Any) -> Iterator[None]:
    """Those attributes of a part of ``torch.backends`` meanwhile, as far as this torch has them."""
    before = {name: getattr(owner, name) for name in wanted if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def exact_sums(torch: Any, tf32: bool = False) -> Any:
    """cuBLAS keeps the precision of its inputs meanwhile; none of its partial sums is rounded to a narrow type."""
    return switched(
        torch.backends.cuda.matmul,
        allow_tf32=tf32,
        allow_fp16_reduced_precision_reduction=False,
        allow_bf16_reduced_precision_reduction=False,
        allow_fp16_accumulation=False,
    )
