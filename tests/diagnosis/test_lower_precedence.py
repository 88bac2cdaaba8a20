"""What the lower pages say together: the cause leads, its consequences fold."""

from __future__ import annotations

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import read
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.rulebook import load

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
