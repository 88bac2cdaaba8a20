"""What a start costs, counted in modules: what is slow to import is imported by whoever needs it."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.app.arguments import COMMANDS, parser

HEAVY = {
    "asyncio",
    "concurrent.futures",
    "ctypes",
    "decimal",
    "email",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "multiprocessing",
    "mcp",
    "pkg_resources",
    "pygments",
    "pynvml",
    "rich",
    "ruamel",
    "sqlite3",
    "ssl",
    "statistics",
    "textual",
    "tomllib",
    "torch",
    "unittest",
    "urllib.request",
    "xml",
    "yaml",
}
"""Not one of them is needed to read a machine and judge it."""


def imported(folder: Path, *words: str) -> set[str]:
    """The modules of a run that has run before: pages are compiled by the first."""
    environ = {**os.environ, "GPUDOCTOR_STATE": str(folder), "PATH": "/usr/bin:/bin"}
    for _ in range(2):
        argv = [sys.executable, "-X", "importtime", "-m", "gpudoctor", *words]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600, env=environ)
        assert done.returncode in (0, 1, 3), done.stderr[-400:]
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


def test_the_version_is_told_without_the_program(tmp_path: Path) -> None:
    ours = {name for name in imported(tmp_path, "--version") if name.startswith("gpudoctor")}
    assert ours == {"gpudoctor", "gpudoctor.core", "gpudoctor.core.about"}


def test_a_quick_diagnosis_imports_nothing_heavy(tmp_path: Path) -> None:
    found = imported(tmp_path, "check", "--level", "quick", "--json")
    assert "gpudoctor.diagnosis.judge" in found
    assert not HEAVY & found
    assert not {
        name for name in found if name.startswith(("gpudoctor.readers", "gpudoctor.fixes", "gpudoctor.views.tui"))
    }
    assert len(found) < 420


@pytest.mark.parametrize("command", COMMANDS)
def test_one_command_alone_takes_the_words_that_it_takes_among_all(command: str) -> None:
    assert _help(parser(command), command) == _help(parser(), command)


def _help(top: argparse.ArgumentParser, command: str) -> str:
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    text: str = commands.choices[command].format_help()
    return text
