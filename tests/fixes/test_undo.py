"""A run is taken back: the same files, whatever happened in between, and what others did is not destroyed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.fixes.keeping import kept
from gpudoctor.fixes.keeping.tree import HIDDEN
from gpudoctor.fixes.undo import plan_of, undo
from tests.fixes.place import CUDNN, NEW, Place, difference


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
    aside = next((place.venv / HIDDEN).glob("aside-*"))
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
    from tests.fixes.test_engine import python_step

    run = place.apply(place.plan(python_step(1, "print()")))
    with pytest.raises(UsageError, match="changed nothing"):
        place.undo(run)


@pytest.mark.full
def test_of_many_runs_the_last_ones_can_be_taken_back(place: Place) -> None:
    from tests.fixes.place import OLD

    first = place.files()
    runs = []
    for number in range(kept.LAST + 1):
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


def test_an_environment_that_the_run_made_is_removed(place: Place) -> None:
    from gpudoctor.core.plan import PlanStep

    new = place.folder / "new"
    make = PlanStep("1", "venv", (sys.executable, "-m", "venv", "--without-pip", str(new)), touches="environment")
    run = place.apply(place.plan(make))
    assert (new / "pyvenv.cfg").is_file()
    assert plan_of(run, place.site()).steps[0].text.startswith(f"Removes {new}")
    assert place.undo(run).outcome == "undone"
    assert not new.exists()
    assert Path(place.python).exists()
