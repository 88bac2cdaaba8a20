"""What ships for launchers: the language of each accepts it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import gpudoctor
from tests import needs

RECIPES = Path(gpudoctor.__file__).parent / "recipes"


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
