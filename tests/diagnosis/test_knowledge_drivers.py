"""Drivers, CUDA releases, torch releases, their builds and companions, against what is published."""

import pytest

from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge.builds import (
    Flavor,
    bitsandbytes_has,
    companion_for,
    flavor_of,
    misfit,
    release_serves,
    torch_archs,
    torch_default,
    torch_for,
)
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
    """CUDA Toolkit release notes. CUDA 11.0.2 shipped 450.51.05, below its family's floor; Windows has its own."""
    assert driver_floor(cuda) == floor
    assert (driver_floor("11.0"), driver_floor("12.4", "windows")) == ("450.51.05", "527.41")


@pytest.mark.parametrize(
    ("driver", "cuda", "served"),
    [
        ("525.60.13", "12.8", True),
        ("520.61.05", "12.1", False),
        ("570.124.06", "13.0", False),
        ("580.65.06", "13.0", True),
        ("439.99", "10.2", False),
        ("700.10", "13.0", True),
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


@pytest.mark.parametrize(
    ("driver", "why"),
    [("430.50", r"430\.50 prints 10\.1"), ("540.4.0", "JetPack"), ("700.10", "no driver 700")],
    ids=["drivers of one branch differ: 430.26 prints CUDA 10.2", "a system on chip", "beyond the table"],
)
def test_a_cuda_that_a_driver_does_not_settle_cannot_be_judged(driver: str, why: str) -> None:
    with pytest.raises(CannotJudge, match=why):
        driver_cuda(driver)


def test_minor_version_compatibility_does_not_cover_ptx() -> None:
    """A 12.8 build runs on 535, its PTX does not: error 222."""
    assert driver_serves("535.54.03", "12.8")
    assert not driver_jits("535.54.03", "12.8")
    assert driver_jits("570.86.15", "12.8")


def test_branches_and_the_cuda_that_is_asked_for() -> None:
    assert driver_branch("572.16") == "570"
    assert driver_for("12.8") == "570"
    with pytest.raises(CannotJudge):
        driver_for("12.99")
    assert requirement_cuda(IMAGE) == "12.4"
    assert isinstance(requirement_cuda("brand=tesla,driver>=470"), Nothing)


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
    with pytest.raises(CannotJudge, match=r"the GPU's brand or architecture|is not understood"):
        requirement_met(requirement, "11.4", driver)


@pytest.mark.parametrize(
    ("version", "flavor"),
    [
        ("2.4.0+cu121", Flavor("cuda", "12.1")),
        ("1.4.0+cu92", Flavor("cuda", "9.2")),
        ("2.0.1+cu117.with.pypi.cudnn", Flavor("cuda", "11.7")),
        ("2.1.2+cpu", Flavor("cpu", "")),
        ("2.5.1+rocm6.2", Flavor("rocm", "6.2")),
        ("2.6.0+xpu", Flavor("xpu", "")),
        ("2.4.0", None),
        ("2.4.0a0+07cecf4168.nv24.05", None),
        ("2.6.0+gitcpu", None),
    ],
)
def test_the_local_part_names_the_build(version: str, flavor: Flavor | None) -> None:
    assert flavor_of(version) == flavor


@pytest.mark.parametrize(
    ("companion", "version", "torch"),
    [("torchvision", "0.19.0", "2.4.0"), ("triton", "3.2.0", "2.6.0"), ("xformers", "0.0.20", "2.0.1")],
)
def test_companions_pin_their_torch(companion: str, version: str, torch: str) -> None:
    """Requires-Dist of each wheel."""
    assert torch_for(companion, version) == torch


@pytest.mark.parametrize(
    ("companion", "version"), [("torchaudio", "2.11.0"), ("triton", "3.1.0"), ("xformers", "0.0.35")]
)
def test_a_release_that_takes_more_than_one_torch_belongs_to_none(companion: str, version: str) -> None:
    """torchaudio 2.11.0 has no requirement, triton 3.1.0 serves 2.5.0 and 2.5.1, xformers 0.0.35 any from 2.10."""
    assert torch_for(companion, version) is NOTHING


def test_pairs_and_builds_without_a_row_cannot_be_judged() -> None:
    with pytest.raises(CannotJudge, match="no such release"):
        torch_for("torchvision", "9.9.9")
    with pytest.raises(CannotJudge, match="does not follow"):
        torch_for("numpy", "1.26")
    with pytest.raises(CannotJudge):
        companion_for("2.4.0a0+nv24.05", "torchvision")
    for version in ("2.7.0.dev20250310+cu128", "2.4.0a0+07cecf4168.nv24.05", "2.99.0"):
        with pytest.raises(CannotJudge):
            torch_archs(version, "12.8")
    with pytest.raises(CannotJudge):
        release_serves("9.9.9", "8.0")


def test_companion_of_a_torch() -> None:
    assert companion_for("2.4.0+cu121", "torchvision") == "0.19.0"
    assert companion_for("2.5.1", "triton") == "3.1.0"
    assert misfit("torchaudio", "2.11.0", "2.7.0") == "torchaudio 2.11.0 is for torch 2.11 or newer"
    assert misfit("torchaudio", "2.11.0", "2.13.0") is None


@pytest.mark.parametrize(
    ("torch", "arch", "build"),
    [("2.4.0", "", "cu121"), ("2.11.0", "", "cu130"), ("2.10.0", "aarch64", "cpu"), ("2.11.0", "aarch64", "cu130")],
)
def test_what_a_plain_install_gives_on_linux(torch: str, arch: str, build: str) -> None:
    """The nvidia-* requirements of the default wheel name its CUDA; Arm servers got one from 2.11 on."""
    assert torch_default(torch, *([arch] if arch else [])) == build


def test_measured_architectures() -> None:
    """Read from the fat binaries of the wheels."""
    assert torch_archs("2.6.0+cu124", "12.4") == ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    assert torch_archs("2.8.0", "12.8") == ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert torch_archs("2.12.0", "13.0") == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def test_bitsandbytes_libraries() -> None:
    """The build matrix of its releases: 0.45.x has no CUDA 12.9, 0.48 has 13.0."""
    assert not bitsandbytes_has("0.45.3", "12.9")
    assert bitsandbytes_has("0.48.1", "13.0")
    with pytest.raises(CannotJudge):
        bitsandbytes_has("0.30.0", "11.7")


@pytest.mark.parametrize(
    ("torch", "gpu", "serves"),
    [("2.5.1", "12.0", False), ("2.7.0", "12.0", True), ("1.6.0", "8.6", False), ("1.7.0", "8.6", True)],
)
def test_whether_any_build_of_a_release_serves_a_gpu(torch: str, gpu: str, serves: bool) -> None:
    assert release_serves(torch, gpu) is serves
