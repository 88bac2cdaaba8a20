"""Whether a result is right, against a reference that the device had no part in.

Two ways. `exact`: inputs are whole numbers, chosen so that every product and every partial sum is exact in the
accumulator and the result exact in its own type, in whatever order it is summed; one wrong bit is one wrong value.
`close`: where rounding differs by design, a bound in units of the last place, over results that are all of like size
and never zero, so that no small value hides a flipped bit.

Which single flipped bits `close` is certain to see: the sign, every bit of the exponent, and of the mantissa's bits so
many from the top; `exact` sees all. By kind of operation, type and bound::

    kind         type   units  bits
    elementwise  fp32       8  17 of 23
    elementwise  fp16       1   7 of 10
    elementwise  bf16       1   4 of 7
    rsqrt        fp16       2   6 of 10
    rsqrt        bf16       2   3 of 7
    convolution  fp32     512  11 of 23
    convolution  tf32   32768   5 of 23
    convolution  fp16       4   5 of 10
    convolution  bf16       2   3 of 7
    attention    fp32      64  14 of 23
    attention    fp16       2   6 of 10
    attention    bf16       2   3 of 7
    fft          fp32     256  12 of 23
    fft          fp64     256  41 of 52
    mean         fp32       2  19 of 23

The gradients of the transformer block (autograd.py) are judged by a share of the largest: no single bit is promised.

A kernel's file gives ``cases(context, name, size)``; its ``run`` and the test that flips bits go through the same ones.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Tuple

from .._kernel import CannotRun, Outcome, Spec

MANTISSA = {"fp64": 52, "fp32": 23, "tf32": 23, "fp16": 10, "bf16": 7}
"""Bits of the mantissa that are stored, by type."""
DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""torch's names of the types."""
_MOST_WRONG_KEPT = 4096
"""Places of wrong values that are kept, to say whether they are the same each time."""
REPEATS = 3
_LEAST_FREE_BYTES = 256 << 20
"""Bytes that must be free on a GPU for anything of this rung: what is reckoned with, and what libraries load for it."""
_REFUSALS = ("NOT_SUPPORTED", "not implemented for")
UNSEEN = -1
"""As the bound of a `Case` that does not promise to see any single flipped bit."""


# ---- A result, judged ----


class Judged(NamedTuple):
    """Verdict on a result: how many values are wrong, of how many, and the index of the first wrong one."""

    differ: int
    compared: int
    first: Tuple[int, ...] = ()
    places: FrozenSet[int] = frozenset()
    """Flat positions of the wrong values, as many as are kept."""
    more: bool = False
    """Whether there may be more wrong values than were counted."""

    @property
    def words(self) -> str:
        """``3 of 4096 values are wrong, the first at [17, 3]``; empty if all are right."""
        if not self.differ:
            return ""
        verb = "is" if self.differ == 1 else "are"
        count = "%s%d of %d values" % ("at least " if self.more else "", self.differ, self.compared)
        return "%s %s wrong, the first at %s" % (count, verb, list(self.first))

    def outcome(self) -> Dict[str, Any]:
        """``right``, ``differ``, ``compared`` and ``words`` (empty if right) by name, as an `Outcome` takes them."""
        return {"right": self.differ == 0, "differ": self.differ, "compared": self.compared, "words": self.words}


def exact(torch: Any, result: Any, reference: Any) -> Judged:
    """Compare every value with `reference`; NaN is wrong. Raises `ValueError` if the type cannot hold the reference.

    -0 is 0, to whoever reads it; so that a flipped sign is seen, no result of these kernels is zero.
    """
    values = result.detach().cpu()
    expected = reference.to(values.dtype)
    if not torch.equal(expected.to(reference.dtype), reference):
        raise ValueError("the reference is not exact in %s" % values.dtype)
    return judge_mask(values != expected)


def close(torch: Any, result: Any, reference: Any, ulps: int) -> Judged:
    """Compare every value with the float64 `reference`, nowhere zero, to within `ulps` units in the last place."""
    eps = torch.finfo(result.dtype).eps
    values = result.detach().cpu().to(torch.float64)
    power = torch.frexp(reference)[1].to(torch.float64) - 1
    wrong = ~((values - reference).abs() <= ulps * eps * torch.exp2(power))  # so that NaN is wrong
    return judge_mask(wrong)


