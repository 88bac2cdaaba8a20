"""torch releases, their builds and companions, against the metadata of the wheels."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import NOTHING, CannotJudge
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


def test_unknown_pairs_cannot_be_judged() -> None:
    with pytest.raises(CannotJudge, match="no such release"):
        torch_for("torchvision", "9.9.9")
    with pytest.raises(CannotJudge, match="does not follow"):
        torch_for("numpy", "1.26")
    with pytest.raises(CannotJudge):
        companion_for("2.4.0a0+nv24.05", "torchvision")


def test_companion_of_a_torch() -> None:
    assert companion_for("2.4.0+cu121", "torchvision") == "0.19.0"
    assert companion_for("2.5.1", "triton") == "3.1.0"


@pytest.mark.parametrize(("torch", "build"), [("2.4.0", "cu121"), ("2.11.0", "cu130")])
def test_what_a_plain_install_gives_on_linux(torch: str, build: str) -> None:
    """The nvidia-* requirements of the default wheel name its CUDA."""
    assert torch_default(torch) == build


def test_arm_servers_got_cuda_by_default_from_2_11_on() -> None:
    assert torch_default("2.10.0", "aarch64") == "cpu"
    assert torch_default("2.11.0", "aarch64") == "cu130"


def test_measured_architectures() -> None:
    """Read from the fat binaries of the wheels."""
    assert torch_archs("2.6.0+cu124", "12.4") == ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    assert torch_archs("2.8.0", "12.8") == ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert torch_archs("2.12.0", "13.0") == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def test_nightlies_and_own_builds_have_no_row() -> None:
    for version in ("2.7.0.dev20250310+cu128", "2.4.0a0+07cecf4168.nv24.05", "2.99.0"):
        with pytest.raises(CannotJudge):
            torch_archs(version, "12.8")


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


def test_a_release_of_which_nothing_is_known_is_not_judged() -> None:
    with pytest.raises(CannotJudge):
        release_serves("9.9.9", "8.0")


def test_a_companion_that_takes_any_newer_torch() -> None:
    assert misfit("torchaudio", "2.11.0", "2.7.0") == "torchaudio 2.11.0 is for torch 2.11 or newer"
    assert misfit("torchaudio", "2.11.0", "2.13.0") is None
