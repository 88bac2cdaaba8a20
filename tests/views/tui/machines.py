"""Machines for the interface to look at: those that the simulator tells of, asked as a real one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.snapshot import Progress
from gpudoctor.target.recorded import Recorded
from gpudoctor.views.tui.work import Work
from tests.sim import scenario


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
