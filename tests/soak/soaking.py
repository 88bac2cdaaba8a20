"""The checks of one soak, each of a kind and a machine drawn by chance.

The machines are trees laid out once, and the simulated driver, asked in real children.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gpudoctor.app import pipeline
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from gpudoctor.target.local import Local
from gpudoctor.target.record import Record
from gpudoctor.target.recorded import Recorded, lay_out
from tests.sim import build, scenario
from tests.soak.held import MARK, Held, held

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


KINDS = {"asked": 70, "killed": 12, "replayed": 8, "watched": 5, "left": 3, "here": 2}
"""How often of a hundred: asked in children, one of which is killed; from a record; as the interface does, to the end
or left half-way; this machine, whose history is kept."""


_RARELY = 0.25
"""How often a driver that hangs is asked, beside others: each time is waited for."""


class Soak:
    """Machines laid out below `home`; `temporary` is where this process makes its temporary files."""

    def __init__(self, home: Path, temporary: Path, seed: int) -> None:
        self.kinds: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._temporary = temporary
        self._chance = random.Random(seed)
        self._patients = list(laid_out(home, {MARK: str(os.getpid())}))
        self._often = [_RARELY if one.hangs else 1.0 for one in self._patients]
        self._told: dict[str, tuple[str, ...]] = {}

    def run(self, checks: int) -> None:
        """That many checks, one after the other."""
        for _ in range(checks):
            kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
            self.kinds[kind] += 1
            getattr(self, f"_{kind}")(self._chance.choices(self._patients, self._often)[0])

    def held(self) -> Held:
        """What this process holds now."""
        return held(self._temporary)

    def _asked(self, patient: Patient) -> None:
        self._same(patient.name, pipeline.check(target=patient.local()))

    def _killed(self, patient: Patient) -> None:
        killer = threading.Thread(target=_kill_a_child, args=(self._chance.uniform(0.01, 0.12),), name="killer")
        killer.start()
        with suppress(UsageError):  # the child that was to say which Python it is
            pipeline.check(target=patient.local())
        killer.join()

    def _replayed(self, patient: Patient) -> None:
        with patient.recorded() as target:
            self._same(f"record of {patient.name}", pipeline.check(target=target))

    def _watched(self, patient: Patient) -> None:
        *_, last = pipeline.watch(target=patient.local())
        self._same(patient.name, last)

    def _left(self, patient: Patient) -> None:
        watched = pipeline.watch(target=patient.local())
        for _ in islice(watched, self._chance.randint(1, 4)):
            pass
        watched.close()  # type: ignore[attr-defined]

    def _here(self, _: Patient) -> None:
        pipeline.check("quick", sys.executable)

    def _same(self, name: str, diagnosis: Diagnosis) -> None:
        """What is found on a machine is found on it every time, but where its driver was too slow for our patience."""
        state = diagnosis.snapshot.get("nvml.state")
        if isinstance(state, Known) and state.value in ("hung", "slow"):
            return
        ids = tuple(finding.id for finding in diagnosis.findings)
        if (first := self._told.setdefault(name, ids)) != ids:
            self.surprises.append(f"{name}: {', '.join(ids) or 'nothing'}; before: {', '.join(first) or 'nothing'}")


def _kill_a_child(after: float) -> None:
    time.sleep(after)
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for child in (thread / "children").read_text("ascii").split():
                os.kill(int(child), signal.SIGKILL)
                return
