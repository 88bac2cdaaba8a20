"""The house is in order: lint, format, types and the direction of imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

_BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        [str(_BIN / "ruff"), "check", "."],
        [str(_BIN / "ruff"), "format", "--check", "."],
        pytest.param([str(_BIN / "mypy"), "--no-error-summary"], marks=pytest.mark.full),  # a minute without its cache
        pytest.param(
            [str(_BIN / "mypy"), "--platform=win32", "--no-error-summary", "gpudoctor"], marks=pytest.mark.full
        ),
        [str(_BIN / "lint-imports"), "--no-cache"],
    ],
    ids=lambda command: Path(command[0]).name + " " + command[1],
)
def test_the_checks_are_green(command: list[str]) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
