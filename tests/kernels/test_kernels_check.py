"""What a check states to see, proved by reckoning; and what it says. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from gpudoctor.kernels.child.eager import matmul
from gpudoctor.kernels.child.eager._check import MANTISSA, ULPS, Judged, recurrence
from tests.kernels.faults.inject import mantissa_bits

SIGNIFICAND = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "int8": 7, "int32": 31}
ACCUMULATOR = {"fp64": 53, "fp32": 24, "tf32": 24, "fp16": 24, "bf16": 24, "int8": 31, "fp8": 14, "fp4": 14}
"""Bits that sums keep, by form; the sources are beside the forms."""


def values_near(reference: float, mantissa: int, ulps: int) -> Iterator[float]:
    """Every value of the type that a bound of so many units allows for that reference."""
    unit = 2.0 ** (math.frexp(reference)[1] - 1 - mantissa)
    for step in range(-4 * ulps, 4 * ulps + 1):
        fine = 2.0 ** (math.frexp(reference + step * unit / 2)[1] - 1 - mantissa)
        value = round((reference + step * unit / 2) / fine) * fine
        if abs(value - reference) <= ulps * unit:
            yield value


def flips(value: float, mantissa: int, bits: range) -> Iterator[float]:
    """The value with one of those bits of its mantissa the other way round, counted from the top."""
    fraction, exponent = math.frexp(value)
    whole = int(fraction * 2 ** (mantissa + 1))
    for bit in bits:
        yield (whole ^ 1 << (mantissa - bit)) * 2.0 ** (exponent - 1 - mantissa)


def missed(mantissa: int, ulps: int, bits: range) -> int:
    """How many flips of those bits stay within the bound, over references around two powers of two."""
    count = 0
    for step in range(-8 * ulps, (1 << (mantissa + 2)) + 8 * ulps):
        reference = 1 + step / (1 << (mantissa + 2))
        unit = 2.0 ** (math.frexp(reference)[1] - 1 - mantissa)
        for value in values_near(reference, mantissa, ulps):
            wrong = [-value, 2 * value, value / 2, *flips(value, mantissa, bits)]
            count += sum(1 for one in wrong if abs(one - reference) <= ulps * unit)
    return count


@pytest.mark.parametrize(
    ("dtype", "ulps"), sorted({(kind[1], ulps) for kind, ulps in ULPS.items() if kind[1] == "bf16"})
)
def test_every_bit_that_is_stated_is_seen_whatever_the_value_and_the_next_is_not(dtype: str, ulps: int) -> None:
    seen = mantissa_bits(MANTISSA[dtype], ulps)
    assert missed(MANTISSA[dtype], ulps, range(1, seen + 1)) == 0
    assert missed(MANTISSA[dtype], ulps, range(seen + 2, seen + 3)) > 0


@pytest.mark.parametrize("name", matmul.FORMS)
def test_no_sum_of_a_product_outgrows_its_accumulator_and_no_value_its_type(name: str) -> None:
    form = matmul.FORMS[name]
    noise = (form.inner - form.thin) * (2**form.total - 1)
    thin = (form.thin - 1) * (2**form.thin_bits - 1) ** 2
    assert noise + max(thin, 0) < 2 ** (ACCUMULATOR[name] - (ACCUMULATOR[name] == 14))
    assert form.most <= SIGNIFICAND.get(form.dtype, 2)
    assert form.inner % 2 == form.thin % 2 == 0
    largest = thin if form.thin else noise
    assert largest < 2 ** SIGNIFICAND[form.out]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([{5, 9}, {5, 9}, {5}], "the same 1 in 3 of 3 repetitions: not noise"),
        ([{5}, set(), set()], "in 1 of 3 repetitions, never at the same place in all"),
        ([{5}, {6}, {7}], "in 3 of 3 repetitions, never at the same place in all"),
    ],
)
def test_what_is_wrong_each_time_is_told_from_noise(places: list[set[int]], words: str) -> None:
    assert recurrence([Judged(len(one), 16, (), frozenset(one)) for one in places]) == words


def test_a_judgement_is_told_in_one_line() -> None:
    assert Judged(0, 16).words == ""
    assert Judged(1, 16, (3, 1)).words == "1 of 16 values is wrong, the first at [3, 1]"
    assert Judged(9, 16, (3, 1), more=True).words == "at least 9 of 16 values are wrong, the first at [3, 1]"
