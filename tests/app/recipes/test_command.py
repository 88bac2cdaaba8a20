"""``gpudoctor recipe``: what is in the package can be found, read and written, and nothing is ever replaced."""

import os
from pathlib import Path

import pytest

from gpudoctor.app.commands import bundled as command
from gpudoctor.core.about import __version__
from tests.app.recipes.node import recipe
from tests.conftest import Program


def test_the_list_says_of_each_what_it_does(called: Program) -> None:
    *lines, empty, how = called("recipe", "list").out.splitlines()
    assert (empty, how) == ("", "gpudoctor recipe show NAME prints one, recipe write NAME DIR writes it.")
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(command.recipe_titles())
    assert max(map(len, lines)) <= 80
    assert all(title.endswith(".") and len(title) > 30 for title in command.recipe_titles().values())


@pytest.mark.parametrize("name", command.recipe_titles())
def test_each_can_be_shown_and_is_written_as_it_is_shown(called: Program, tmp_path: Path, name: str) -> None:
    shown = called("recipe", "show", name)
    assert shown.code == 0
    assert "Where it goes: " in shown.out
    assert "@VERSION@" not in shown.out
    written = recipe(name, tmp_path)
    files = [written] if written.is_file() else sorted(path for path in written.rglob("*") if path.is_file())
    assert files
    for file in files:
        assert file.read_text().strip() in shown.out
        assert os.access(file, os.X_OK) == file.read_text().startswith("#!")


def test_what_installs_gpudoctor_pins_the_version_that_wrote_it(called: Program) -> None:
    shown = called("recipe", "show", "cloud-init")
    assert f"VERSION={__version__}\n" in shown.out


def test_what_is_there_is_left_as_it_is_and_nothing_is_written_beside_it(called: Program, tmp_path: Path) -> None:
    (tmp_path / "packer").mkdir()
    own = tmp_path / "packer/gate.sh"
    own.write_text("mine")
    refused = called("recipe", "write", "packer", str(tmp_path))
    assert refused.code == 2
    assert f"{own} is there already" in refused.err
    assert own.read_text() == "mine"
    assert [path.name for path in own.parent.iterdir()] == ["gate.sh"]


def test_a_name_that_is_none_is_answered_with_those_there_are(called: Program) -> None:
    refused = called("recipe", "show", "chef")
    assert (refused.code, refused.out) == (2, "")
    assert "'chef' is no recipe; available: Dockerfile" in refused.err
    assert called("recipe", "show", "prolog").err.endswith("; did you mean slurm-prolog.sh?\n")
