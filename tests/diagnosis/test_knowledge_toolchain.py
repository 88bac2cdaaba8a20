"""What each nvcc takes, against its own --help and host_config.h."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge.archs import clang_max, cuda_serves, gcc_max, nvcc_dropped, nvcc_for, nvcc_knows


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
