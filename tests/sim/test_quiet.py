"""Healthy machines that look as if they were not: false alarms of other tools, or nearly of ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sim import scenario
from tests.sim.documents import sampled
from tests.sim.root import Machine

FAULT_OF_A_PROGRAM = (
    "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_0 faulted @ 0x7f3f_b2e00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
LINK_AT_REST = (
    "nvidia 0000:01:00.0: 32.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link at 0000:00:01.0 "
    "(capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)"
)
CORRECTED = (
    "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0",
    "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    "nvidia 0000:01:00.0:   device [10de:2684] error status/mask=00001000/0000a000",
)


def every(**answers: Any) -> dict[str, Any]:
    """These answers of all GPUs; ``_0_1`` at a name's end is ``(0,1)``."""
    told = {}
    for name, answer in answers.items():
        call, *arguments = name.split("_")
        told[f"nvmlDeviceGet{call}" + (f"({','.join(arguments)})" if arguments else "")] = answer
    return {"nvml": {"every": told}}


def one(gpu: int, **answers: Any) -> dict[str, Any]:
    """These answers of one GPU."""
    return {"nvml": {"gpus": {str(gpu): every(**answers)["nvml"]["every"]}}}


def words(**told: Any) -> dict[str, Any]:
    return {"machine": told}


FULL = {"total": 85520809984, "reserved": 476053504, "free": 1044756480, "used": 84000000000}
SLICE = {
    "nvmlDeviceGetUUID": "MIG-11111111-2222-3333-4444-555555555555",
    "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
    "nvmlDeviceGetGpuInstanceId": 1,
    "nvmlDeviceGetComputeInstanceId": 0,
}
MIG_ON = {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": 7}
SPARE_ROWS = {"max": 638, "high": 2, "partial": 0, "low": 0, "none": 0}

LOST_BEFORE_THE_RELOAD = (
    "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU 0000:3a:00.0: GPU has fallen off the bus.",
    "nvidia-nvlink: Unregistered Nvlink Core, major device number 510",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)",
)
EXCLUDED = """Model: \t\t NVIDIA H100 80GB HBM3
Bus Location: \t 0000:db:00.0
Device Minor: \t 7
GPU Excluded:\t Yes
"""
NO_DOMAIN = (
    "/proc/4713",
    "/dev/nvidia-caps-imex-channels",
    "/etc/systemd/system/multi-user.target.wants/nvidia-imex.service",
    "/etc/nvidia-imex/nodes_config.cfg",
    "/var/log/nvidia-imex.log",
)


def of(profile: str, count: int) -> list[dict[str, Any]]:
    """The answers of the first GPUs of a profile."""
    told = json.loads((scenario.PROFILES / f"{profile}.json").read_text("utf-8"))
    return list(told["nvml"]["gpus"][:count])


def fewer(profile: str, count: int, *unseen: str, **host: Any) -> dict[str, Any]:
    """NVML lists the first GPUs only; the others, at these addresses, are on the bus."""
    nvml = {"system": {"nvmlDeviceGetCount": count}, "gpus": of(profile, count)}
    return {"machine": {"unseen": list(unseen)}, "nvml": nvml, "host": host}


def two_kinds() -> dict[str, Any]:
    """A T4 beside an A10."""
    t4 = json.loads((scenario.PROFILES / "t4.json").read_text("utf-8"))["nvml"]
    place = {**t4["gpus"][0]["nvmlDeviceGetPciInfo"], "busId": "00000000:3B:00.0", "bus": 59}
    second = {**t4["every"], **t4["gpus"][0], "nvmlDeviceGetPciInfo": place, "nvmlDeviceGetMinorNumber": 1}
    return {"nvml": {"system": {"nvmlDeviceGetCount": 2}, "gpus": [*of("a10", 1), second]}}


def bridged_pairs() -> dict[str, Any]:
    """Four H100 NVL, two and two under bridges: 12 links of 18 go anywhere, and to one peer only."""
    gpus = of("l40s", 4)
    for at, gpu in enumerate(gpus):
        for link in range(12):
            gpu[f"nvmlDeviceGetNvLinkRemotePciInfo({link})"] = gpus[at ^ 1]["nvmlDeviceGetPciInfo"]
        for kind in (2, 3):
            gpu[f"nvmlDeviceGetP2PStatus({at ^ 1},{kind})"] = 0
    own = every(Name="NVIDIA H100 NVL", CudaComputeCapability=[9, 0], Architecture=9, FieldValues_91=18)
    own["nvml"]["every"].update(every(NvLinkState=1, NvLinkVersion=6, NvLinkRemoteDeviceType=0)["nvml"]["every"])
    own["nvml"]["every"].update({f"nvmlDeviceGetNvLinkState({link})": 0 for link in range(12, 18)})
    return {"nvml": {**own["nvml"], "system": {"nvmlDeviceGetCount": 4}, "gpus": gpus}}


