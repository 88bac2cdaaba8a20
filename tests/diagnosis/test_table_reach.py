"""Where a report goes beyond the tables it says so, once; what is newer than every row is not broken by itself."""

import json
from functools import cache
from itertools import islice

import jsonschema
import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.diagnosis import from_json as diagnosis_from_json
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.diagnose import with_notes
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import complete, table_reach
from gpudoctor.views import document, schema, text
from tests.diagnosis.expect.machines import machine
from tests.generated import beyond
from tests.generated.beyond import Raised
from tests.sim import scenario

BOOK = rulebook.load()
WITHIN = "2026-11-22"
SOUND = """\
PyTorch version: 2.13.0+cu128
CUDA used to build PyTorch: 12.8
Is CUDA available: True
OS: Ubuntu 24.04.3 LTS (x86_64)
Python version: 3.12.3 (64-bit runtime)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 615.43
"""


def changed(**lines: str) -> str:
    """The sound report with these words in place of those behind the labels."""
    labels = {
        "torch": "2.13.0+cu128",
        "cuda": ": 12.8",
        "python": "3.12.3",
        "gpu": "NVIDIA GeForce RTX 5090",
        "driver": "615.43",
    }
    report = SOUND
    for label, words in lines.items():
        assert labels[label] in report
        report = report.replace(labels[label], words)
    return report


def read(report: str, today: str = WITHIN) -> Diagnosis:
    return pipeline.diagnose(reading.snapshot_of(report), BOOK, today)


def test_nothing_newer_nothing_said() -> None:
    bare = judge(complete(reading.snapshot_of(SOUND)), BOOK)
    assert with_notes(bare, BOOK, WITHIN) is bare


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            {"torch": "2.17.0+cu128"},
            "Tables of 2026-11; your torch 2.17.0+cu128 is newer: judged by rule, not by record.",
        ),
        ({"torch": "2.16.0.dev20261102+cu128"}, "your torch 2.16.0.dev20261102+cu128 is newer"),
        ({"driver": "650.12.01"}, "your driver 650.12.01 is newer"),
        ({"cuda": ": 14.1"}, "your CUDA 14.1 is newer"),
        ({"python": "3.16.0"}, "your Python 3.16.0 is newer"),
        ({"gpu": "NVIDIA GeForce RTX 6090"}, "your GPU NVIDIA GeForce RTX 6090 is newer"),
        ({"torch": "2.17.0+cu128", "driver": "650.12"}, "your torch 2.17.0+cu128 and driver 650.12 are newer"),
    ],
)
def test_what_is_newer_is_said_once(lines: dict[str, str], says: str) -> None:
    diagnosis = read(changed(**lines))
    report = " ".join(text.render(diagnosis).split())
    assert says in report
    assert report.count("Tables of ") == 1
    assert len(json.loads(document.render(diagnosis))["notes"]) == 1


@pytest.mark.parametrize(
    "lines",
    [
        {"torch": "2.15.0+cu132"},
        {"torch": "2.15.0a0+5228986c39.nv26.10"},  # NVIDIA's container: a build before that release
        {"torch": "1.4.0"},
        {"driver": "615.99.99"},
        {"driver": "346.46"},
        {"gpu": "NVIDIA RTX 6000 Ada Generation"},
        {"gpu": "NVIDIA GeForce 210"},
        {"python": "3.15.1"},
        {"python": "2.7.18"},
        {"python": "3." + "9" * 5000},
    ],
)
def test_old_and_odd_is_not_newer(lines: dict[str, str]) -> None:
    assert read(changed(**lines)).notes == ()


def test_a_new_generation_is_told_by_its_compute_capability_and_windows_numbers_are_not_newer() -> None:
    rows = tuple({"name": Known(name, "nvml"), "compute_capability": Known(cc, "nvml")} for name, cc in GPUS)
    found = table_reach.facts_beyond_tables(Snapshot(Target("local", "node"), {}, {"gpu": rows}))
    assert [(item.fact, item.row, item.says) for item in found] == [
        ("gpu.compute_capability", 1, "GPU NVIDIA R200 (compute capability 14.0)")
    ]
    facts = {"driver.version": Known("617.24", "nvidia-smi")}
    assert table_reach.newer_driver(Snapshot(Target("report", "x"), facts))
    assert not table_reach.newer_driver(
        Snapshot(Target("report", "x"), {**facts, "host.platform": Known("windows", "line 1")})
    )


