"""Combinations that the field knows, written by hand: GPU, driver, torch, and what comes of it.

The tables have no part in these expectations: release notes, NVIDIA's compatibility pages and many bug reports have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.core.snapshot import Snapshot
from tests.generated import tables
from tests.generated.machine import SYSTEMS, Machine
from tests.generated.sound import draft_of
from tests.generated.tables import Driver

COMBINATIONS = """
GeForce RTX 5090             570.124.06  2.7.0+cu128   runs
GeForce RTX 5090             570.124.06  2.6.0+cu124   torch.arch-too-new
GeForce RTX 5090             570.124.06  2.5.1+cu118   torch.arch-too-new
GeForce RTX 5090             575.57.08   2.9.0+cu129   runs
GeForce RTX 5090             575.57.08   2.9.0+cu130   torch.driver-too-old
GeForce RTX 5090             550.163.01  2.7.0+cu128   driver.too-old-for-gpu
GeForce RTX 4090             525.147.05  2.6.0+cu124   runs
GeForce RTX 4090             535.183.01  2.8.0+cu128   runs
GeForce RTX 4090             550.90.07   2.9.0+cu130   torch.driver-too-old
GeForce RTX 4090             525.60.13   1.13.1+cu117  runs
GeForce RTX 4090             580.95.05   1.8.0+cu102   torch.arch-too-new
GeForce RTX 3090             450.248.02  1.8.1+cu111   driver.too-old-for-gpu
GeForce RTX 3090             460.106.00  1.8.1+cu111   runs
GeForce RTX 3090             460.106.00  1.8.1+cu102   torch.arch-too-new
GeForce RTX 3090             470.256.02  2.1.0+cu118   runs
GeForce RTX 3090             470.256.02  2.1.0+cu121   torch.driver-too-old
GeForce RTX 2080 Ti          418.226.00  1.8.1+cu101   runs
GeForce RTX 2080 Ti          418.226.00  1.8.1+cu102   torch.driver-too-old
GeForce RTX 2080 Ti          580.95.05   2.9.0+cu130   runs
GeForce GTX 1080 Ti          580.95.05   2.9.1+cu126   runs
GeForce GTX 1080 Ti          580.95.05   2.9.1+cu128   torch.arch-dropped
GeForce GTX 1080 Ti          590.48.01   2.9.1+cu126   driver.gpu-dropped
GeForce GTX 980              470.256.02  2.0.1+cu118   runs
Tesla K80                    470.256.02  1.12.1+cu113  runs
Tesla K80                    525.147.05  1.12.1+cu113  driver.gpu-dropped
Tesla M40                    535.183.01  2.4.0+cu121   runs
Tesla P100-PCIE-16GB         550.90.07   2.6.0+cu124   runs
Tesla V100-SXM2-32GB         535.183.01  2.7.1+cu126   runs
Tesla V100-SXM2-32GB         570.124.06  2.7.1+cu128   torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.8.0+cu128   runs
Tesla V100-SXM2-32GB         580.95.05   2.9.0+cu130   torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.11.0+cu128  torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.11.0+cu126  runs
Tesla V100-SXM2-32GB         590.48.01   2.11.0+cu126  driver.gpu-dropped
Tesla T4                     450.248.02  1.13.1+cu117  runs
Tesla T4                     450.248.02  2.4.0+cu121   torch.driver-too-old
Tesla T4                     580.95.05   2.12.0+cu130  runs
A100-SXM4-80GB               450.248.02  1.13.1+cu117  runs
A100-SXM4-80GB               525.147.05  2.8.0+cu128   runs
A100-SXM4-80GB               535.183.01  1.8.0+cu102   torch.arch-too-new
A10                          470.256.02  2.0.1+cu118   runs
L40S                         535.183.01  2.0.1+cu117   runs
H100 80GB HBM3               525.147.05  2.1.0+cu121   runs
H100 80GB HBM3               535.183.01  2.0.1+cu117   torch.arch-too-new
H100 80GB HBM3               535.183.01  2.0.1+cu118   runs
H100 80GB HBM3               535.183.01  2.9.0+cu130   torch.driver-too-old
H200                         550.90.07   2.3.1+cu121   runs
B200                         570.124.06  2.7.0+cu128   runs
B200                         570.124.06  2.6.0+cu126   torch.arch-too-new
B200                         570.124.06  2.9.0+cu130   torch.driver-too-old
B300 SXM6 AC                 580.95.05   2.9.0+cu130   runs
GB10                         580.95.05   2.9.0+cu130   runs
RTX PRO 6000 Blackwell Server Edition  580.95.05  2.8.0+cu128  runs
RTX PRO 6000 Blackwell Server Edition  580.95.05  2.6.0+cu126  torch.arch-too-new
"""


class Combination(NamedTuple):
    """One line of `COMBINATIONS`; `outcome` is ``runs`` or the id of the cause."""

    gpu: str
    driver: str
    torch: str
    outcome: str


def combinations() -> Iterator[Combination]:
    for line in COMBINATIONS.strip().splitlines():
        *gpu, driver, torch, outcome = line.split()
        yield Combination(" ".join(gpu), driver, torch, outcome)


def snapshot_of(combination: Combination) -> Snapshot:
    """The machine at level quick, as it is found when its driver is loaded."""
    gpu = next(row for row in tables.gpus() if row["name"] == combination.gpu)
    arch = "aarch64" if combination.gpu.startswith("GB1") else "x86_64"
    build = next(one for one in tables.builds() if one.version == combination.torch and one.arch == arch)
    driver = next(one for one in tables.drivers() if one.version == combination.driver)
    machine = Machine(
        gpu=gpu,
        count=8 if gpu.get("nvswitch") else 1,
        driver=Driver(*driver),
        module=tables.modules(gpu, driver)[0],
        build=build,
        python="3.10.12",
        system=SYSTEMS[1],
        place="bare",
        level="quick",
        toolkit=None,
        companions=(),
        environment="venv",
        mig=0,
        busy=False,
    )
    return draft_of(machine).snapshot(str(combination), "quick")