def near(torch: Any, result: Any, reference: Any, share: float) -> Judged:
    """Compare every value with the float64 `reference` to within `share` of its size."""
    values = result.detach().cpu().to(torch.float64)
    return judge_mask(~((values - reference).abs() <= share * reference.abs()))  # so that NaN is wrong


def judge_mask(wrong: Any) -> Judged:
    """The verdict from a mask that is True where a value is wrong."""
    count = int(wrong.sum())
    if not count:
        return Judged(0, wrong.numel())
    at = wrong.nonzero()[:_MOST_WRONG_KEPT]
    flat = wrong.flatten().nonzero()[:_MOST_WRONG_KEPT, 0].tolist()
    return Judged(count, wrong.numel(), tuple(at[0].tolist()), frozenset(flat))


def bits(torch: Any, values: Any) -> Any:
    """The tensor's memory as integers of the same width, so that NaN equals itself and -0 differs from 0."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(whole[values.element_size()])


ULPS: Dict[Tuple[str, str], int] = {
    ("elementwise", "fp32"): 8,
    ("elementwise", "fp16"): 1,
    ("elementwise", "bf16"): 1,
    ("rsqrt", "fp16"): 2,
    ("rsqrt", "bf16"): 2,
    ("convolution", "fp32"): 512,
    ("convolution", "tf32"): 1 << 15,
    ("convolution", "fp16"): 4,
    ("convolution", "bf16"): 2,
    ("attention", "fp32"): 64,
    ("attention", "fp16"): 2,
    ("attention", "bf16"): 2,
    ("fft", "fp32"): 256,
    ("fft", "fp64"): 256,
    ("mean", "fp32"): 2,
}
"""Bound by kind of operation and type, in units of the last place of the result's type."""


# ---- A computation, repeated and judged ----


class Case(NamedTuple):
    """A computation on the device, and the judge of its result."""

    name: str
    """As words take it: ``exp of fp16``."""
    compute: Callable[[], Any]
    """The result, one real tensor on the device, the same bits at every call; may raise `CannotRun`."""
    judge: Callable[[Any], Judged]
    ulps: int = 0
    """The bound that `judge` allows, in units of the last place; 0 where all must be exact; or `UNSEEN`."""


def exactly(context: Any, name: str, values: Any, reference: Any, work: Callable[[Any], Any]) -> Case:
    """A case: `work(values)`, these moved to the device, must give the reference exactly."""
    return Case(
        name,
        lambda: work(values.to(context.device)),
        lambda result: exact(context.torch, result, reference),
    )


def run_cases(context: Any, cases: Iterable[Case]) -> Dict[str, Any]:
    """Compute and judge each case three times; returns right, differ, compared, words and details of an `Outcome`.

    A repetition with the bits of the first is judged as it. Cases that raise `CannotRun` are named in words;
    raises `CannotRun` if none can be computed, or too little memory is free.
    """
    if not context.on_cpu:
        context.need(_LEAST_FREE_BYTES)
    messages: List[str] = []
    missing: Dict[str, None] = {}
    differ = compared = 0
    equal, digest = True, hashlib.blake2b(digest_size=8)
    for case in cases:
        try:
            first = _compute(context, case)
        except CannotRun as error:
            missing[str(error)] = None
            continue
        verdicts = [case.judge(first)]
        _update_digest(digest, first)
        for _ in range(REPEATS - 1):
            again = _compute(context, case)
            same = context.torch.equal(bits(context.torch, first), bits(context.torch, again))
            equal = equal and same
            verdicts.append(verdicts[0] if same else case.judge(again))
        compared += verdicts[0].compared
        worst = max(verdicts, key=lambda verdict: verdict.differ)
        differ += worst.differ
        if worst.differ:
            messages.append("%s: %s, %s" % (case.name, worst.words, recurrence(verdicts)))
    if not compared:
        raise CannotRun("; ".join(missing) or "there is nothing to compute")
    absent = ["Not run: " + "; ".join(missing)] if missing else []
    details: Dict[str, Any] = {"repeats_equal": equal}
    if equal:
        details["digest"] = digest.hexdigest()
    if not equal and not differ:
        messages.append("repetitions differ from each other, each within the bound")
    words = ". ".join(messages + absent)
    return {"right": not differ, "differ": differ, "compared": compared, "words": words, "details": details}


