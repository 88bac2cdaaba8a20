"""Machines to be checked again and again: trees laid out once, and the simulated driver, asked in real children."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpudoctor.target.local import Local
from gpudoctor.target.record import Record
from gpudoctor.target.recorded import Recorded, lay_out
from tests.sim import build, scenario

HEALTHY = ("hgx-h100", "l40s", "rtx4090", "docker", "mig-slice", "v100-dgx1")
SICK = (
    "cuda-init-crashes",
    "driver-missing-4090",
    "ecc-uncorrected-h100",
    "fabric-manager-stopped",
    "lost-gpu-h100",
    "memory-notebook-5090",
    "module-not-loaded",
    "nvlink-gpu-dark-a100",
    "nvml-crashes-at-init",
    "nvml-crashes-at-one-getter",
    "nvml-garbage-version",
    "nvml-hangs-at-init",
    "nvml-hangs-at-one-getter",
    "nvml-uninterruptible",
    "nvml-unknown-error",
    "upgraded-hgx-h100",
)
"""Among them drivers that hang and that end the child which asks them."""


class Patient(NamedTuple):
    """A machine, laid out under `root` with its driver's answers beside it."""

    name: str
    record: Record
    root: Path
    environ: Mapping[str, str]

    @property
    def hangs(self) -> bool:
        """Whether its driver has calls that never return."""
        return any(fault.get("do") in ("hang", "dstate") for fault in (self.record.nvml or {}).get("faults", ()))

    def local(self) -> Local:
        """As this machine is asked: files from the tree, the driver in children."""
        return Local("quick", sys.executable, str(self.root), self.environ)

    def recorded(self) -> Recorded:
        """As a record is replayed: laid out anew, and taken away when it is left."""
        return Recorded(self.record, "quick")


def laid_out(folder: Path, mark: Mapping[str, str]) -> Iterator[Patient]:
    """All of them below `folder`; their children carry the variables of `mark`."""
    libraries = str(build.libraries())
    for place, names in ((scenario.PROFILES, HEALTHY), (scenario.SICK, SICK)):
        for name in names:
            record = scenario.load(place / f"{name}.json")
            root, answers = folder / name, folder / f"{name}.answers"
            lay_out(record, root)
            build.write_answers(record.nvml, record.cuda, answers)
            own = {"LD_LIBRARY_PATH": libraries, "GPUDOCTOR_SIM_ANSWERS": str(answers)}
            path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
            yield Patient(name, record, root, {**record.environ, **path, **own, **mark})
