"""Which compiled code runs on which GPU, by NVIDIA's compatibility rules; what each nvcc takes, by its own --help."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge.archs import (
    arch_too_new,
    arch_too_old,
    clang_max,
    cuda_serves,
    gcc_max,
    needs_jit,
    nvcc_dropped,
    nvcc_for,
    nvcc_knows,
    runs_on,
)

CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
"""What torch 2.6.0+cu124 has: measured in its wheel."""

CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")

ARCHS = st.sampled_from(
    ["sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"]
)
PTX = st.sampled_from(["compute_50", "compute_70", "compute_80", "compute_90", "compute_100", "compute_120"])
CAPABILITIES = st.sampled_from(["5.0", "5.2", "6.1", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.1"])


@pytest.mark.parametrize(
    ("archs", "gpu", "runs"),
    [
        (CU124, "8.9", True),  # sm_86 code runs on Ada
        (CU124, "12.0", False),
        (CU128, "12.1", True),  # sm_120 code runs on GB10
        (CU128, "6.1", False),
        (("sm_86",), "8.0", False),  # never downwards
        (("sm_90a",), "9.0", True),
        (("sm_100a",), "10.3", False),
        (("sm_100f",), "10.3", True),
        (("sm_100f",), "12.0", False),
        (("compute_90",), "12.0", True),
        (("compute_90a",), "10.0", False),
        (("compute_100f",), "10.3", True),
        (("compute_120",), "9.0", False),
        (("sm_80", "sm_86"), "8.7", False),  # Orin runs only its own
        (("sm_87",), "8.7", True),
        (("compute_80",), "8.7", True),
        (("sm_101",), "11.0", True),  # Thor before CUDA 13 called it so
    ],
)
def test_runs(archs: tuple[str, ...], gpu: str, runs: bool) -> None:
    """CUDA C++ programming guide, compute capabilities; torch's own table of which code serves which device."""
    assert runs_on(archs, gpu) is runs


def test_too_new_and_too_old_are_about_the_ends_of_the_list() -> None:
    assert arch_too_new(CU124, "12.0")
    assert not arch_too_old(CU124, "12.0")
    assert arch_too_old(CU128, "6.1")
    assert not arch_too_new(CU128, "6.1")
    assert not arch_too_new(CU124, "8.9")


def test_a_gap_in_the_list_is_neither_too_new_nor_too_old() -> None:
    assert [ask(("sm_80", "sm_120"), "9.0") for ask in (runs_on, arch_too_new, arch_too_old)] == [False] * 3


def test_ptx_alone_must_be_compiled_by_the_driver() -> None:
    assert needs_jit(("sm_80", "compute_90"), "12.0")
    assert not needs_jit(("sm_80", "compute_80"), "8.6")


@pytest.mark.parametrize("archs", ["sm_80 sm_90", "sm_80;sm_90", "8.0;9.0+PTX", ["sm80", "sm90"]])
def test_the_ways_lists_are_written(archs: object) -> None:
    assert runs_on(archs, "8.6")


@given(st.lists(ARCHS, min_size=1), CAPABILITIES)
def test_at_most_one_of_runs_too_new_too_old(archs: list[str], gpu: str) -> None:
    assert [runs_on(archs, gpu), arch_too_new(archs, gpu), arch_too_old(archs, gpu)].count(True) <= 1


@given(st.lists(ARCHS, min_size=1), ARCHS, CAPABILITIES)
def test_more_code_never_hurts(archs: list[str], more: str, gpu: str) -> None:
    assert not runs_on(archs, gpu) or runs_on([*archs, more], gpu)


@given(st.lists(ARCHS | PTX, min_size=1), PTX, CAPABILITIES)
def test_ptx_reaches_every_newer_gpu(archs: list[str], ptx: str, gpu: str) -> None:
    number = int(ptx.removeprefix("compute_"))
    assert runs_on([*archs, ptx], gpu) or int(gpu.replace(".", "")) < number


@given(st.lists(ARCHS, min_size=1), CAPABILITIES)
def test_the_order_of_the_list_does_not_matter(archs: list[str], gpu: str) -> None:
    assert runs_on(archs, gpu) == runs_on(archs[::-1], gpu)


@pytest.mark.parametrize("archs", [(), ("",), "", ("gfx90a",), ("sm_80", "gfx1100"), None])
def test_an_empty_or_foreign_list_says_nothing(archs: object) -> None:
    """`torch.cuda.get_arch_list()` is empty where CUDA is unavailable, which is no proof of anything."""
    with pytest.raises(CannotJudge):
        runs_on(archs, "8.0")


@pytest.mark.parametrize(
    ("nvcc", "gpu", "knows", "dropped"),
    [
        ("11.7", "8.9", False, False),
        ("11.8", "8.9", True, False),
        ("12.0", "3.7", False, True),
        ("12.8", "12.0", True, False),
        ("V12.9.86", "12.1", True, False),
        ("13.0", "7.0", False, True),
        ("12.8", "11.0", True, False),
    ],
)
def test_targets(nvcc: str, gpu: str, knows: bool, dropped: bool) -> None:
    """ptxas --help of the nvcc wheels; the nvcc guides before 11.7."""
    assert nvcc_knows(nvcc, gpu) is knows
    assert nvcc_dropped(nvcc, gpu) is dropped


def test_a_newer_nvcc_of_the_same_major_keeps_what_is_known_and_may_add_more() -> None:
    assert nvcc_knows("13.9", "9.0")
    assert nvcc_dropped("13.9", "6.1")
    with pytest.raises(CannotJudge, match="ends before"):
        nvcc_knows("13.9", "14.0")
    with pytest.raises(CannotJudge, match="no nvcc 14"):
        nvcc_knows("14.0", "9.0")


def test_first_toolkit_of_a_generation() -> None:
    assert nvcc_for("8.9") == "11.8"
    assert nvcc_for("12.0") == "12.8"
    assert nvcc_for("12.1") == "12.9"


@pytest.mark.parametrize(("nvcc", "gcc"), [("11.8", 11), ("12.1", 12), ("12.4", 13), ("12.8", 14), ("13.0", 15)])
def test_newest_gcc(nvcc: str, gcc: int) -> None:
    """host_config.h of each release."""
    assert gcc_max(nvcc) == gcc


def test_limits_of_an_unknown_nvcc_are_not_guessed() -> None:
    with pytest.raises(CannotJudge):
        gcc_max("13.9")
    assert clang_max("12.8") == 19


@pytest.mark.parametrize(
    ("cuda", "gpu", "serves"),
    [("11.7", "8.9", True), ("12.6", "12.0", False), ("13.0", "7.0", False), ("10.2", "8.0", False)],
)
def test_what_any_build_of_a_cuda_can_serve(cuda: str, gpu: str, serves: bool) -> None:
    assert cuda_serves(cuda, gpu) is serves
