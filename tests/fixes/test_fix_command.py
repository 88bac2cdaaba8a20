"""``gpudoctor fix`` as one types it: on a simulated machine with a real environment, by a page of the site's own."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.fixes.index import Index
from tests.fixes.place import JOURNALS, Patient, difference, record
from tests.fixes.wheels import Wheel, torch
from tests.sim import scenario
from tests.sim.root import Machine
from tests.views.tui.terminal import Terminal

RULE = "site.torch-is-old"
PAGE = f"""
id = "{RULE}"
title = "This site's torch is another one"
severity = "error"
role = "cause"
explains = ["torch.cpu-build"]
when = ["torch.version == '1.0+cpu'"]
finding = "torch {{torch.version}} is installed, and this site wants 2.0"
why = "A page for a test."
misses = "Every other torch."
sources = ["a test"]

[[fix]]
title = "Install torch 2.0"
undo = "Install torch 1.0 again"
[[fix.steps]]
argv = ["{{python.path}}", "-m", "pip", "install", "helper"]
needs = ["network"]
touches = "environment"
[[fix.steps]]
argv = ["{{python.path}}", "-m", "pip", "install", "torch==WANTED"]
needs = ["network"]
touches = "environment"

[[case]]
name = "old"
facts = {{ "torch.version" = "1.0+cpu", "python.path" = "/x/python" }}
finds = "torch 1.0+cpu is installed, and this site wants 2.0"

[[case]]
name = "new"
facts = {{ "torch.version" = "2.0" }}
passes = true

