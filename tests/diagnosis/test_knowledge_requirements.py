"""NVIDIA_REQUIRE_CUDA as the images of CUDA 11.8, 12.4 and 13.0 carry it."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge.drivers import requirement_cuda, requirement_met

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