GPUS = [("NVIDIA B200", "10.0"), ("NVIDIA R200", "14.0"), ("NVIDIA L4", "no version")]


def test_a_finding_that_rests_on_it_is_marked_and_no_other() -> None:
    report = changed(torch="2.17.0+cu138", cuda=": 13.8", driver="570.11").replace("True", "False")
    report += "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
    diagnosis = read(report)
    marks = {finding.id: finding.by_rule for finding in diagnosis.findings}
    assert marks == {"torch.driver-too-old": ("torch.cuda",), "cuda.arch-unknown": ()}
    assert "torch.driver-too-old" in diagnosis.notes[0].rules
    assert "Judged by rule, not by record: torch.cuda is newer than the tables" in text.render(diagnosis)


@pytest.mark.parametrize(
    "lines", [{}, {"torch": "2.17.0+cu128"}, {"driver": "650.1"}, {"cuda": ": 14.1"}, {"python": "3.17"}]
)
@pytest.mark.parametrize("today", [WITHIN, "2029-01-01"])
def test_no_note_moves_the_verdict(lines: dict[str, str], today: str) -> None:
    snapshot = complete(reading.snapshot_of(changed(**lines)))
    bare, said = judge(snapshot, BOOK), with_notes(judge(snapshot, BOOK), BOOK, today)
    assert (said.verdict, said.unjudged, said.passed) == (bare.verdict, bare.unjudged, bare.passed)
    assert [(f.id, f.severity, f.confidence, f.title) for f in said.findings] == [
        (f.id, f.severity, f.confidence, f.title) for f in bare.findings
    ]


def test_a_table_is_good_for_twelve_months() -> None:
    assert read(SOUND, today="2027-11-21").notes == ()
    note = read(SOUND, today="2027-11-22").notes[0]
    assert note.text.startswith("The tables torch, drivers and gpus are of 2026-11, and good for 12 months")
    assert read("Nvidia driver version: 570.11\n", "2027-11-22").notes[0].text.startswith("The table drivers is of ")
    assert read("nothing that a table speaks of\n", "2027-11-22").notes == ()


def test_the_document_keeps_notes_and_marks_and_an_older_one_has_none() -> None:
    diagnosis = read(changed(torch="2.17.0+cu138", cuda=": 13.8", driver="570.11"), "2030-01-01")
    raw = json.loads(document.render(diagnosis))
    jsonschema.validate(raw, json.loads(schema.text()))
    again = diagnosis_from_json(raw)
    assert (again.notes, [f.by_rule for f in again.findings]) == (
        diagnosis.notes,
        [f.by_rule for f in diagnosis.findings],
    )
    assert len(again.notes) == 2
    raw = json.loads(document.render(read(changed(driver="470.57"))))
    del raw["notes"]
    for finding in raw["findings"]:
        del finding["by_rule"]
    assert diagnosis_from_json(raw).notes == ()


def alarms(machine: Snapshot) -> set[str]:
    """The findings that are more than information."""
    return {one.id for one in pipeline.diagnose(machine, BOOK).findings if one.severity != "info"}


@cache
def profiles() -> dict[str, Snapshot]:
    """Every sound machine that is simulated."""
    return {name: machine(name) for name in scenario.names(scenario.PROFILES)}


def new_alarms(raised: Raised) -> list[str]:
    """What is found on the machine of tomorrow, or in its pasted report, and not on that of today."""
    found = []
    if seen := alarms(raised.after):
        found += [f"machine {one}" for one in seen - alarms(raised.before)]
    if pasted := alarms(reading.snapshot_of(beyond.as_text(raised.after))):
        found += [f"text {one}" for one in pasted - alarms(reading.snapshot_of(beyond.as_text(raised.before)))]
    return [f"{raised.what}: {one}" for one in found]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 7))])
def test_what_is_newer_than_every_row_is_not_broken(seed: int) -> None:
    """``python -m tests.generated --beyond 20000`` judges as many."""
    found = [new_alarms(raised) for raised in islice(beyond.machines(seed, profiles()), 60)]
    assert [line for lines in found for line in lines] == []


def test_what_is_newer_is_said() -> None:
    sample = list(islice(beyond.machines(1, profiles()), 40))
    noted = [raised for raised in sample if pipeline.diagnose(raised.after, BOOK, "2026-11-22").notes]
    held = [raised for raised in sample if any(part in raised.what for part in ("driver by", "torch by", "python by"))]
    assert [raised.what for raised in held if raised not in noted] == []