[[case]]
name = "not read"
facts = {{ "torch.version" = {{ unread = "not asked" }} }}
unjudged = "torch.version"
"""
SITE = ("--rules", "/srv/rules", RULE)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        index.add(torch("1.0+cpu"), torch("1.1+cpu"), torch("2.0", "12.8"), Wheel("helper", "1"))
        yield index


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, index: Index) -> Path:
    """With the old torch in it."""
    made = Patient(record("t4", PIP_INDEX_URL=index.url()), tmp_path_factory.mktemp("made").resolve() / "root")
    made.pip("install", "torch==1.0+cpu")
    return made.prefix


@pytest.fixture
def patient(tmp_path: Path, index: Index, environment: Path) -> Patient:
    return patient_at(tmp_path, index, environment)


def patient_at(folder: Path, index: Index, environment: Path, wanted: str = "2.0") -> Patient:
    """A machine whose site has that page."""
    patient = Patient(record("t4", PIP_INDEX_URL=index.url()), folder.resolve() / "root", environment)
    page = patient.root / f"srv/rules/torch/{RULE}.toml"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE.replace("WANTED", wanted), "utf-8")
    return patient


class Typing(Terminal):
    """The program on a terminal in that machine."""

    def __init__(self, patient: Patient, *words: str) -> None:
        argv = patient.command(["/.host/usr/bin/env", "TERM=xterm", sys.executable, "-m", "gpudoctor", *words])
        super().__init__(argv[1:], (120, 40), program=argv[0])
        self.heard = 0

    def wait_for(self, *words: str, seconds: float = 60.0) -> float:
        """As there, but what came in one piece with what was waited for before counts as well."""
        end = time.monotonic() + seconds
        while not (found := [self.said.index(one, self.heard) + len(one) for one in words if one in self.rest]):
            self._read(end)
            assert time.monotonic() < end, f"{words!r} is not in {self.rest[-2000:]!r}"
        self.heard = min(found)
        return time.monotonic() - self.started

    @property
    def rest(self) -> str:
        """What was written and not yet waited for."""
        return self.said[self.heard :]


def asked(patient: Patient, *words: str) -> Typing:
    return Typing(patient, "fix", *SITE, "--level", "quick", *words)


def runs(patient: Patient) -> list[dict[str, object]]:
    """The journals, the oldest first."""
    return [json.loads(path.read_text()) for path in sorted((patient.root / JOURNALS[1:]).glob("*/run.json"))]


def test_a_dry_run_shows_all_and_changes_nothing(patient: Patient) -> None:
    before = patient.files()
    ran = patient.doctor("fix", "--dry-run", *SITE)
    assert ran.code == 0, ran.err
    for said in (
        "torch 1.0+cpu is installed, and this site wants 2.0",
        f"Install torch 2.0  [{RULE}]",
        "2. $ /opt/venv/bin/python -m pip install helper",
        "3. $ /opt/venv/bin/python -m pip install torch==2.0",
        "(needs the network, changes this environment)",
        f"verify: {RULE} is gone",
        "/opt/venv can be written to",
        f"no longer found: {RULE}",
        "To undo by hand:\n  - Install torch 1.0 again",
        "nothing was changed",
    ):
        assert said in ran.out, ran.out
    assert not difference(before, patient.files())
    assert not runs(patient)


def test_unattended_it_runs_judges_and_is_taken_back_whole(patient: Patient) -> None:
    before, there = patient.files(), patient.distributions()
    planned = patient.doctor("fix", "--dry-run", "--json", *SITE).document
    assert planned["foreseen"]["cleared"][0] == RULE
    ran = patient.doctor("fix", "--yes", "--json", *SITE)
    assert ran.code == 0, ran.err
    assert f"cured: no longer found: {RULE}" in ran.err
    assert ran.document["outcome"] == "fixed"
    assert ran.document["judged"] == {RULE: False}
    assert ran.document["changed"] == ["helper not installed → 1", "torch 1.0+cpu → 2.0"]
    assert RULE not in patient.found()
    assert patient.distributions() == {**there, "helper": "1", "torch": "2.0"}
    assert "torch 2.0" not in patient.doctor("fix", "--runs").out
    back = patient.doctor("fix", "--undo", "last", "--yes")
    assert back.code == 0, back.out + back.err
    assert patient.distributions() == there
    assert not difference(before, patient.files())
    said = patient.doctor("fix", "--runs").out.splitlines()
    assert [line.split()[-1] for line in said] == [runs(patient)[0]["id"], "back"]
    assert "there is no run to take back" in patient.doctor("fix", "--undo", "last", "--yes").err


def test_each_step_is_asked_about_and_enter_is_no(patient: Patient) -> None:
    with asked(patient) as terminal:
        terminal.wait_for("Run it? y yes, n leave it out, a all the rest, q stop [n]")
        assert "Step 2 of 4" in terminal.said
        terminal.type("\r")
        terminal.wait_for("Step 3 of 4")
        terminal.wait_for("[n]")
        terminal.type("q\r")
        assert terminal.ended(60) == 1
    assert "helper" not in patient.distributions()
    (run,) = runs(patient)
    assert [step["state"] for step in run["steps"]] == ["done", "left out", "waits", "waits"]  # type: ignore[attr-defined]


@pytest.mark.full
def test_what_is_not_cured_is_offered_back_at_once(tmp_path: Path, index: Index, environment: Path) -> None:
    patient = patient_at(tmp_path, index, environment, "2.0")
    page = patient.root / f"srv/rules/torch/{RULE}.toml"
    page.write_text(page.read_text().replace("torch.version == '1.0+cpu'", "present(torch.version)"))
    before = patient.files()
    with asked(patient) as terminal:
        terminal.wait_for("[n]")
        terminal.type("a\r")
        terminal.wait_for(f"not cured yet: still found: {RULE}")
        terminal.wait_for("back now? y yes, n no [n]")
        terminal.type("y\r")
        terminal.wait_for("took back run")
        assert terminal.ended(60) == 1
    assert not difference(before, patient.files())


@pytest.mark.full
def test_ctrl_c_ends_the_step_and_the_record_says_so(patient: Patient, index: Index) -> None:
    index.pause = 0.5
    try:
        with asked(patient) as terminal:
            terminal.wait_for("[n]")
            terminal.type("a\r")
            terminal.wait_for("Step 3 of 4")
            terminal.wait_for("Downloading")
            terminal.type("\x03")
            assert terminal.ended(60) == 130
    finally:
        index.pause = 0.0
    (run,) = runs(patient)
    assert [step["state"] for step in run["steps"]] == ["done", "done", "stopped", "waits"]  # type: ignore[attr-defined]


def test_what_needs_root_is_a_script_and_the_user_does_the_rest(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / "driver-missing-4090.json"), tmp_path.resolve() / "root")
    (machine.root / "srv").mkdir(exist_ok=True)
    ran = machine.gpudoctor("fix", "--only", "user", "--yes", "-o", "/srv/steps.sh")
    assert ran.code == 1, ran.err
    assert "needs root: it is in the administrator's script" in ran.out
    text = (machine.root / "srv/steps.sh").read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "set -eu\n" in text
    assert machine.gpudoctor("fix", "--only", "user", "-o", "-").out == text
    left = machine.gpudoctor("fix", "--only", "user", "--yes", "--json").document
    assert left["steps"][0]["hindrance"] or left["steps"][1]["hindrance"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fix", "torch.cpu-bild"), "there is no such rule"),
        (("fix", "--read", "x"), "add --dry-run"),
        (("fix", "--json"), "--json gives the plan with --dry-run"),
        (("fix", "-o", "x"), "--only user"),
        (("fix", "--undo", "20990101-000000", "--yes"), "no run"),
        (("fix", "--undo", "last", "torch.cpu-build"), "a run is taken back whole"),
    ],
)
def test_misuse_is_told_in_a_line(
    called: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.setenv("GPUDOCTOR_STATE", str(tmp_path))
    ran = called(*words)
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_without_a_terminal_nothing_is_run_unless_somebody_said_yes(patient: Patient) -> None:
    ran = patient.doctor("fix", *SITE)
    assert ran.code == 2
    assert "--dry-run shows the plan, --yes runs it" in ran.err
    assert not runs(patient)


def test_what_is_not_found_needs_no_cure(gpudoctor: Program, tmp_path: Path) -> None:
    ran = gpudoctor("fix", "-n", "torch.arch-too-new", env={"GPUDOCTOR_STATE": str(tmp_path)})
    assert ran.code == 0
    assert ran.out.startswith("torch.arch-too-new: not found here")


def test_a_plan_for_a_report_is_shown_and_never_run(called: Program, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    report.write_text("AssertionError: Torch not compiled with CUDA enabled\nNVIDIA RTX 4090, driver 580.95.05\n")
    ran = called("fix", "--dry-run", "--read", str(report))
    assert ran.code == 0, ran.err
    assert "torch.cpu-build" in ran.out
    assert "is another machine" in " ".join(ran.out.split())


def test_the_user_whose_environment_it_is_runs_its_steps(tmp_path: Path, index: Index, environment: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a folder away")
    patient = patient_at(tmp_path, index, environment)
    shutil.chown(patient.prefix, 12345, 12345)
    ran = patient.doctor("fix", "--yes", *SITE)
    assert ran.code == 1
    assert "/opt/venv belongs to 12345: run gpudoctor fix as 12345" in " ".join(ran.out.split())
    assert patient.distributions()["torch"] == "1.0+cpu"
