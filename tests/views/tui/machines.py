"""Machines for the interface: simulated ones, diagnoses that come one by one, and an engine that runs real commands."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from textual.pilot import Pilot

from gpudoctor.app import pipeline
from gpudoctor.app.interactive import work_on
from gpudoctor.core import run as runs
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Began, Ended, Judged, Printed, Run, State, Stop
from gpudoctor.core.snapshot import Event, Progress
from gpudoctor.target import Answer, Watch
from gpudoctor.target.recorded import Recorded
from gpudoctor.views.tui.work import Work
from tests.sim import scenario
from tests.views.tui.conftest import app_of, first_screen, until


def path_of(name: str) -> Path:
    """The file of a sick machine or, by the same rule, of a healthy one."""
    places = (folder / f"{name}.json" for folder in (scenario.SICK, scenario.PROFILES))
    return next(path for path in places if path.exists())


def work_of(name: str) -> Work:
    """That machine as the interface gets it: its probes run on the recorded answers."""

    def diagnoses(progress: Progress) -> Iterator[Diagnosis]:
        with Recorded(scenario.expanded(json.loads(path_of(name).read_text("utf-8")))) as target:
            yield from pipeline.watch(progress=progress, target=target)

    return work_on(name, diagnoses)


@cache
def diagnosis_of(name: str) -> Diagnosis:
    """What is found on that machine."""
    return work_of(name).diagnose(lambda _: None, lambda _: None)


def told_of(name: str) -> Work:
    """That machine, its diagnosis at once: for what does not depend on how it is read."""
    diagnosis = diagnosis_of(name)
    return work_on(name, lambda _: iter([diagnosis]))


class Stream:
    """A reading whose diagnoses are let through one at a time; the last one ends it."""

    def __init__(self, diagnoses: Sequence[Diagnosis]) -> None:
        self._diagnoses = diagnoses
        self._more = threading.Semaphore(0)
        self.work: Work = work_on("a machine", self._read)

    def _read(self, progress: Progress) -> Iterator[Diagnosis]:
        for number, diagnosis in enumerate(self._diagnoses):
            progress(Event(f"source{number}", "started"))
            self._more.acquire(timeout=600)
            progress(Event(f"source{number}", "done"))
            yield diagnosis

    async def next(self, pilot: Pilot[None]) -> None:
        """Let the next diagnosis through, and wait until it is on the screen."""
        app = app_of(pilot)
        before = app.diagnosis
        self._more.release()
        await until(pilot, lambda: app.diagnosis is not before)


class Held(Recorded):
    """A recorded machine on which one of our child processes answers only when the test says so."""

    def __enter__(self) -> Held:
        return self

    def hold(self, child: str) -> threading.Event:
        """That child waits from now on; set the event to let it answer."""
        self._child, self._let = child, threading.Event()
        return self._let

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
        """As recorded; the one that is held, later."""
        if any(self._child in word for word in argv):
            self._let.wait(120)
        return super().run(argv, timeout, env, stdin, limit, silence, watch)


def finding_of(machine: str, name: str) -> Finding:
    """What is found on that machine under that id."""
    return next(finding for finding in diagnosis_of(machine).findings if finding.id == name)


def with_findings(diagnosis: Diagnosis, *findings: Finding) -> Diagnosis:
    """The diagnosis with these findings instead of its own."""
    return replace(diagnosis, findings=findings)


def here(pilot: Pilot[None]) -> str:
    """The id under the cursor of the list."""
    entry = first_screen(pilot).findings.entry
    assert entry
    return entry.id


Tell = Callable[[Run], None]
Wanted = Callable[[], Stop]


@dataclass
class Engine:
    """Runs steps and writes ``RUN.json`` into `folder`. `found` tells whether a rule still finds something."""

    folder: Path
    found: Callable[[str], bool] = lambda _: False
    backwards: Callable[[Run], Plan] | None = None
    """The plan that takes a run back."""
    begun: list[str] = field(default_factory=list)

    def apply(self, plan: Plan, tell: Tell, wanted: Wanted) -> Run:
        """By the contract."""
        return self._run(Run.of(plan, f"run-{len(self.begun) + 1}", "2026-11-21T03:12:00Z"), tell, wanted)

    def undo(self, run: Run, tell: Tell, wanted: Wanted) -> Run:
        """By the contract."""
        assert self.backwards
        back = Run.of(self.backwards(run), f"run-{len(self.begun) + 1}", "2026-11-21T03:20:00Z", undoes=run.id)
        return self._run(back, tell, wanted)

    def journal(self, name: str) -> Run:
        """What is on disk of that run."""
        return runs.from_json(json.loads((self.folder / f"{name}.json").read_text("utf-8")))

    def _run(self, run: Run, tell: Tell, wanted: Wanted) -> Run:
        self.begun.append(run.id)

        def now(event: runs.Event, write: bool = False) -> None:
            nonlocal run
            run = run.after(event)
            if write:
                self._write(run)
            tell(run)

        for step in run.plan.chosen:
            if wanted() != "go on":
                break
            now(Began(step.id), write=True)
            state = self._judge(step, now) if step.verify else self._command(step, now, wanted)
            if state != "done":
                break
        run = run.ended()
        self._write(run)
        tell(run)
        return run

    def _write(self, run: Run) -> None:
        part = self.folder / f"{run.id}.part"
        part.write_text(json.dumps(run.to_json()), "utf-8")
        part.replace(self.folder / f"{run.id}.json")

    def _judge(self, step: PlanStep, now: Callable[..., None]) -> State:
        found = self.found(step.verify)
        now(Judged(step.id, step.verify, found))
        state: State = "failed" if found else "done"
        now(Ended(step.id, state, 0.0), write=True)
        return state

    def _command(self, step: PlanStep, now: Callable[..., None], wanted: Wanted) -> State:
        began = time.monotonic()
        child = subprocess.Popen(step.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        ended: list[bool] = []

        def watch() -> None:
            while child.poll() is None:
                if wanted() == "now":
                    ended.append(True)
                    child.kill()
                time.sleep(0.02)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert child.stdout
        with child.stdout as pipe:
            while piece := pipe.read(4096):
                now(Printed(step.id, piece.decode("utf-8", "replace")))
        status = child.wait()
        watcher.join()
        state: State = "stopped" if ended else "failed" if status else "done"
        changed = () if status else tuple(f"{item.name} {item.before} → {item.after}" for item in step.changes)
        now(Ended(step.id, state, time.monotonic() - began, status, changed), write=True)
        return state
