"""The Fix screen on a real window, where its keys change a real environment and take it back."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fixes import shelves
from tests.fixes.index import Index
from tests.fixes.patient import JOURNALS, Patient, record
from tests.fixes.place import difference
from tests.views.tui.conftest import SIZES, WIDE
from tests.views.tui.test_tmux import Opens, Window, window  # noqa: F401 - a fixture

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        yield shelves.stock(index)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, index: Index) -> Path:
    """With torch for processors alone."""
    patient = Patient(record("hgx-h100"), tmp_path_factory.mktemp("made").resolve() / "root")
    patient.pip("install", "torch==2.9.0+cpu", "--index-url", index.url("cpu"))
    return patient.prefix


@pytest.fixture
def patient(tmp_path: Path, index: Index, environment: Path) -> Patient:
    surroundings = {"PIP_INDEX_URL": index.url(), "GPUDOCTOR_TORCH_INDEX": index.url("").rstrip("/")}
    return Patient(record("hgx-h100", **surroundings), tmp_path.resolve() / "root", environment)


def shown(patient: Patient, size: tuple[int, int], opens: Opens) -> Window:
    """The plan of all that is found, on the screen."""
    surroundings = ["/.host/usr/bin/env", "TERM=screen-256color", f"PYTHONPATH={needs.REPOSITORY}"]
    inside = patient.command([*surroundings, sys.executable, "-m", "gpudoctor", "--level", "quick"])
    opened = opens(size, shlex.join(inside))
    opened.wait("✗ BROKEN", "not judged")
    opened.type("f")
    opened.wait("Install torch 2.9.0 for CUDA 12.8", "foreseen ✓ no longer found: torch.cpu-build")
    return opened


@pytest.mark.parametrize("size", SIZES)
def test_a_plan_is_applied_verified_and_taken_back(size: tuple[int, int], patient: Patient, window: Opens) -> None:  # noqa: F811
    before = patient.files()
    opened = shown(patient, size, window)
    opened.type("a")
    opened.wait("Run 2 commands in /opt/venv?", "undo is kept")
    opened.type("y")
    opened.wait("✓ FIXED", "no longer found")
    assert patient.distributions()["torch"] == "2.9.0+cu128"
    opened.type("U")
    opened.wait("torch 2.9.0+cpu → 2.9.0+cu128", "take it back")
    opened.type("y")
    opened.wait("✓ UNDONE")
    assert not difference(before, patient.files())


def test_a_run_that_was_killed_is_offered_back_when_it_is_opened_again(
    patient: Patient,
    window: Opens,  # noqa: F811
    index: Index,
) -> None:
    before = patient.files()
    opened = shown(patient, WIDE, window)
    index.pause = 5.0  # it is killed before the wheel is there
    try:
        opened.type("a")
        opened.wait("run it")
        opened.type("y")
        opened.wait("FIXING", "Downloading")
        (lock,) = (patient.root / JOURNALS[1:]).glob(".lock")
        os.kill(int(lock.read_text().split()[-1]), signal.SIGKILL)
        opened.wait("ended with")
    finally:
        index.pause = 0.0
    (journal,) = (patient.root / JOURNALS[1:]).glob("*/run.json")
    name = json.loads(journal.read_text())["id"]
    again = shown(patient, WIDE, window)
    again.wait(f"run {name} was ended from outside in step 2: U takes back what it had done")
    again.type("U")
    again.wait(f"Take back run {name}")
    again.type("y")
    again.wait("✓ UNDONE")
    assert not difference(before, patient.files())
