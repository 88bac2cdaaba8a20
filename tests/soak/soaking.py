"""The checks of one soak, each of a kind and a machine drawn by chance, and what the process holds after them: memory,
threads, files, children, and files left in its temporary folder.

The machines are trees laid out once, and the simulated driver, asked in real children.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
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

HEALTHY = ("hgx-h100", "l40s", "rtx4090", "docker", "mig-slice", "v100-dgx1")
SICK = (
    *("cuda-init-crashes", "driver-missing-4090", "ecc-uncorrected-h100", "fabric-manager-stopped"),
    *("lost-gpu-h100", "memory-notebook-5090", "module-not-loaded", "nvlink-gpu-dark-a100", "nvml-crashes-at-init"),
    *("nvml-crashes-at-one-getter", "nvml-garbage-version", "nvml-hangs-at-init", "nvml-hangs-at-one-getter"),
    *("nvml-uninterruptible", "nvml-unknown-error", "upgraded-hgx-h100"),
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


_PAGE = os.sysconf("SC_PAGE_SIZE")
MARK = "GPUDOCTOR_SOAK"
"""A variable that every process started from here carries, whatever group it is in."""


class Held(NamedTuple):
    """MiB in memory, and the names of all else."""

    mib: float
    threads: tuple[str, ...]
    files: tuple[str, ...]
    processes: tuple[str, ...]
    left: tuple[str, ...]


def held(folder: Path, patience: float = 600.0) -> Held:
    """Now, once the threads and children that are on their way out have had `patience` seconds."""
    deadline = time.monotonic() + patience
    while (threading.active_count() > 1 or _processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    gc.collect()
    names = (thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    left = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    _give_back()
    return Held(_mib(), tuple(sorted(names)), _files(), _processes(), tuple(sorted(left)))


def leaks(before: Held, after: Held, limit: float) -> list[str]:
    """What is held afterwards and was not before, and memory beyond `limit` MiB more."""
    found = [f"still there: {one}" for one in (*after.threads, *after.processes)]
    found += [
        f"left: {one}" for kind in ("files", "left") for one in set(getattr(after, kind)) - set(getattr(before, kind))
    ]
    growth = after.mib - before.mib
    return [*found, *([f"memory grew by {growth:.1f} MiB"] if growth > limit else [])]


def _give_back() -> None:
    """Have the C library return what is free: how much of it is kept says nothing of what we hold."""
    with contextlib.suppress(AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def _mib() -> float:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE / (1 << 20)


def _files() -> tuple[str, ...]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        try:
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")  # noqa: PTH115
        except OSError:
            continue  # the one that listed them
    return tuple(sorted(found))


def _processes() -> tuple[str, ...]:
    """Our children, zombies too, and every process that carries our mark."""
    sign = f"{MARK}={os.getpid()}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            state, parent = (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() or sign in (place / "environ").read_bytes().split(b"\0"):
                found.append(f"{place.name} {state} {(place / 'cmdline').read_bytes()[:80]!r}")
        except OSError:
            continue  # it ended, or is another user's
    return tuple(found)
