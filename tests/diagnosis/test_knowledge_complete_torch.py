"""What a torch's version, build and package list imply: CUDA, architectures, companions and pins."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Absent, Known, Rows, Unread
from tests.diagnosis.test_knowledge_complete import LINUX, completed, value


class TestTorchBuild:
    @pytest.mark.parametrize(
        ("version", "flavor", "cuda"),
        [("2.4.0+cu121", "cuda", "12.1"), ("2.7.0.dev20250310+cu128", "cuda", "12.8"), ("2.4.0+cpu", "cpu", None)],
    )
    def test_local_part(self, version: str, flavor: str, cuda: str | None) -> None:
        snapshot = completed({"torch.version": version})
        assert value(snapshot, "torch.flavor") == flavor
        if cuda:
            assert value(snapshot, "torch.cuda") == cuda
        else:
            assert snapshot.get("torch.cuda") == Absent(f"a cpu build: local part of torch {version}")
        assert isinstance(snapshot.get("torch.hip"), Absent)

    def test_rocm(self) -> None:
        snapshot = completed({"torch.version": "2.5.1+rocm6.2"})
        assert (value(snapshot, "torch.flavor"), value(snapshot, "torch.hip")) == ("rocm", "6.2")
        assert isinstance(snapshot.get("torch.cuda"), Absent)

    def test_plain_version_is_the_default_of_its_platform_and_says_so(self) -> None:
        snapshot = completed({"torch.version": "2.4.0", **LINUX})
        assert snapshot.get("torch.cuda") == Known("12.1", "table torch: the default Linux x86_64 wheel of 2.4.0")
        windows = completed({"torch.version": "2.4.0", "host.platform": "windows"})
        assert windows.get("torch.flavor") == Known("cpu", "table torch: the default Windows wheel of 2.4.0")
        mac = completed({"torch.version": "2.4.0", "host.platform": "macos"})
        assert value(mac, "torch.flavor") == "mps"
        arm = completed({"torch.version": "2.4.0", "host.arch": "aarch64", **LINUX})
        assert value(arm, "torch.flavor") == "cpu"

    def test_plain_version_says_nothing_on_an_unknown_platform_or_from_conda(self) -> None:
        assert isinstance(completed({"torch.version": "2.4.0"}).get("torch.flavor"), Unread)
        conda: Rows = ({"name": Known("pytorch", "line 3"), "installer": Known("conda", "line 3")},)
        assert isinstance(completed({"torch.version": "2.4.0", **LINUX}, package=conda).get("torch.flavor"), Unread)

    def test_flavor_from_what_torch_says_of_itself(self) -> None:
        """collect_env prints "CUDA used to build PyTorch" beside a version without local part."""
        snapshot = completed({"torch.version": "2.4.0", "torch.cuda": "12.4", **LINUX})
        assert value(snapshot, "torch.flavor") == "cuda"
        assert value(snapshot, "torch.cuda") == "12.4"
        none = completed({"torch.cuda": Absent("None"), "torch.hip": Absent("N/A"), "torch.version": "2.4.0", **LINUX})
        assert value(none, "torch.flavor") == "cpu"

    def test_no_torch_no_build(self) -> None:
        snapshot = completed({"torch.version": Absent("torch is not installed")})
        assert snapshot.get("torch.cuda") == Absent("torch is not installed")
        assert snapshot.get("torch.archs") == Absent("torch is not installed")

    def test_who_looked_and_failed_is_not_talked_over(self) -> None:
        failed = Unread("the probe torch_build was stopped after 8 s")
        snapshot = completed({"torch.version": "2.4.0+cu121", "torch.archs": failed, "torch.cuda": failed})
        assert snapshot.get("torch.cuda") == failed
        assert snapshot.get("torch.archs") == failed


class TestTorchArchs:
    def test_by_release_and_cuda(self) -> None:
        snapshot = completed({"torch.version": "2.6.0+cu124"})
        assert snapshot.get("torch.archs") == Known(
            ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
            "table torch: the cu124 Linux x86_64 wheel of 2.6.0",
        )

    def test_platforms_differ(self) -> None:
        """Windows wheels up to CUDA 12 list sm_61, Arm wheels begin at sm_80."""
        windows = completed({"torch.version": "2.5.1+cu124", "host.platform": "windows"})
        assert "sm_61" in str(value(windows, "torch.archs"))
        arm = completed({"torch.version": "2.9.0+cu128", "host.arch": "aarch64", **LINUX})
        assert value(arm, "torch.archs") == ("sm_80", "sm_90", "sm_100", "sm_120")

    def test_open_where_the_table_has_no_list(self) -> None:
        for facts in ({"torch.version": "2.7.0+cu128", "host.platform": "windows"}, {"torch.version": "2.99.0+cu128"}):
            assert isinstance(completed(dict(facts)).get("torch.archs"), Unread)


def packages(*listed: str) -> Rows:
    """Rows of what ``pip list`` prints: ``torch 2.4.0``."""
    pairs = [line.split() for line in listed]
    return tuple({"name": Known(name, "pip list"), "version": Known(version, "pip list")} for name, version in pairs)


class TestCompanions:
    @pytest.mark.parametrize(
        ("torch", "companion", "unmet"),
        [
            ("2.4.0", "torchvision 0.19.0", ()),
            ("2.4.1", "torchvision 0.19.0", ()),  # patch releases take each other
            ("2.4.0", "torchvision 0.15.2", ("torchvision 0.15.2 is for torch 2.0",)),
            ("1.13.1", "torchaudio 2.0.2", ("torchaudio 2.0.2 is for torch 2.0",)),
            ("2.13.0", "torchaudio 2.11.0", ()),  # the last torchaudio takes any torch
            ("2.4.0+cu121", "torchvision 0.19.0+cu124", ()),
            (
                "2.4.0+cu121",
                "torchvision 0.19.0+cpu",
                ("torchvision 0.19.0+cpu is a cpu build, torch 2.4.0+cu121 a cuda build",),
            ),
        ],
    )
    def test_listed_beside_one_torch(self, torch: str, companion: str, unmet: tuple[str, ...]) -> None:
        snapshot = completed({"torch.version": torch}, package=packages(f"torch {torch}", companion))
        assert value(snapshot, "torch.companions_unmet") == unmet

    @pytest.mark.parametrize(
        ("torch", "listed"),
        [
            ("2.4.0", ()),
            ("2.4.0", ("torch 2.1.0", "torchvision 0.15.2")),  # which of two torches?
            ("2.7.0a0+nv25.02", ("torchvision 0.22.0a0",)),  # vendor images pair commits
        ],
    )
    def test_open_where_nothing_follows(self, torch: str, listed: tuple[str, ...]) -> None:
        snapshot = completed({"torch.version": torch}, package=packages(*listed))
        assert isinstance(snapshot.get("torch.companions_unmet"), Unread)


class TestPins:
    def unmet(self, **wheels: str) -> object:
        facts: dict[str, object] = {**LINUX, "torch.version": "2.4.0", "torch.cuda": "12.1", "torch.flavor": "cuda"}
        listed = (f"{name.replace('_', '-')} {version}" for name, version in wheels.items())
        return value(completed(facts, package=packages("torch 2.4.0", *listed)), "torch.pins_unmet")

    def test_a_wheel_of_another_version_than_the_release_pins_is_told(self) -> None:
        """torch 2.4.0's METADATA pins nvidia-cudnn-cu12==9.1.0.70 and nvidia-nccl-cu12==2.20.5."""
        told = self.unmet(nvidia_cudnn_cu12="8.9.2.26", nvidia_nccl_cu12="2.20.5")
        assert told == ("nvidia-cudnn-cu12 wants 9.1.0.70, has 8.9.2.26",)

    def test_the_pinned_wheels_and_those_of_another_cuda_are_not(self) -> None:
        told = self.unmet(nvidia_cudnn_cu12="9.1.0.70", nvidia_nccl_cu12="2.20.5", nvidia_cudnn_cu13="9.9.0")
        assert isinstance(told, Unread)
