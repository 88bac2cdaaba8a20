"""Drivers and CUDA releases against what NVIDIA publishes, and NVIDIA_REQUIRE_CUDA as its images carry it."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge.drivers import (
    driver_branch,
    driver_cuda,
    driver_floor,
    driver_for,
    driver_jits,
    driver_serves,
    requirement_cuda,
    requirement_met,
)


@pytest.mark.parametrize(
    ("cuda", "floor"),
    [("13.0", "580.65.06"), ("12.8", "525.60.13"), ("11.8", "450.80.02"), ("10.2", "440.33"), ("10.0", "410.48")],
)
def test_floor_is_that_of_the_major_release_from_11_on(cuda: str, floor: str) -> None:
    """CUDA Toolkit release notes: the minor-version compatibility table, and the older drivers before 11."""
    assert driver_floor(cuda) == floor


def test_a_toolkit_runs_on_the_driver_it_came_with_even_below_the_family_floor() -> None:
    """CUDA 11.0.2 shipped driver 450.51.05, older than the 450.80.02 of the 11.x family."""
    assert driver_floor("11.0") == "450.51.05"


def test_windows_has_floors_of_its_own() -> None:
    """CUDA 12.0 GA came with 527.41 for Windows."""
    assert driver_floor("12.4", "windows") == "527.41"


@pytest.mark.parametrize(
    ("driver", "cuda", "served"),
    [
        ("525.60.13", "12.8", True),
        ("520.61.05", "12.1", False),
        ("570.124.06", "13.0", False),
        ("580.65.06", "13.0", True),
        ("439.99", "10.2", False),
    ],
)
def test_a_driver_serves_every_minor_release_above_the_floor(driver: str, cuda: str, served: bool) -> None:
    assert driver_serves(driver, cuda) is served


@pytest.mark.parametrize(
    ("driver", "cuda"), [("470.256.02", "11.4"), ("570.124.06", "12.8"), ("576.02", "12.9"), ("435.21", "10.1")]
)
def test_newest_cuda_is_what_nvidia_smi_prints_for_the_branch(driver: str, cuda: str) -> None:
    """Windows drivers (572, 576, 566) print the CUDA of the branch below them."""
    assert driver_cuda(driver) == cuda


def test_a_branch_whose_drivers_differ_cannot_be_judged() -> None:
    """430.26 prints CUDA 10.2 and 430.50 prints 10.1."""
    with pytest.raises(CannotJudge, match=r"430\.50 prints 10\.1"):
        driver_cuda("430.50")


def test_drivers_of_systems_on_chip_are_no_branch() -> None:
    """JetPack 6 calls its driver 540.x."""
    with pytest.raises(CannotJudge, match="JetPack"):
        driver_cuda("540.4.0")


def test_a_driver_beyond_the_table_serves_but_its_cuda_is_not_known() -> None:
    assert driver_serves("700.10", "13.0")
    with pytest.raises(CannotJudge, match="no driver 700"):
        driver_cuda("700.10")


def test_minor_version_compatibility_does_not_cover_ptx() -> None:
    """A 12.8 build runs on 535, its PTX does not: error 222."""
    assert driver_serves("535.54.03", "12.8")
    assert not driver_jits("535.54.03", "12.8")
    assert driver_jits("570.86.15", "12.8")


def test_branches() -> None:
    assert driver_branch("572.16") == "570"
    assert driver_for("12.8") == "570"
    with pytest.raises(CannotJudge):
        driver_for("12.99")


@pytest.mark.parametrize("cuda", ["", "twelve", "14.0", "8.9", None, True])
def test_what_is_no_known_cuda_cannot_be_judged(cuda: object) -> None:
    with pytest.raises(CannotJudge):
        driver_floor(cuda)


IMAGE = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=tesla,driver>=525,driver<526 brand=geforce,driver>=535,driver<536"
)


@pytest.mark.parametrize(
    ("requirement", "cuda", "driver", "met"),
    [
        (IMAGE, "12.4", "550.54.15", True),
        (IMAGE, "13.0", "580.95.05", True),
        (IMAGE, "12.3", "545.23.06", False),
        (IMAGE, "11.4", "460.91.03", False),
        ("cuda>=12.9", "12.10", "600.1", True),
        ("driver>=470", "11.4", "470.82.01", True),
        ("cuda>=12.4,driver>=600", "13.0", "580.95.05", False),
    ],
)
def test_requirements(requirement: str, cuda: str, driver: str, met: bool) -> None:
    assert requirement_met(requirement, cuda, driver) is met


@pytest.mark.parametrize(
    ("requirement", "driver"), [(IMAGE, "470.82.01"), ("arch>=7.0", "550.1"), ("cuda~12", "550.1")]
)
def test_what_rests_on_the_brand_or_is_not_understood_cannot_be_judged(requirement: str, driver: str) -> None:
    with pytest.raises(CannotJudge):
        requirement_met(requirement, "11.4", driver)


def test_the_cuda_that_is_asked_for() -> None:
    assert requirement_cuda(IMAGE) == "12.4"
    assert isinstance(requirement_cuda("brand=tesla,driver>=470"), Nothing)
