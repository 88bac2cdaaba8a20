"""What ships for launchers: the language of each accepts it."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import gpudoctor
from tests import needs

RECIPES = Path(gpudoctor.__file__).parent / "app/recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_plain_shell(path: Path) -> None:
    subprocess.run([needs.program("sh"), "-n", str(path)], check=True)
    checker = [needs.program("shellcheck"), "--shell=sh", str(path)]
    assert subprocess.run(checker, check=False, capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize(
    ("recipe", "given", "key"),
    [
        ("slurm-job.sh", {}, "[0-9a-f]{32}"),
        ("slurm-job.sh", {"GPUDOCTOR_JOB_KEY": "ours"}, "ours"),
        ("torchrun.sh", {"GPUDOCTOR_JOB_KEY": "ours"}, "ours"),
    ],
)
def test_the_launcher_is_given_the_key_of_the_job(tmp_path: Path, recipe: str, given: dict[str, str], key: str) -> None:
    for name in ("srun", "torchrun"):
        launcher = tmp_path / name
        launcher.write_text("#!/bin/sh\nprintenv GPUDOCTOR_JOB_KEY\n")
        launcher.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODES": "2", "RENDEZVOUS": "node1:29400", **given}
    started = [needs.program("sh"), str(RECIPES / recipe), "python", "train.py"]
    done = subprocess.run(started, env=env, check=True, capture_output=True, text=True)
    assert re.fullmatch(key, done.stdout.strip())


def test_what_the_ray_snippet_takes_from_gpudoctor_is_there() -> None:
    tree = ast.parse((RECIPES / "ray_train.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_ours(node.value)}
    assert used == {"preflight"}
    assert callable(gpudoctor.preflight)


def _is_ours(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "gpudoctor"
