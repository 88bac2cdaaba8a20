"""``gpudoctor recipe``: what is in the package can be found, read and written, and nothing is ever replaced."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gpudoctor.app.commands import bundled as command
from gpudoctor.core.about import __version__
from gpudoctor.views._terminal import width
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


_WORDS = r"\b(?!(?:gpudoctor|kubectl|pip|RUN|scontrol|sh)\b)[A-Za-z]{2,}(?: [a-z]{2,}){2}\b"
ENGLISH = re.compile(rf"""(?!# {{5,}}[A-Za-z])(?:.*#(?!!)|(?= *\"""|[|A-Z][^=]*$)).*{_WORDS}""")
"""A line with a comment, or prose, that has three words of English in a row which are no command."""


@pytest.mark.parametrize("name", command.recipe_titles())
def test_in_chinese_its_comments_are_chinese_and_what_it_does_is_the_same(
    called: Program, tmp_path: Path, name: str
) -> None:
    written = {}
    for lang in ("en", "zh"):
        assert called("recipe", "write", name, str(tmp_path / lang), "--lang", lang).code == 0
        files = sorted(path for path in (tmp_path / lang).rglob("*") if path.is_file())
        written[lang] = {path.relative_to(tmp_path / lang): path.read_text("utf-8") for path in files}
    assert called("recipe", "list", "--lang", "zh").out.count("。") >= len(command.recipe_titles())
    assert list(written["zh"]) == list(written["en"])
    for path, text in written["zh"].items():
        chinese = [line for line in text.splitlines() if re.search(r"[\u4e00-\u9fff]", line)]
        assert not [line for line in text.splitlines() if ENGLISH.match(line)]
        assert all(width(line) <= 120 or line.startswith("|") for line in chinese)
        if path.suffix != ".md":
            assert _code(path, text) == _code(path, written["en"][path])
    for script in (tmp_path / "zh").rglob("*.sh"):
        assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


def _code(path: Path, text: str) -> list[str]:
    """The lines without comments, those of a Python module as kinds of nodes; all YAML is read."""
    if path.suffix == ".py":
        return [type(node).__name__ for node in ast.walk(ast.parse(text))]
    if path.suffix == ".yaml":
        assert list(yaml.safe_load_all(text))
    return [code for line in text.splitlines() if (code := re.sub(r"(?:^|\s+)#(?!!)[ #].*|^ *#$", "", line).rstrip())]


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
