"""Which finding stands first where several are true."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.ruletest import snapshot_of
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.rule import Case
from gpudoctor.diagnosis import rulebook

BOOK = rulebook.load()
LAYERS = {"env", "torch", "cuda", "cudnn"}
ABSENT = {"absent": "not there"}

SOUND: Mapping[str, object] = {
    "host.platform": "linux",
    "host.arch": "x86_64",
    "host.wsl": ABSENT,
    "pci.nvidia_count": 1,
    "pci.gpu_vendors": ["nvidia"],
    "gpu": [{"name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-1", "compute_capability": "8.0"}],
    "gpu.count": 1,
    "nvml.state": "ok",
    "driver.version": "535.183.01",
    "driver.cuda_version": "12.2",
    "python.version": "3.12.3",
    "python.implementation": "cpython",
    "python.overwritten": [],
    "torch.version": "2.6.0+cu124",
    "torch.flavor": "cuda",
    "torch.cuda": "12.4",
    "torch.archs": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
    "torch.pins_unmet": [],
    "torch.companions_unmet": [],
    "torch.installs": ["pip 2.6.0+cu124"],
    "torch.cudnn": "9.1.0.70",
    "tf.version": ABSENT,
    "jax.version": ABSENT,
    "env.CUDA_VISIBLE_DEVICES": ABSENT,
    "cuda.home": ABSENT,
    "libs.libcuda": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "libs.libcuda_kind": "driver",
    "libs.shadowing": [],
    "libs.clashes": [],
    "libs.missing": [],
    "live.import_error": ABSENT,
    "live.cuda_available": True,
    "live.cuda_error": ABSENT,
    "live.cudnn": "9.1.0",
    "live_gpu": [{"error": ABSENT}],
}


def found(changes: Mapping[str, object]) -> list[Finding]:
    snapshot = snapshot_of(Case("", "machine", {**SOUND, **changes}))
    return [finding for finding in diagnose(snapshot, BOOK).findings if finding.layer in LAYERS]


def test_the_sound_machine_gives_no_error() -> None:
    assert [finding.id for finding in found({}) if finding.severity == "error"] == []


def test_wheels_that_overwrite_each_other_stand_before_the_import_they_break() -> None:
    error = "ImportError: libtorch_cuda.so: undefined symbol: ncclMemFree"
    pair = "nvidia-nccl-cu11 and nvidia-nccl-cu12"
    first = found({"python.overwritten": [pair], "live.import_error": error, "live.cuda_available": {"unread": error}})
    assert [finding.id for finding in first] == ["torch.nvidia-wheels"]


def test_compat_stands_before_the_driver_that_it_was_to_lift() -> None:
    changes = {
        "gpu": [{"name": "NVIDIA GeForce GTX 1080", "uuid": "GPU-1", "compute_capability": "6.1"}],
        "driver.version": "470.82.01",
        "driver.cuda_version": "11.4",
        "libs.libcuda_kind": "compat",
        "libs.libcuda_version": "550.54.15",
        "live.cuda_available": False,
    }
    first = found(changes)
    assert first[0].id == "env.forward-compat"
    assert first[0].explains == ("torch.cuda-unavailable", "torch.driver-too-old")


@pytest.mark.parametrize("state", [ABSENT, {"unread": "nobody could look"}], ids=["absent", "unread"])
def test_any_fact_may_be_missing(state: object) -> None:
    """No page stumbles over a fact that is not there, alone or with all the others."""
    sick = {
        "torch.companions_unmet": ["torchvision 0.15.2 where 0.21.0 belongs"],
        "torch.pins_unmet": ["nvidia-cudnn-cu12 wants 9.1.0.70, has 8.9.2.26"],
        "torch.installs": ["pip 2.6.0 in /a", "conda 2.5.1 in /b"],
        "libs.shadowing": ["/a/libcudnn.so.9 instead of /b/libcudnn.so.9"],
        "live.import_error": "ImportError: libcudnn.so.9: cannot open shared object file",
        "live.cuda_available": False,
        "live.cudnn": "8.9.2",
    }
    everything = found(sick)
    for name in SOUND:
        assert {finding.id for finding in found({**sick, name: state})} <= {
            "torch.missing",
            "torch.import-failed",
            "torch.import-broken",
            "cudnn.missing",
            "cudnn.version",
            "env.library-path",
            *(child for finding in everything for child in (finding.id, *finding.explains)),
        }
    assert found(dict.fromkeys(SOUND, state)) == []
