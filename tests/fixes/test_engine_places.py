"""Environments of other kinds, and the system's packages: a Python that is no venv, uv instead of pip, apt and dnf."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.plan import Plan, PlanStep, Way
from gpudoctor.core.run import Run
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.backup import environment
from gpudoctor.fixes.backup.tree import STORES
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.fixes.steps import system_packages
from gpudoctor.fixes.undo import plan_of, undo
from tests import needs
from tests.conftest import Once
from tests.fixes import place as places
from tests.fixes.index import Index
from tests.fixes.place import NEW, OLD, Place, difference

pytestmark = pytest.mark.full


@pytest.fixture
def whole(tmp_path: Path, once: Once, index: Index) -> Place:
    """A Python that is no venv, with torch for processors."""
    whole = Place.made(tmp_path, once("own", places.own_python), index)
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
    home = whole.folder / "home"
    home.mkdir()
    index = whole.index.url("cu128")
    argv = (whole.python, "-m", "pip", "install", "--force-reinstall", f"torch=={NEW}", "--index-url", index)
    *driver, apply, document = whole.driving(whole.plan(PlanStep("1", "install", argv, touches="environment")))
    next(whole.venv.glob("lib/*/site-packages")).chmod(0o555)

    def driven(*words: str) -> str:
        environ = {**whole.environ, "HOME": str(home)}
        argv = [*as_nobody_special(), *driver, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=environ, timeout=600).stdout

    said = driven(apply, document)
    assert "worse than before: torch.mixed-installs" in said  # the old one still lies below it
    assert len(list(home.glob(".local/lib/*/site-packages/torch/version.py"))) == 1
    assert "undone" in driven("undo", said.split()[0])
    assert [place for place in (home / ".local").rglob("*") if place.is_file() and STORES not in str(place)] == []


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
    site = RunContext(place.journals.folder, None, place.judge, place.environ)
    plan = Plan("x", "here", (PlanStep("1", "true", ("true",)),))
    (step,) = apply(plan, site, lambda _: None, lambda: "go on").steps
    assert step.state == "done"


APT = """#!/usr/bin/env python3
# apt-get as far as it is needed: NAME=VERSION installs, NAME- removes, NAME installs what is newest.
import json, pathlib, sys
place = pathlib.Path(__file__).with_name("installed.json")
installed = json.loads(place.read_text())
for word in sys.argv[2:]:
    name, _, version = word.partition("=")
    if word.endswith("-"):
        del installed[word[:-1]]
    elif not word.startswith("-"):
        installed[name] = version or "570.1-1"
place.write_text(json.dumps(installed))
print("Setting up", *sys.argv[2:])
"""
QUERY = """#!/usr/bin/env python3
import json, pathlib
for name, version in json.loads(pathlib.Path(__file__).with_name("installed.json").read_text()).items():
    print(f"ii \\t{name}\\t{version}")
