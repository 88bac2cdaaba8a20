"""A disk that is full, mounted read-only, or without hard links: said in words, and taken back."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core import run as runs
from gpudoctor.core.plan import PlanStep
from gpudoctor.core.run import Run
from tests import needs
from tests.fixes.place import NEW, OLD, Place, difference, files_of

_MIB = 1 << 20


def on_a_small_disk(place: Place, size: int, script: str) -> str:
    """Run a script where ``disk`` in the place's folder is a file system of `size` MiB with the environment in it."""
    if os.geteuid() != 0:
        needs.missing("root, to mount a small file system")
    unshare = needs.program("unshare")
    disk = place.folder / "disk"
    disk.mkdir()
    # A mount namespace of its own: the mount goes with the process.
    lines = f"mount -t tmpfs -o size={size}m none {disk} && cp -a {place.venv} {disk}/venv && {script}"
    argv = [unshare, "--mount", "--propagation", "private", "sh", "-c", lines]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


def driver(folder: Path, *words: str) -> str:
    return " ".join((sys.executable, "-m", "tests.fixes.driver", str(folder), *words))


def plan_on_disk(place: Place, *steps: PlanStep) -> Path:
    """The plan for the environment on the small disk."""
    document = place.folder / "plan.json"
    document.write_text(json.dumps(place.plan(*steps).to_json()).replace(str(place.venv), f"{place.folder}/disk/venv"))
    return document


def record(runs_folder: Path) -> Run:
    """The only run's."""
    (place,) = runs_folder.glob("*/run.json")
    return runs.from_json(json.loads(place.read_text("utf-8")))


def size_of(place: Place) -> int:
    return int(subprocess.check_output(["du", "-sm", str(place.venv)]).split()[0])


def test_without_room_to_keep_it_nothing_is_changed(place: Place) -> None:
    document = plan_on_disk(place, *place.change().steps)
    disk = place.folder / "disk"
    script = f"{driver(disk, 'apply', str(document))}; cp -a {disk}/runs {place.folder}/found"
    said = on_a_small_disk(place, size_of(place) + 20, script)
    assert "no room to keep" in said
    run = record(place.folder / "found")
    assert ([step.state for step in run.steps], run.over) == (["failed", "waits"], True)
    assert run.steps[0].status is None


@pytest.mark.full
def test_a_disk_that_fills_up_in_the_middle_is_said_and_taken_back(place: Place) -> None:
    fill = f"import os; f = open('{place.venv}/filler', 'wb'); [f.write(bytes({_MIB})) for _ in iter(int, 1)]"
    step = PlanStep("1", "fill", (place.python, "-c", fill), touches="environment")
    document = plan_on_disk(place, step, place.change().steps[1])
    disk, found = place.folder / "disk", place.folder / "found"
    script = (
        f"{driver(disk, 'apply', str(document))}; mkdir {found}; cp -a {disk}/runs {found}/full; "
        f"{driver(disk, 'undo', '$(ls ' + str(disk) + '/runs)')}; cp -a {disk}/venv {found}/venv"
    )
    said = on_a_small_disk(place, size_of(place) * 2 + 110, script)
    assert "undone" in said, said
    run = record(found / "full")
    assert ([step.state for step in run.steps], run.over) == (["failed", "waits"], True)
    assert run.why.endswith(os.strerror(errno.ENOSPC))
    assert difference(files_of(place.venv), files_of(found / "venv")) == []


def test_an_environment_that_is_mounted_read_only_is_refused(place: Place) -> None:
    document = plan_on_disk(place, *place.change().steps)
    disk = place.folder / "disk"
    said = on_a_small_disk(place, 200, f"mount -o remount,ro {disk}; {driver(disk, 'apply', str(document))}")
    assert "disk/venv cannot be written to (mounted read-only)" in said


@pytest.mark.full
def test_where_no_links_can_be_made_files_are_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    before = place.files()
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)  # what a file system without links says
        run = place.apply(place.change())
    library = next(place.venv.glob("lib/*/site-packages/torch/lib/*.so"))
    library.write_bytes(b"rewritten")
    assert f"torch {NEW}" in place.installed()
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []
    assert f"torch {OLD}" in place.installed()
