"""A run is taken back: the same files, whatever happened since, on a disk that is full, read-only or without links."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from gpudoctor.core import run as runs
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.plan import PlanStep
from gpudoctor.core.run import Run
from gpudoctor.fixes.backup import backup
from gpudoctor.fixes.backup.tree import STORES
from gpudoctor.fixes.undo import plan_of, undo
from tests import needs
from tests.fixes.place import CUDNN, NEW, OLD, Place, difference, files_of


def test_odd_names_links_and_modes_come_back(place: Place) -> None:
    site = place.venv / "lib"
    odd = os.fsencode(site) + b"/new\nline \xff and 'quotes'"
    with open(odd, "wb") as file:  # noqa: PTH123
        file.write(b"kept")
    os.chmod(odd, 0o400)  # noqa: PTH101
    (site / "dangling").symlink_to("../nowhere")
    (site / "locked").mkdir()
    (site / "locked/inside").write_text("x")
    (site / "locked").chmod(0o500)
    before = place.files()
    run = place.apply(place.change())
    os.unlink(odd)  # noqa: PTH108
    (site / "dangling").unlink()
    (site / "dangling").mkdir()
    (site / "dangling/x").write_text("a folder now")
    (site / "locked").chmod(0o700)
    (site / "locked/inside").unlink()
    back = place.undo(run)
    assert (back.outcome, back.why) == ("undone", "")
    assert difference(before, place.files()) == []


@pytest.mark.full
def test_what_others_changed_since_is_moved_aside_and_named(place: Place) -> None:
    before = place.files()
    run = place.apply(place.change())
    module = next(place.venv.glob("lib/*/site-packages/torch/version.py"))
    module.write_text("mine")
    (place.venv / "notes.txt").write_text("do not lose")
    back = place.undo(run)
    assert difference(before, place.files()) == []
    aside = next((place.venv / STORES).glob("aside-*"))
    assert (aside / "notes.txt").read_text() == "do not lose"
    assert (aside / module.relative_to(place.venv)).read_text() == "mine"
    said = "\n".join(back.steps[0].output.lines)
    assert str(aside) in said
    assert "notes.txt" in said


@pytest.mark.full
def test_a_small_file_that_was_edited_in_place_comes_back(place: Place) -> None:
    config = place.venv / "pyvenv.cfg"
    before = place.files()
    run = place.apply(place.change())
    with config.open("a") as file:
        file.write("edited = yes\n")
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


@pytest.mark.full
def test_a_large_file_that_was_rewritten_in_place_is_named(place: Place) -> None:
    library = place.venv / "large.bin"
    library.write_bytes(bytes(100_000))
    run = place.apply(place.change())
    with library.open("r+b") as file:
        file.write(b"patched")
    os.utime(library, (1, 1))
    back = place.undo(run)
    assert back.outcome == "stopped"
    said = "(rewritten in place: only its package, installed anew, brings it back)"
    assert back.why == f"not as before, 1 in all: {library} {said}"


@pytest.mark.full
def test_undo_of_what_was_undone_is_refused(place: Place) -> None:
    run = place.apply(place.change())
    back = place.undo(run)
    with pytest.raises(UsageError, match=f"taken back already, by run {back.id}"):
        place.undo(run)
    with pytest.raises(UsageError, match="make its plan anew"):
        place.undo(back)


@pytest.mark.full
def test_an_undo_that_was_stopped_goes_on(place: Place) -> None:
    before = place.files()
    run = place.apply(place.change())
    asked: list[int] = []

    def after_some() -> str:
        asked.append(1)
        return "now" if len(asked) > 60 else "go on"

    half = undo(run, place.site(), lambda _: None, after_some)  # type: ignore[arg-type]
    assert (half.outcome, half.steps[0].state) == ("stopped", "stopped")
    assert difference(before, place.files()) != []
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_a_run_that_changed_nothing_has_nothing_to_take_back(place: Place) -> None:
    run = place.apply(place.plan(PlanStep("1", "print", (sys.executable, "-c", "print()"), touches="hardware")))
    with pytest.raises(UsageError, match="changed nothing"):
        place.undo(run)


@pytest.mark.full
def test_of_many_runs_the_last_ones_can_be_taken_back(place: Place) -> None:
    first = place.files()
    runs = []
    for number in range(backup.MOST_BACKUPS + 1):
        shelf, version = (("cu128", NEW), ("cpu", OLD))[number % 2]
        step = place.step(1, "install", f"torch=={version}", "--index-url", place.index.url(shelf))
        runs.append(place.apply(place.plan(step)))
    assert any("Dropped what was kept" in line for line in runs[-1].steps[0].output.lines)
    with pytest.raises(DoctorError, match="is gone"):
        place.undo(runs[0])
    place.undo(runs[1])
    assert f"torch {NEW}" in place.installed()
    assert CUDNN in {name.split()[0] for name in place.installed()}
    assert difference(first, place.files()) != []


def test_where_no_new_copy_can_be_written_the_former_ones_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for number in range(backup.MOST_BACKUPS):
        shelf, version = (("cu128", NEW), ("cpu", OLD))[number % 2]
        step = place.step(1, "install", f"torch=={version}", "--index-url", place.index.url(shelf))
        runs.append(place.apply(place.plan(step)))

    def create(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(backup, "create", create)
    assert place.apply(place.plan(step)).outcome != "done"
    assert place.undo(runs[0]).outcome == "undone"


def test_an_environment_that_the_run_made_is_removed(place: Place) -> None:
    new = place.folder / "new"
    make = PlanStep("1", "venv", (sys.executable, "-m", "venv", "--without-pip", str(new)), touches="environment")
    run = place.apply(place.plan(make))
    assert (new / "pyvenv.cfg").is_file()
    assert plan_of(run, place.site()).steps[0].text.startswith(f"Removes {new}")
    assert place.undo(run).outcome == "undone"
    assert not new.exists()
    assert Path(place.python).exists()


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
    return " ".join((sys.executable, "-m", "tests.fixes.place", str(folder), *words))


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
