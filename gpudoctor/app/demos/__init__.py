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

from gpudoctor.app import interactive, pipeline
from gpudoctor.app.demos import playing
from gpudoctor.core import fleet, measurement, shipped
from gpudoctor.core.diagnosis import Diagnosis, Verdict
from gpudoctor.core.errors import UsageError
from gpudoctor.core.snapshot import Progress
from gpudoctor.target import Answer, Watch
from gpudoctor.target.record import Record, from_json
from gpudoctor.target.recorded import Recorded

if TYPE_CHECKING:
    from pathlib import Path

    from gpudoctor.views.tui.work import Work

LONGEST = 1.5
"""Seconds that the answers of a recorded machine take in all: enough to be seen arriving."""
_SECONDS = {"ask_nvml.py": 0.3, "ask_cuda.py": 0.5, "ask_torch.py": 1.3}
_OTHER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Demo:
    """A recorded machine: the verdict, what is wrong, the symptom a user meets first, and its hardware."""

    name: str
    verdict: Verdict
    title: str
    meets: str
    machine: str
    pace: float = 1.0
    """How slowly its answers come: 1 is good to watch, 0 is at once."""

    def record(self) -> Record:
        """The record of everything that the machine answered."""
        return from_json(self._document("machine.json.gz"))

    def diagnosis(self, rules: Sequence[Path] = (), expect: str | None = None) -> Diagnosis:
        """Diagnose the recorded machine without delays, with a site's own pages and a profile, if given."""
        with Recorded(self.record()) as target:
            return _as_snapshot(pipeline.check(target.level, rules=rules, target=target, expect=expect))

    def work(self) -> Work:
        """The machine as `Work` for the interface, its answers arriving slowly."""

        def diagnoses(progress: Progress) -> Iterator[Diagnosis]:
            """Yield a diagnosis whenever a probe has answered."""
            with _PacedRecord(self.record(), self.pace) as target:
                for diagnosis in pipeline.watch(progress=progress, target=target):
                    yield _as_snapshot(diagnosis)

        return self._with_recordings(replace(interactive.work_on(f"recording: {self.title}", diagnoses), recorded=True))

    def _with_recordings(self, work: Work) -> Work:
        """The work with the live samples, measurements, fleet and fix run that were recorded, if any."""
        files = {entry.name for entry in self._folder.iterdir()}
        if "live.json.gz" in files:
            work = replace(work, live=lambda hear: playing.live_from_json(self._document("live.json.gz")).play(hear))
        if "kernels.json.gz" in files:
            work = replace(work, measured=lambda: measurement.from_json(self._document("kernels.json.gz")))
        if "cluster.json.gz" in files:
            work = replace(work, cluster=lambda: fleet.from_json(self._document("cluster.json.gz")))
        return self._with_recorded_run(work) if "run.json" in files else work

    def _with_recorded_run(self, work: Work) -> Work:
        """The work whose plan is played from the recorded run instead of being run."""
        run, plan = playing.run_from_json(self._document("run.json"), self.pace), work.plan
        assert plan
        return replace(
            work,
            plan=lambda diagnosis, only: run.plan(plan(diagnosis, only)),
            apply=run.apply,
            undo=run.undo,
        )

    @property
    def _folder(self) -> Path:
        """The folder with the files of this demo."""
        return shipped.folder("app/demos") / self.name

    def _document(self, name: str) -> Any:
        """A JSON file of this demo, parsed; ``.gz`` is decompressed."""
        raw = (self._folder / name).read_bytes()
        return json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)


def every() -> tuple[Demo, ...]:
    """All demos that ship, the most common problems first."""
    listed = json.loads(shipped.text("app/demos/index.json"))
    return tuple(Demo(**entry) for entry in listed)


def named(name: str) -> Demo:
    """The demo of that name; raises `UsageError` with similar names if there is none."""
    demos = {demo.name: demo for demo in every()}
    if name in demos:
        return demos[name]
    near = difflib.get_close_matches(name.lower(), demos, cutoff=0.5) or [key for key in demos if name.lower() in key]
    there = f"the nearest: {', '.join(near)}" if near else f"there are: {', '.join(demos)}"
    raise UsageError(f"no demo is named {name!r}; {there}")


def show(name: str = "") -> None:
    """Run the interface on that demo, or on the list of all, until the user leaves."""
    if name:
        interactive.run(named(name).work())
        return
    from gpudoctor.views.tui.recordings import RecordingsApp  # with Textual

    interactive.run_app(RecordingsApp(every()))


def _as_snapshot(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with its target's kind set to ``snapshot``, as `gpudoctor read` gives it."""
    snapshot = diagnosis.snapshot
    return replace(diagnosis, snapshot=replace(snapshot, target=replace(snapshot.target, kind="snapshot")))


class _PacedRecord(Recorded):
    """A recorded machine whose programs take time, `LONGEST` x `pace` seconds in all."""

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
        """The recorded answer, after a delay."""
        names = {word.rpartition("/")[2] for word in argv}
        wanted = max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_OTHER_SECONDS) * self._pace
        time.sleep(max(0.0, min(wanted, self._ends - time.monotonic())))
        return super().run(argv, timeout, env, stdin, limit, silence, watch)
