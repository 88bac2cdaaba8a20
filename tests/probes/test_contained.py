"""The real program on sick environments: an answer, every other fact there, nothing left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.processes import left, marked


class Sick:
    """An environment of stubs: a Python with a torch of our making."""

    def __init__(self, folder: Path, program: Program) -> None:
        self.folder = folder
        self.program = program
        self.mark = f"contained-{os.getpid()}-{folder.name}"
        self.python = folder / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/site" exec "{sys.executable}" -S "$@"\n')
        self.python.chmod(0o755)

    def torch(self, source: str) -> None:
        package = self.folder / "site/torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        (package / "version.py").write_text("__version__ = '2.7.1+cu128'\ncuda = '12.8'\nhip = None\n")

    def check(self, level: str = "standard") -> dict[str, Any]:
        """The facts of a check that came to its end."""
        words = ("check", "--json", "--level", level, "--python", str(self.python))
        run = self.program(*words, timeout=600, env={"MARK": self.mark})
        assert run.code in {0, 1, 3}, run.err
        facts: dict[str, Any] = run.document["facts"]
        return facts


@pytest.fixture
def sick(tmp_path: Path, gpudoctor: Program) -> Iterator[Sick]:
    patient = Sick(tmp_path, gpudoctor)
    yield patient
    assert left(lambda: list(map(str, marked(patient.mark)))) == []


ASKED_HERE = ("nvml.", "gpu", "live", "driver.", "torch.", "text")
"""What a sick torch may well change; every other fact must come through."""


def test_a_sick_torch_that_leaves_a_child_is_contained(sick: Sick, gpudoctor: Program) -> None:
    sick.torch("import ctypes, subprocess\nsubprocess.Popen(['sleep', '600'])\nctypes.string_at(0)")
    facts = sick.check()
    assert facts["live.import_outcome"]["value"] == "crashed"
    assert "SIGSEGV" in facts["live.import_error"]["value"]
    sound = gpudoctor("check", "--json", "--level", "quick", "--python", sys.executable).document["facts"]
    usual = [name for name, fact in sound.items() if "unread" not in fact and not name.startswith(ASKED_HERE)]
    assert [name for name in usual if "unread" in facts.get(name, {"unread": "missing"})] == []


def test_level_quick_never_imports_torch(sick: Sick, tmp_path: Path) -> None:
    sick.torch(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    facts = sick.check("quick")
    assert not (tmp_path / "imported").exists()
    assert facts["live.import_outcome"]["reason"] == "needs_standard"
    sick.check("standard")
    assert (tmp_path / "imported").exists(), "the trap itself must work"
