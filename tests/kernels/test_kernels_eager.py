"""torch's rung without torch: what a check is to see, what an error says, what copies need beside torch."""

import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from multiprocessing.synchronize import Event
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.kernels import specs
from gpudoctor.kernels.child._kernel import CannotRun, import_torch
from gpudoctor.kernels.child._main import _no_memory_message
from gpudoctor.kernels.child.eager import Context, copies, matmul
from gpudoctor.kernels.child.eager._check import (
    MANTISSA,
    ULPS,
    Case,
    Judged,
    attributes_set,
    before_bf16,
    recurrence,
    run_cases,
)
from gpudoctor.kernels.child.eager.copies import merge_verdicts
from gpudoctor.kernels.child.eager.peers import PeerCopy, outcome
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


def test_judgements_are_told_in_one_line_and_two_parts_are_judged_as_one() -> None:
    assert Judged(0, 16).words == ""
    assert Judged(1, 16, (3, 1)).words == "1 of 16 values is wrong, the first at [3, 1]"
    assert Judged(9, 16, (3, 1), more=True).words == "at least 9 of 16 values are wrong, the first at [3, 1]"
    assert merge_verdicts(Judged(0, 10), Judged(1, 10, (3,))) == Judged(1, 20, (3,))


NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(..., CUDA_R_16BF, ...)`"


@pytest.mark.parametrize(
    ("because", "lacks"),
    [
        ("MemoryError", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", True),
        ("RuntimeError: CUDA error: out of memory CUDA kernel errors might be asynchronously reported", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory",
            True,
        ),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", False),
    ],
)
def test_lack_of_memory_says_nothing_against_the_device(because: str, lacks: bool) -> None:
    assert _no_memory_message(because) == (f"no memory is free for it: {because}" if lacks else "")


@pytest.mark.parametrize(
    ("capability", "said", "lacks"),
    [
        ((6, 0), NOT_SUPPORTED, True),
        ((7, 5), "at::cuda::blas::gemm: not implemented for N3c108BFloat16E", True),
        ((8, 0), NOT_SUPPORTED, False),
        ((6, 0), "CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_gpu_before_bf16_may_have_no_product_of_it(capability: tuple[int, int], said: str, lacks: bool) -> None:
    context = SimpleNamespace(on_cpu=False, capability=lambda: capability)
    assert before_bf16(context, RuntimeError(said)) is lacks


class Strict:
    """torch's switches of cuBLAS before torch 2.0, which say so of one that they have not."""

    allow_tf32 = True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("Unknown attribute " + name)


def test_switches_that_an_old_torch_has_not_are_left_out() -> None:
    owner = Strict()
    with attributes_set(owner, allow_tf32=False, allow_fp16_accumulation=False):
        assert owner.__dict__ == {"allow_tf32": False}
    assert owner.__dict__ == {"allow_tf32": True}


@pytest.mark.parametrize(
    ("version", "old"),
    [("1.11.0+cu102", True), ("1.12.1", False), ("1.14.0a0+44dac51c.nv23.01", False), ("dev", False)],
)
def test_a_torch_that_is_too_old_is_not_measured(version: str, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    torch.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    if not old:
        assert import_torch() is torch
        return
    with pytest.raises(CannotRun, match=r"torch 1\.11\.0\+cu102 is older than 1\.12"):
        import_torch()


@pytest.mark.parametrize(("on_cpu", "error"), [(True, CannotRun), (False, RuntimeError)])
def test_a_type_that_a_cpu_lacks_is_no_failure(on_cpu: bool, error: type[Exception]) -> None:
    def compute() -> Any:
        raise RuntimeError('"exp" "_vml_cpu" not implemented for \'Half\'')

    context = SimpleNamespace(on_cpu=on_cpu, torch=SimpleNamespace(__version__="1.12.1"), need=lambda _: None)
    with pytest.raises(error, match="Half"):
        run_cases(context, [Case("exp of fp16", compute, lambda _: Judged(0, 1))])


def torch_of(synchronize: Callable[[Any], None], initialized: bool = True) -> Any:
    """As much of torch as it takes to ask whether CUDA still answers."""
    cuda = SimpleNamespace(is_initialized=lambda: initialized, synchronize=synchronize)
    return SimpleNamespace(cuda=cuda, device=lambda name: SimpleNamespace(type=name.partition(":")[0]))


def lost(device: Any) -> None:
    """As CUDA answers each call after an illegal access; of several GPUs the second one."""
    if device != 0:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_an_error_that_outlives_its_kernel_ends_the_process_and_who_asks_makes_no_context() -> None:
    assert Context(torch_of(lost), "cuda:3", 1).spent
    assert Context(torch_of(lost), "cuda:0", 1, devices=(0, 1)).spent
    assert not Context(torch_of(lost), "cuda:0", 1, devices=(0,)).spent
    assert not Context(torch_of(lost, initialized=False), "cuda:3", 1).spent
    assert not Context(torch_of(lost), "cpu", 1).spent


@pytest.mark.parametrize(
    ("text", "processors"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("7", {7}), ("\n", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_lists_of_processors_as_linux_writes_them(text: str, processors: set[int]) -> None:
    assert copies.parse_cpu_list(text) == processors


def _take_a_turn(inside: Event, leave: Event) -> None:
    with copies.exclusive_turn() as turn:
        assert turn
        inside.set()
        leave.wait(30)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks: nothing is promised there")
def test_only_one_child_copies_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = multiprocessing.get_context("spawn")
    inside, leave = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_take_a_turn, args=(inside, leave))
    other.start()
    try:
        assert inside.wait(30)
        monkeypatch.setattr(copies, "_LOCK_SECONDS", 0.1)
        with copies.exclusive_turn() as turn:
            assert turn is False
    finally:
        leave.set()
        other.join(30)
    assert other.exitcode == 0
    with copies.exclusive_turn() as turn:
        assert turn is True


def test_the_slowest_way_is_told_and_the_way_on_which_words_change() -> None:
    ways = {"0-1": PeerCopy(48.2, True, Judged(0, 100)), "1-0": PeerCopy(21.4, True, Judged(2, 100, (7,)))}
    told = outcome(ways)
    assert told.value == 21.4
    assert told.right is False
    assert told.differ == 2
    assert told.words == "2 of 200 values are wrong, the first at [7]; wrong on the way 1 to 0"
    assert told.details == {"rates": {"0-1": 48.2, "1-0": 21.4}, "direct": ["0-1", "1-0"], "wrong": ["1-0"]}


def test_every_kernel_that_the_table_names_is_one() -> None:
    known = {one.spec.id for one in specs.all_kernels()}
    named = {kernel for row in table("rates")["reached"] for kernel in row["kernels"].split()}
    assert named - known == set()