"""
BEFORE = {"libc6:amd64": "2.36-9", "nvidia-driver": "535.1-1", "nvidia-legacy": "1-1"}


@pytest.fixture
def debian(place: Place) -> tuple[RunContext, Path]:
    """A place with a package manager of its own, and the file in which that keeps what is installed."""
    programs = place.folder / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-query", QUERY)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    state = programs / "installed.json"
    state.write_text(json.dumps(BEFORE))
    path = f"{programs}:{place.environ['PATH']}"
    return replace(place.site(), root=True, environ={**place.environ, "PATH": path}), state


def applied(site: RunContext) -> Run:
    """A newer driver, which takes the place of a package, and a module that is loaded."""
    argv = ("apt-get", "install", "-y", "nvidia-driver", "nvidia-open", "nvidia-legacy-")
    needs_root = {"needs": ("root",), "touches": "system", "cause": "driver.x", "way": 1}
    load = PlanStep("2", "modprobe nvidia", ("true",), **needs_root)  # type: ignore[arg-type]
    install = PlanStep("1", "apt-get install", argv, **needs_root)  # type: ignore[arg-type]
    plan = Plan("driver.x", "here", (install, load), (Way("driver.x", 1, "Newer driver", "modprobe -r nvidia"),))
    return apply(plan, site, lambda _: None, lambda: "go on")


def test_what_a_step_changed_in_the_system_is_told_and_taken_back(debian: tuple[RunContext, Path]) -> None:
    site, state = debian
    run = applied(site)
    assert run.outcome == "done"
    assert run.changed == (
        "nvidia-driver 535.1-1 → 570.1-1 (system)",
        "nvidia-legacy 1-1 → removed (system)",
        "nvidia-open not installed → 570.1-1 (system)",
    )
    back = undo(run, site, lambda _: None, lambda: "go on")
    assert back.outcome == "undone"
    assert json.loads(state.read_text()) == BEFORE
    assert back.why == "left to you: by hand: modprobe nvidia (modprobe -r nvidia)"


def test_without_root_the_way_back_is_shown_and_not_taken(debian: tuple[RunContext, Path]) -> None:
    site, state = debian
    run = applied(site)
    then = state.read_text()
    user = replace(site, root=False)
    with pytest.raises(UsageError, match="can be taken back from here"):
        undo(run, user, lambda _: None, lambda: "go on")
    assert state.read_text() == then
    assert plan_of(run, site).steps[0].argv == (
        *("apt-get", "install", "-y", "--allow-downgrades"),
        *("nvidia-driver=535.1-1", "nvidia-legacy=1-1", "nvidia-open-"),
    )


def test_a_run_that_was_killed_in_the_middle_is_told_by_what_differs_now(debian: tuple[RunContext, Path]) -> None:
    site, state = debian
    run = applied(site)
    for place in site.journals.glob(f"{run.id}/system-after-*"):
        place.unlink()
    assert undo(run, site, lambda _: None, lambda: "go on").outcome == "undone"
    assert json.loads(state.read_text()) == BEFORE


@pytest.mark.parametrize(
    ("manager", "commands"),
    [
        ("dnf", [("dnf", "remove", "-y", "new.x86_64"), ("dnf", "install", "-y", "old-0:1-1.x86_64")]),
        (
            "zypper",
            [
                ("zypper", "--non-interactive", "remove", "new.x86_64"),
                ("zypper", "--non-interactive", "install", "--oldpackage", "old.x86_64=0:1-1"),
            ],
        ),
    ],
)
def test_each_package_manager_has_its_words(manager: str, commands: list[tuple[str, ...]]) -> None:
    before, after = {"old.x86_64": "0:1-1"}, {"old.x86_64": "0:2-1", "new.x86_64": "0:1-1"}
    assert list(system_packages.revert_commands(manager, before, after)) == commands


def test_one_version_beside_another_is_removed_again(tmp_path: Path) -> None:
    """As rpm has kernels and their headers: each version is a package, listed in no order."""
    lines = "ii\tkernel-devel.x86_64\t0:5-2\nii\tbash.x86_64\t0:5-1\nii\tkernel-devel.x86_64\t0:5-1\n"
    for name, text in (("dnf", ""), ("rpm", f"printf '{lines}'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found = system_packages.installed({"PATH": str(tmp_path)})
    assert found
    before = {"kernel-devel.x86_64": "0:5-1", "bash.x86_64": "0:5-1"}
    assert system_packages.changes(before, found.versions) == ("kernel-devel.x86_64 0:5-1 → 0:5-1, 0:5-2 (system)",)
    assert system_packages.revert_commands("dnf", before, found.versions) == (
        ("dnf", "remove", "-y", "kernel-devel-0:5-2.x86_64"),
    )
    assert system_packages.revert_commands("dnf", found.versions, before) == (
        ("dnf", "install", "-y", "kernel-devel-0:5-2.x86_64"),
    )


def test_a_name_that_is_none_is_no_word_of_a_command() -> None:
    assert system_packages.revert_commands("apt-get", {}, {"--purge": "1", "a b": "1", "x;reboot": "1"}) == ()
    assert system_packages.revert_commands("apt-get", {"x": "1 --force"}, {"x": "2"}) == ()


def test_the_packages_of_this_machine_are_read() -> None:
    query = needs.program("dpkg-query")
    found = system_packages.installed()
    assert found
    assert found.manager == "apt-get"
    mine = subprocess.check_output([query, "-W", "-f", "${Version}", "dpkg"], text=True)
    assert found.versions["dpkg"] == mine
