"""The checks of one soak, each of a kind and a machine drawn by chance."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from tests.soak.held import MARK, Held, held
from tests.soak.patients import Patient, laid_out

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
