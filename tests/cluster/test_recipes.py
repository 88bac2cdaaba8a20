"""What ships for launchers: each recipe says where it goes, the README leads to it, and its language accepts it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import gpudoctor
from tests import needs

RECIPES = Path(gpudoctor.__file__).parent / "recipes"
ALL = sorted(path for path in RECIPES.iterdir() if path.is_file())


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_it_says_where_it_goes_and_the_readme_names_it(path: Path) -> None:
    assert "Where it goes: " in path.read_text()[:600]
    assert f"`{path.name}`" in Path(needs.REPOSITORY, "README.md").read_text()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_plain_shell(path: Path) -> None:
    subprocess.run([needs.program("sh"), "-n", str(path)], check=True)
    checker = [needs.program("shellcheck"), "--shell=sh", str(path)]
    assert subprocess.run(checker, check=False, capture_output=True, text=True).stdout == ""


def test_what_the_ray_snippet_takes_from_gpudoctor_is_there() -> None:
    tree = ast.parse((RECIPES / "ray_train.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_ours(node.value)}
    assert used == {"preflight"}
    assert callable(gpudoctor.preflight)


def _is_ours(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "gpudoctor"
