"""What is mutilated: sound pastes, snapshots and records, none of them large, so that a run takes milliseconds."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from gpudoctor.app.commands import rules
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.about import __version__
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.readers import read_text
from gpudoctor.target.record import to_json
from gpudoctor.views import document
from tests import readme
from tests.corpus import blocks
from tests.fuzz.pump import units
from tests.needs import REPOSITORY
from tests.sim import scenario

Kind = Literal["report", "snapshot", "record"]
_MACHINES = ("t4", "gtx1080ti")
_TALKERS = ("t4", "rtx4090", "hgx-h100", "wsl2-4080", "mig-slice", "k8s-pod")
"""Profiles whose programs' output is pasted."""


class Seeds(NamedTuple):
    """Texts to mutilate by kind, words that rules look for, and what their patterns repeat."""

    reports: Sequence[str]
    snapshots: Sequence[str]
    records: Sequence[str]
    words: Sequence[str]
    units: Sequence[str]

    def of(self, kind: Kind) -> Sequence[str]:
        """The texts of one kind."""
        return {"report": self.reports, "snapshot": self.snapshots, "record": self.records}[kind]


@lru_cache(maxsize=1)
def seeds() -> Seeds:
    """All of them; the same in every process, so that a number names a case."""
    reports = list(dict.fromkeys(text for text in _reports() if text.strip()))
    records = [json.dumps(to_json(scenario.load(scenario.PROFILES / f"{name}.json"))) for name in _MACHINES]
    snapshots = list(dict.fromkeys(_snapshots(reports, records)))
    required_words = {
        word for rule in rulebook.load().rules for sign in rule.signs for words in sign.required_words for word in words
    }
    runs = {unit for rule in rulebook.load().rules for sign in rule.signs for unit in units(sign.match)}
    return Seeds(reports, snapshots, records, sorted(required_words), sorted(runs))


def _reports() -> Iterator[str]:
    for file in sorted((REPOSITORY / "tests/readers/messages").glob("*.txt")):
        yield from (text for _, text in blocks(file.stem))
    yield from (case.report for case in rulebook.cases())
    yield readme.REPORT
    yield readme.report()
    for name in _TALKERS:
        record = scenario.load(scenario.PROFILES / f"{name}.json")
        for command in record.commands:
            yield f"$ {' '.join(command.argv)}\n{command.out}{command.err}"
        for path, content in record.files.items():
            if path.startswith(("/proc/driver/", "/proc/modules", "/etc/os-release", "/proc/cmdline")):
                yield f"$ cat {path}\n{content.decode('utf-8', 'replace')}"


def _snapshots(reports: Sequence[str], records: Sequence[str]) -> Iterator[str]:
    for case in rulebook.cases():
        if case.facts:
            yield document.facts(rules.snapshot_of(case), __version__)
    for text in reports[::9]:
        yield document.facts(complete(read_text(text)), __version__)
    for text in records:
        yield document.facts(_trimmed(snapshot_of(text)), __version__)


def _trimmed(snapshot: Snapshot) -> Snapshot:
    """The snapshot of a machine with a few rows of each group."""
    groups = {name: rows[:8] if isinstance(rows, tuple) else rows for name, rows in snapshot.groups.items()}
    return replace(snapshot, groups=groups)
