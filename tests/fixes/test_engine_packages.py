"""The system's packages: what a step changed is told in words and taken back by commands."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.plan import Plan, PlanStep, Way
from gpudoctor.core.run import Run
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.site import Site
from gpudoctor.fixes.steps import packages
from gpudoctor.fixes.undo import plan_of, undo
from tests import needs
from tests.fixes.place import Place

pytestmark = pytest.mark.full

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
def debian(place: Place) -> tuple[Site, Path]:
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


def applied(site: Site) -> Run:
    """A newer driver, which takes the place of a package, and a module that is loaded."""
    argv = ("apt-get", "install", "-y", "nvidia-driver", "nvidia-open", "nvidia-legacy-")
    needs_root = {"needs": ("root",), "touches": "system", "cause": "driver.x", "way": 1}
    load = PlanStep("2", "modprobe nvidia", ("true",), **needs_root)  # type: ignore[arg-type]
    install = PlanStep("1", "apt-get install", argv, **needs_root)  # type: ignore[arg-type]
    plan = Plan("driver.x", "here", (install, load), (Way("driver.x", 1, "Newer driver", "modprobe -r nvidia"),))
    return apply(plan, site, lambda _: None, lambda: "go on")


def test_what_a_step_changed_in_the_system_is_told_and_taken_back(debian: tuple[Site, Path]) -> None:
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


def test_without_root_the_way_back_is_shown_and_not_taken(debian: tuple[Site, Path]) -> None:
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


def test_a_run_that_was_killed_in_the_middle_is_told_by_what_differs_now(debian: tuple[Site, Path]) -> None:
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
    assert list(packages.revert_commands(manager, before, after)) == commands


def test_a_name_that_is_none_is_no_word_of_a_command() -> None:
    assert packages.revert_commands("apt-get", {}, {"--purge": "1", "a b": "1", "x;reboot": "1"}) == ()
    assert packages.revert_commands("apt-get", {"x": "1 --force"}, {"x": "2"}) == ()


def test_the_packages_of_this_machine_are_read() -> None:
    query = needs.program("dpkg-query")
    found = packages.installed()
    assert found
    assert found.manager == "apt-get"
    mine = subprocess.check_output([query, "-W", "-f", "${Version}", "dpkg"], text=True)
    assert found.versions["dpkg"] == mine
