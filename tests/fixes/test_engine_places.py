"""Environments of other kinds: a Python that is no venv, a user's own site-packages, uv instead of pip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.keeping import environment
from gpudoctor.fixes.keeping.tree import HIDDEN
from gpudoctor.fixes.site import Site
from tests import needs
from tests.fixes import place as places
from tests.fixes.index import Index
from tests.fixes.place import NEW, OLD, Place, difference

pytestmark = pytest.mark.full


@pytest.fixture
def whole(tmp_path: Path, index: Index) -> Place:
    """A Python that is no venv, with torch for processors."""
    whole = Place(tmp_path, index)
    places.own_python(whole.venv)
    whole.install(f"torch=={OLD}")
    return whole


def test_a_python_that_is_no_venv_is_kept_and_put_back(whole: Place) -> None:
    assert not environment.query_environment(whole.python).own
    (whole.venv / "bin/other-tool").write_text("#!/bin/sh\n")
    before = whole.files()
    assert {"share/torch/NOTICE", "bin/torchrun"} <= {name.removeprefix("data/") for name in before}
    run = whole.apply(whole.change())
    assert (run.outcome, run.why) == ("done", "")
    (whole.venv / "bin/newer-tool").write_text("#!/bin/sh\n")  # of another's, beside the environment's commands
    assert whole.undo(run).outcome == "undone"
    assert difference(before, whole.files()) == ["bin/newer-tool"]
    assert f"torch {OLD}" in whole.installed()


def test_a_record_that_lists_what_is_not_its_own_takes_nothing_away(whole: Place) -> None:
    """Of a file outside the prefix neither the run nor its undo takes notice, whoever claims it."""
    outside = whole.folder / "precious"
    outside.write_text("not of any wheel")
    run = whole.apply(whole.change())
    (record,) = whole.venv.glob("lib/*/site-packages/torch-*.dist-info/RECORD")
    with record.open("a") as file:
        file.write(f"../../../../precious,,\n{outside},,\n")
    assert str(outside) in set(environment.record_of(_torch(whole)))
    assert whole.undo(run).outcome == "undone"
    assert outside.read_text() == "not of any wheel"


def _torch(place: Place) -> environment.Distribution:
    return next(
        item for item in environment.installed(environment.query_environment(place.python)) if item.name == "torch"
    )


def as_nobody_special() -> list[str]:
    """What runs a command without root's right to write wherever it likes."""
    if os.geteuid() != 0:
        return []
    return [needs.program("setpriv"), "--bounding-set=-dac_override,-dac_read_search,-fowner"]


def test_the_users_own_site_packages_are_put_back(whole: Place) -> None:
    """Where the site-packages are another's, pip installs for the user: undo takes that away again."""
    home, document = whole.folder / "home", whole.folder / "plan.json"
    home.mkdir()
    index = whole.index.url("cu128")
    argv = (whole.python, "-m", "pip", "install", "--force-reinstall", f"torch=={NEW}", "--index-url", index)
    document.write_text(json.dumps(whole.plan(PlanStep("1", "install", argv, touches="environment")).to_json()))
    next(whole.venv.glob("lib/*/site-packages")).chmod(0o555)

    def driven(*words: str) -> str:
        argv = [*as_nobody_special(), sys.executable, "-m", "tests.fixes.driver", str(whole.folder), *words]
        environ = {**whole.environ, "HOME": str(home)}
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=environ, timeout=600).stdout

    said = driven("apply", str(document))
    assert "worse than before: torch.mixed-installs" in said  # the old one still lies below it
    assert len(list(home.glob(".local/lib/*/site-packages/torch/version.py"))) == 1
    assert "undone" in driven("undo", said.split()[0])
    assert [place for place in (home / ".local").rglob("*") if place.is_file() and HIDDEN not in str(place)] == []


def test_uv_changes_the_environment_that_it_is_told(place: Place) -> None:
    uv = needs.program("uv")
    before = place.files()
    argv = (uv, "pip", "install", "--python", place.python, "--reinstall", f"torch=={NEW}")
    step = PlanStep("1", "uv", (*argv, "--default-index", place.index.url("cu128")), touches="environment")
    run = place.apply(place.plan(step), UV_SYSTEM_PYTHON="1", VIRTUAL_ENV="/nowhere")
    assert (run.outcome, run.why) == ("done", "")
    assert f"torch {OLD} → {NEW}" in run.changed
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_files_that_uv_linked_from_its_cache_come_back(place: Place) -> None:
    """uv links a file into the environment from its cache: there it may be the same inode before and after."""
    uv = needs.program("uv")
    argv = (uv, "pip", "install", "--python", place.python, "--link-mode", "hardlink", "--reinstall")
    index = ("--default-index", place.index.url("cu128"))
    first = PlanStep("1", "uv", (*argv, f"torch=={NEW}", *index), touches="environment")
    place.apply(place.plan(first))
    before = place.files()
    again = PlanStep("1", "uv", (*argv, f"torch=={NEW}", *index), touches="environment")
    gone = PlanStep("2", "uv", (uv, "pip", "uninstall", "--python", place.python, "torch"), touches="environment")
    run = place.apply(place.plan(again, gone))
    assert run.outcome == "done", run.why
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_what_is_installed_is_known_without_pip(place: Place) -> None:
    found = environment.installed(environment.query_environment(place.python))
    assert {f"{item.name} {item.version}" for item in found} == place.installed()
    listed = list(environment.record_of(_torch(place)))
    assert len(listed) > 40
    assert all(Path(path).exists() for path in listed)


def test_a_plan_that_changes_no_environment_needs_no_python(place: Place) -> None:
    site = Site(place.journals.folder, None, place.judge, place.environ)
    plan = Plan("x", "here", (PlanStep("1", "true", ("true",)),))
    (step,) = apply(plan, site, lambda _: None, lambda: "go on").steps
    assert step.state == "done"
