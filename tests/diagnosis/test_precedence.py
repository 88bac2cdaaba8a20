"""Which finding stands first where several are true: the cause leads, and its consequences fold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpudoctor.app.commands.rules import snapshot_of
from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import read
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.rule import Case
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.rulebook import load

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


LEADS = {
    "an old driver under a new card, and a CPU build of torch": (
        "Nvidia driver version: 470.57.02\nGPU: NVIDIA GeForce RTX 5090\nPyTorch version: 2.13.0+cpu\n",
        ["driver.too-old-for-gpu", "torch.cpu-build"],
    ),
    "the Xid that asks for a reset follows the memory error": (
        (
            "NVRM: Xid (PCI:0000:9c:00): 48, pid=1, name=python, DBE\n"
            "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)\n"
        ),
        ["gpu.ecc"],
    ),
    "the GPU that fell off the bus cannot be initialised either": (
        (
            "NVRM: Xid (PCI:0000:c1:00): 79, pid=7, GPU has fallen off the bus.\n"
            "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n"
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error\n"
        ),
        ["gpu.fell-off-bus"],
    ),
    "a legacy card, whose driver then says that it found none": (
        (
            "NVRM: The NVIDIA GeForce GT 710 GPU installed in this system is\n"
            "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please\n"
            "NVRM:  information.  The 535.129.03 NVIDIA driver will ignore\nNVRM: No NVIDIA GPU found.\n"
        ),
        ["driver.gpu-dropped"],
    ),
}


def _led(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings if finding.severity != "info"]


@pytest.mark.parametrize(("report", "ids"), LEADS.values(), ids=LEADS)
def test_the_cause_leads_and_its_consequences_fold(report: str, ids: list[str]) -> None:
    assert _led(read(report)) == ids


def _local(groups: dict[str, Rows], **facts: Fact) -> Diagnosis:
    named = {name.replace("__", "."): fact for name, fact in facts.items()}
    return diagnose(Snapshot(Target("local", "test"), named, groups), load())


BUS: Rows = (
    {
        "vendor": Known("nvidia", "sysfs"),
        "name": Known("NVIDIA GeForce RTX 5090", "sysfs"),
        "address": Known("0000:01:00.0", "sysfs"),
    },
)


def test_a_card_that_the_driver_does_not_list_is_judged_by_the_bus() -> None:
    diagnosis = _local(
        {"pci": BUS, "gpu": Unread("NVML did not start")},
        host__container=Absent("no sign of one"),
        driver__version=Unread("the nvidia module is not loaded"),
        driver__module_loaded=Known(False, "sysfs"),
        driver__module_disk_version=Known("535.183.01", "modinfo"),
    )
    assert "driver.too-old-for-gpu" in _led(diagnosis)


def test_a_container_is_not_judged_by_the_bus_of_its_host() -> None:
    snapshot = Snapshot(
        Target("local", "test"),
        {"host.container": Known("docker", "/.dockerenv")},
        {"pci": BUS, "gpu": Unread("NVML did not start")},
    )
    assert complete(snapshot).groups["gpu"] == Unread("NVML did not start")
