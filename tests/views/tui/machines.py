"""Machines for the interface to look at: simulated ones, asked as a real one is; diagnoses that come one by one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from textual.pilot import Pilot

from gpudoctor.app import pipeline
from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis, Finding
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