def checked(
    cases: Callable[[Any, str, int], Iterable[Case]], **sizes: Tuple[int, int]
) -> Callable[[Any, Spec], Outcome]:
    """A function ``run(context, spec)`` that checks the kernel's cases; `sizes` by kernel id: on a GPU, on a CPU."""

    def run(context: Any, spec: Spec) -> Outcome:
        """Compute and judge every case of the kernel `spec.id`; the outcome has no value."""
        return Outcome(**run_cases(context, cases(context, spec.id, sizes[spec.id][context.on_cpu])))

    return run


def _compute(context: Any, case: Case) -> Any:
    """The case's result; raises `CannotRun` for a type that this CPU or GPU lacks; other errors begin with its name."""
    try:
        return case.compute()
    except RuntimeError as error:
        lacking = re.search(r"not implemented for '(\w+)'", str(error))
        if context.on_cpu and lacking:
            kind = lacking.group(1)
            raise CannotRun("torch %s computes no %s on this CPU" % (context.torch.__version__, kind)) from error
        if "bf16" in case.name and before_bf16(context, error):
            raise CannotRun("bf16: not on this device") from error
        error.args = ("%s: %s" % (case.name, error),)
        raise


def before_bf16(context: Any, error: Exception) -> bool:
    """True if the error means that a library has no bf16 for a GPU before compute capability 8.0.

    cuBLAS multiplies bf16 on Volta and Turing, not on Pascal: pytorch/pytorch issue 57773 (May 2021).
    """
    old = not context.on_cpu and context.capability() < (8, 0)
    return old and any(refusal in str(error) for refusal in _REFUSALS)


def recurrence(verdicts: List[Judged]) -> str:
    """Whether errors repeat: ``the same 3 in 3 of 3 repetitions: not noise`` for the places that are wrong in every
    one; without such a place, how many repetitions had any error.
    """
    always = frozenset.intersection(*(verdict.places for verdict in verdicts))
    if always:
        return "the same %d in %d of %d repetitions: not noise" % (len(always), len(verdicts), len(verdicts))
    bad = sum(1 for verdict in verdicts if verdict.differ)
    return "in %d of %d repetitions, never at the same place in all" % (bad, len(verdicts))


def _update_digest(digest: Any, values: Any) -> None:
    """Add the tensor's bytes to the digest, without numpy, which may not be installed."""
    values = values.detach().cpu().contiguous()
    size = values.numel() * values.element_size()
    if size:
        digest.update((ctypes.c_char * size).from_address(values.data_ptr()))


# ---- Random inputs of the CPU that every type holds exactly, and torch's switches while they are worked on ----


def uniform(context: Any, shape: Tuple[int, ...], low: float, high: float, salt: int) -> Any:
    """Random float64 from `low` to `high` that bf16 holds exactly (8 bits)."""
    torch = context.torch
    values = torch.rand(shape, generator=context.generator(salt)) * (high - low) + low
    return values.clamp(low, high).to(torch.bfloat16).double()


def random_odd(context: Any, shape: Tuple[int, ...], largest: int, salt: int) -> Any:
    """Random odd int64 of either sign, at most `largest` (odd) in size.

    The sum of an odd number of products of odd numbers is odd: never zero, so that its sign counts.
    """
    half = (largest + 1) // 2
    return context.torch.randint(-half, half, shape, generator=context.generator(salt)) * 2 + 1


def random_order(context: Any, count: int, salt: int) -> Any:
    """The numbers below `count` in a random order."""
    return context.torch.randperm(count, generator=context.generator(salt))


@contextmanager
def attributes_set(owner: Any, **wanted: Any) -> Iterator[None]:
    """A context in which those of the attributes that `owner`, a part of torch, has are set; it restores them."""
    before: Dict[str, Any] = {}
    for name in wanted:
        with suppress(AttributeError, AssertionError):  # the latter of torch before 2.0
            before[name] = getattr(owner, name)
    try:
        for name in before:
            setattr(owner, name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def exact_accumulation(torch: Any, tf32: bool = False) -> Any:
    """A context in which cuBLAS accumulates in full precision, and uses TF32 for fp32 only if `tf32`."""
    return attributes_set(
        torch.backends.cuda.matmul,
        allow_tf32=tf32,
        allow_fp16_reduced_precision_reduction=False,
        allow_bf16_reduced_precision_reduction=False,
        allow_fp16_accumulation=False,
    )