QUIET: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a program's own fault in the log": ("rtx4090", words(events=[FAULT_OF_A_PROGRAM])),
    "the boot's line about a link that was at rest": ("gtx1080ti", words(kmsg=[LINK_AT_REST])),
    "a single corrected error on the bus": ("rtx4090", words(events=list(CORRECTED))),
    "not root": ("hgx-h100", words(user=1000)),
    "at work, power cap reached": (
        "hgx-h100",
        every(
            UtilizationRates={"gpu": 100, "memory": 80}, CurrentClocksEventReasons=4, ClockInfo_1=1500, MemoryInfo=FULL
        ),
    ),
    "application clocks set": ("v100-dgx1", every(CurrentClocksEventReasons=2)),
    "clocks of the display": ("gtx1080ti", every(CurrentClocksEventReasons=0x100)),
    "corrected errors in memory": ("hgx-a100", every(TotalEccErrors_0_0=12, TotalEccErrors_0_1=4000)),
    "rows remapped long ago": ("hgx-a100", one(2, RemappedRows=[2, 0, 0, 0], RowRemapperHistogram=SPARE_ROWS)),
    "an uncorrectable error of an earlier boot, remapped": (
        "hgx-h100",
        one(2, RemappedRows=[0, 1, 0, 0], TotalEccErrors_1_1=1),
    ),
    "a few pages retired": ("v100-dgx1", one(1, FieldValues_29=2, FieldValues_30=1)),
    "an InfiniBand port without a cable": ("hgx-h100", words(hcas_down=1)),
    "an IOMMU that translates, one GPU": ("rtx5090", words(iommu="DMA-FQ")),
    "persistence mode off": ("l40s", every(PersistenceMode=0)),
    "ECC switched off": ("rtx-pro-6000", every(EccMode=[0, 0])),
    "a power limit lowered a little": (
        "rtx4090",
        every(EnforcedPowerLimit=380000, PowerManagementLimit=380000, PowerUsage=379000),
    ),
    "warm under load": (
        "rtx3090-bridge",
        every(Temperature_0=83, UtilizationRates={"gpu": 99, "memory": 60}, ClockInfo_1=1695, CurrPcieLinkGeneration=4),
    ),
    "one process for each GPU allowed": ("v100-dgx1", every(ComputeMode=3)),
    "two of eight GPUs chosen": ("hgx-h100", words(environ={"CUDA_VISIBLE_DEVICES": "0,1"})),
    "one of eight GPUs in MIG mode": (
        "hgx-a100",
        {"nvml": {"gpus": {"0": {**MIG_ON, "nvmlDeviceGetNvLinkState": 0, "mig": [SLICE]}}}},
    ),
    "works in bursts, and rests at this instant": (
        "hgx-h100",
        every(UtilizationRates={"gpu": 97, "memory": 50}, CurrentClocksEventReasons=1, ClockInfo_1=345),
    ),
    "H100 NVL, bridged in pairs": ("l40s", bridged_pairs()),
    "A100 on PCIe without bridges": (
        "l40s",
        every(Name="NVIDIA A100 80GB PCIe", CudaComputeCapability=[8, 0], FieldValues_91=12, NvLinkState=0),
    ),
    "two kinds of GPU": ("a10", two_kinds()),
    "a GB200 tray outside of any compute domain": ("gb200-nvl", {"host": {"without": list(NO_DOMAIN)}}),
    "a GPU excluded by a module parameter": (
        "hgx-h100",
        fewer(
            "hgx-h100",
            7,
            "0000:db:00.0",
            without=["/dev/nvidia7"],
            files={"/proc/driver/nvidia/gpus/0000:db:00.0/information": EXCLUDED},
        ),
    ),
    "a GPU that was lost before the driver was loaded anew": ("hgx-h100", words(kmsg=list(LOST_BEFORE_THE_RELOAD))),
    "no nvidia-peermem where the kernel has DMA-BUF": ("hgx-h100", words(peermem=False)),
    "processes share a GPU through MPS": (
        "v100-dgx1",
        {
            **words(
                environ={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}, processes={"901": "nvidia-cuda-mps-server"}
            ),
            **every(ComputeMode=3, MpsComputeRunningProcesses=[{"pid": 5001, "usedGpuMemory": 5368709120}]),
        },
    ),
    "Podman": ("docker", words(container="podman")),
}


@pytest.mark.parametrize("name", sampled(list(QUIET), str, one_of=4))
def test_nothing_is_said(name: str, tmp_path: Path) -> None:
    profile, patch = QUIET[name]
    record = scenario.expanded({"profile": profile, **patch})
    ran = Machine(record, tmp_path).gpudoctor("--json")
    assert [found["title"] for found in ran.document["findings"] if found["severity"] != "info"] == []
    assert ran.code == 0
