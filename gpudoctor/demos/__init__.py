"""Recorded machines that ship with the package: each opens in the interface as if one sat before it.

A folder a machine: ``machine.json.gz`` is its record; the others are what else there is of it: its GPUs at work, what
kernels measured, its fleet, the run that cured it. ``python -m tests.demos`` and ``python -m tests.measured`` make it.
"""

from __future__ import annotations

import difflib
import gzip
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpudoctor import shipped
from gpudoctor.demos import playing, watching
from gpudoctor.model import fleet, measurement_json
from gpudoctor.model.diagnosis import Diagnosis, Verdict
from gpudoctor.model.errors import UsageError
from gpudoctor.model.snapshot import Progress
from gpudoctor.target import Answer, Watch
from gpudoctor.target.record import Record
from gpudoctor.target.recorded import Recorded

if TYPE_CHECKING:
    from pathlib import Path

    from gpudoctor.views.tui.work import Work

LONGEST = 1.5
"""Seconds that the answers of a recorded machine take in all: enough to be seen arriving."""
_SECONDS = {"ask_nvml.py": 0.3, "ask_cuda.py": 0.5, "ask_torch.py": 1.3}
_OTHERS = 0.1


@dataclass(frozen=True, slots=True)
class Demo:
    """A recorded machine: what is wrong with it, what one meets there before one looks, and what it is."""

    name: str
    verdict: Verdict
    title: str
    meets: str
    machine: str
    pace: float = 1.0
    """How slowly its answers come: 1 is good to watch, 0 is at once."""

    def record(self) -> Record:
        """All that the machine answered."""
        from gpudoctor.target import record_json

        return record_json.from_json(self._document("machine.json.gz"))

    def diagnosis(self, rules: Sequence[Path] = (), expect: str | None = None) -> Diagnosis:
        """What is found on the machine, at once; by a site's pages and a profile, too."""
        from gpudoctor import doctor

        with Recorded(self.record()) as target:
            return _recorded(doctor.check(target.level, rules=rules, target=target, expect=expect))

    def work(self) -> Work:
        """The machine as the interface gets it."""
        from gpudoctor.interactive.work import work_on

        def diagnoses(progress: Progress) -> Iterator[Diagnosis]:
            from gpudoctor import doctor

            with _Paced(self.record(), self.pace) as target:
                for diagnosis in doctor.watch(progress=progress, target=target):
                    yield _recorded(diagnosis)

        return self._with_what_else(replace(work_on(f"recording: {self.title}", diagnoses), recorded=True))

    def _with_what_else(self, work: Work) -> Work:
        """The work, with the GPUs at work, measurements, fleet and the run of the cure that were recorded."""
        files = {entry.name for entry in self._folder.iterdir()}
        if "live.json.gz" in files:
            work = replace(work, live=lambda hear: watching.from_json(self._document("live.json.gz")).play(hear))
        if "kernels.json.gz" in files:
            work = replace(work, measured=lambda: measurement_json.from_json(self._document("kernels.json.gz")))
        if "cluster.json.gz" in files:
            work = replace(work, cluster=lambda: fleet.from_json(self._document("cluster.json.gz")))
        return self._with_the_run(work) if "run.json" in files else work

    def _with_the_run(self, work: Work) -> Work:
        run, plan = playing.from_json(self._document("run.json"), self.pace), work.plan
        assert plan
        return replace(
            work,
            plan=lambda diagnosis, only: run.plan(plan(diagnosis, only)),
            apply=run.apply,
            undo=run.undo,
        )

    @property
    def _folder(self) -> Path:
        return shipped.folder("demos") / self.name

    def _document(self, name: str) -> Any:
        raw = (self._folder / name).read_bytes()
        return json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)


def every() -> tuple[Demo, ...]:
    """All of them, what most people meet first."""
    listed = json.loads(shipped.text("demos/index.json"))
    return tuple(Demo(**entry) for entry in listed)


def named(name: str) -> Demo:
    """The one of that name; raises `UsageError` with the nearest names where there is none."""
    demos = {demo.name: demo for demo in every()}
    if name in demos:
        return demos[name]
    near = difflib.get_close_matches(name.lower(), demos, cutoff=0.5) or [key for key in demos if name.lower() in key]
    there = f"the nearest: {', '.join(near)}" if near else f"there are: {', '.join(demos)}"
    raise UsageError(f"no demo is named {name!r}; {there}")


def show(name: str = "") -> None:
    """The interface on that machine, or on the list of all, until the user leaves."""
    from gpudoctor import interactive

    if name:
        interactive.run(named(name).work())
        return
    from gpudoctor.views.tui.recordings import RecordingsApp

    interactive.run_app(RecordingsApp(every()))


def _recorded(diagnosis: Diagnosis) -> Diagnosis:
    """The same, said to be about a record, as `gpudoctor read` says it."""
    snapshot = diagnosis.snapshot
    return replace(diagnosis, snapshot=replace(snapshot, target=replace(snapshot.target, kind="snapshot")))


class _Paced(Recorded):
    """A record whose programs take their time."""

    def __init__(self, record: Record, pace: float) -> None:
        super().__init__(record)
        self._pace = pace
        self._ends = time.monotonic() + pace * LONGEST

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        names = {word.rpartition("/")[2] for word in argv}
        wanted = max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_OTHERS) * self._pace
        time.sleep(max(0.0, min(wanted, self._ends - time.monotonic())))
        return super().run(argv, timeout, env, stdin, limit, silence, watch)
