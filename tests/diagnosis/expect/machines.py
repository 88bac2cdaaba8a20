"""Simulated machines as snapshots, made once, and what a profile says of them."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from gpudoctor.app import pipeline, reading
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, Value
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.expect import Profile, load
from gpudoctor.target.record import to_json
from gpudoctor.views import document
from tests.sim import scenario

BOOK = rulebook.load()


@cache
def machine(name: str) -> Snapshot:
    """The facts of a simulated machine of that name, healthy or sick, at level standard."""
    path = scenario.PROFILES / f"{name}.json"
    record = scenario.load(path if path.exists() else scenario.SICK / f"{name}.json")
    return reading.snapshot_of(json.dumps(to_json(record)), name)


def saved(name: str, folder: Path) -> str:
    """The same as a file that `read` takes."""
    path = folder / f"{name}.json"
    path.write_text(document.facts(machine(name), "1"), "utf-8")
    return str(path)


def known(
    facts: Mapping[str, object] | None = None, level: str = "standard", **rows: Sequence[Mapping[str, object]]
) -> Snapshot:
    """A machine of which only this is known: facts by name, groups as lists of rows."""
    groups: dict[str, tuple[Row, ...]] = {
        group: tuple({column: _state(value) for column, value in row.items()} for row in listed)
        for group, listed in rows.items()
    }
    scalars = {name: _state(value) for name, value in (facts or {}).items()}
    return Snapshot(Target("snapshot", "node", None, level), scalars, groups)


def _state(value: object) -> Fact:
    return value if isinstance(value, (Absent, Unread)) else Known(cast(Value, value), "a test")


def profile(folder: Path, text: str, name: str = "ours") -> Profile:
    """The profile of that text, read from a file."""
    return load(str(put(folder, text, name)))


def put(folder: Path, text: str, name: str = "ours") -> Path:
    """The file of that text."""
    path = folder / f"{name}.toml"
    path.write_text(text if "profile =" in text else f'profile = "{name}"\n{text}', "utf-8")
    return path


def held(snapshot: Snapshot, expected: Profile) -> Diagnosis:
    """The machine's diagnosis, held to the profile."""
    return pipeline.diagnose(snapshot, BOOK, profile=expected)


def unmet(diagnosis: Diagnosis) -> dict[str, Finding]:
    """Findings of a profile's lines, by the line's name."""
    return {one.id.removeprefix("expect."): one for one in diagnosis.findings if one.id.startswith("expect.")}


def folded(diagnosis: Diagnosis) -> dict[str, str]:
    """Lines that are unmet because of a cause that was found, each with the cause."""
    pairs = ((child, finding.id) for finding in diagnosis.findings for child in finding.explains)
    return {child.removeprefix("expect."): cause for child, cause in pairs if child.startswith("expect.")}


def unjudged(diagnosis: Diagnosis) -> dict[str, str]:
    """Lines that could not be judged, each with its reason."""
    return {one.id.removeprefix("expect."): one.because for one in diagnosis.unjudged if one.id.startswith("expect.")}


def lines_passed(diagnosis: Diagnosis) -> list[str]:
    return [one.removeprefix("expect.") for one in diagnosis.passed if one.startswith("expect.")]
