"""Causes as they are met: on simulated machines, and where none has them, as the cases of their own pages tell them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpudoctor.app import pipeline, reading
from gpudoctor.app.commands import rules
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known, Row, Rows, Value
from gpudoctor.core.rule import Case
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from tests.sim import scenario
from tests.sim.documents import Documents

BOOK = rulebook.load()
LAYERS = ("torch", "env", "container", "wsl", "driver", "cuda", "cudnn", "ext")
"""Those of which each cause has a cure that is planned."""
SOUND = "rtx4090"
CAUSES = tuple(rule.id for rule in BOOK.rules if rule.layer in LAYERS and rule.role == "cause" and not rule.sound)


@cache
def machines() -> dict[str, list[Path]]:
    """The simulated machines on which each cause is found."""
    found: dict[str, list[Path]] = {}
    for name in scenario.names(scenario.SICK):
        path = scenario.SICK / f"{name}.json"
        for cause in dict.fromkeys(json.loads(path.read_text("utf-8"))["expect"]["ids"]):
            found.setdefault(cause, []).append(path)
    return found


def cases(cause: str) -> Iterator[Case]:
    """The cases of the cause's page that fire, those that tell facts before those that paste a report."""
    own = [case for case in rulebook.cases() if case.rule == cause and case.finds is not None]
    return iter(sorted((case for case in own if case.scope == "machine"), key=lambda case: bool(case.report)))


@cache
def specimens(cause: str, documents: Documents) -> dict[str, Diagnosis]:
    """Diagnoses in which the cause is found, by where they are from; each as if it were of the machine itself."""
    told = ((path.stem, documents.of(path)[1].out) for path in machines().get(cause, ()))
    found = {name: diagnosed(reading.snapshot_of(text)) for name, text in told}
    if not found:
        found = {case.name: diagnosed(rules.snapshot_of(case)) for case in cases(cause)}
    return {name: one for name, one in found.items() if cause in [finding.id for finding in one.findings]}


@cache
def told_by_facts(cause: str, documents: Documents) -> dict[str, Diagnosis]:
    """Those of machines, whose facts settle what is cured; a case's facts are laid over a sound machine.

    None for a cause that only messages tell of: that one of them is no longer printed proves nothing.
    """
    if cause in machines():
        return specimens(cause, documents)
    sound = reading.snapshot_of(documents.of(scenario.PROFILES / f"{SOUND}.json")[1].out)
    found = {
        case.name: diagnosed(_with(case, sound))
        for case in cases(cause)
        if not case.report and "text" not in case.facts
    }
    return {name: one for name, one in found.items() if cause in [finding.id for finding in one.findings]}


def _with(case: Case, sound: Snapshot) -> Snapshot:
    """The sound machine with the case's facts; of what these speak of, and what was tried out there, nothing else."""
    own = rules.snapshot_of(case)
    spoken = {name.partition(".")[0] for name in (*case.facts, "live.outcome", "live_gpu")}
    facts = {name: fact for name, fact in sound.facts.items() if name.partition(".")[0] not in spoken}
    groups = {name: rows for name, rows in sound.groups.items() if name not in spoken}
    return replace(sound, facts={**facts, **own.facts}, groups={**groups, **own.groups})


def linux(gpus: Sequence[tuple[str, str]], packages: Mapping[str, str] | None = None, /, **facts: Value) -> Snapshot:
    """A Linux machine with these GPUs, by name and compute capability, a Python in /opt/venv, and these packages;
    ``torch__version`` is torch.version. What is not said is not known.
    """

    def row(**columns: str) -> Row:
        return {name: Known(value, "x") for name, value in columns.items()}

    said = {"python__path": "/opt/venv/bin/python", "host__platform": "linux", "host__arch": "x86_64", **facts}
    known = {name.replace("__", ".", 1): Known(value, "x") for name, value in said.items()}
    groups: dict[str, Rows] = {"gpu": tuple(row(name=name, compute_capability=cc) for name, cc in gpus)}
    if packages is not None:
        groups["package"] = tuple(row(name=name, version=version) for name, version in packages.items())
    return Snapshot(Target("local", "here"), known, groups)


def diagnosed(snapshot: Snapshot) -> Diagnosis:
    """What the rules say of it."""
    return pipeline.diagnose(replace(snapshot, target=replace(snapshot.target, kind="local")), BOOK)


def judged(snapshot: Snapshot) -> Diagnosis:
    """The same of a snapshot that is complete, without notes."""
    return judge(snapshot, BOOK)
