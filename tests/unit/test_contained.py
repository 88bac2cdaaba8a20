"""The real program on sick environments: an answer, every other fact there, nothing left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.processes import left, marked

PATIENCE = {"GPUDOCTOR_NVML_TIMEOUT": "1", "GPUDOCTOR_TORCH_TIMEOUT": "4"}
"""What hangs here never answers: it is given up sooner."""


class Sick:
    """An environment of stubs: a Python with a torch of our making, programs first on PATH."""

    def __init__(self, folder: Path, program: Program) -> None:
        self.folder = folder
        self.program = program
        self.mark = f"contained-{os.getpid()}-{folder.name}"
        (folder / "bin").mkdir()
        self.python = folder / "bin" / "python"
        self.script("python", f'PYTHONPATH="{folder}/site" exec "{sys.executable}" -S "$@"')

    def script(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def torch(self, source: str) -> None:
        package = self.folder / "site/torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        (package / "version.py").write_text("__version__ = '2.7.1+cu128'\ncuda = '12.8'\nhip = None\n")

    def check(self, level: str = "standard") -> Any:
        """The document of a check that came to its end."""
        run = self.program(
            *("check", "--json", "--level", level, "--python", str(self.python)),
            timeout=120,
            env={"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "MARK": self.mark, **PATIENCE},
        )
        assert run.code in {0, 1, 3}, run.err
        assert run.document["schema"] == "gpudoctor/1"
        return run.document


@pytest.fixture
def sick(tmp_path: Path, gpudoctor: Program) -> Iterator[Sick]:
    patient = Sick(tmp_path, gpudoctor)
    yield patient
    assert left(lambda: list(map(str, marked(patient.mark)))) == []


def value(document: Mapping[str, Any], name: str) -> object:
    fact = document["facts"][name]
    assert "value" in fact, (name, fact)
    return fact["value"]


ASKED_HERE = ("nvml.", "gpu", "live", "driver.", "torch.", "text")
"""What a sick torch, NVML or nvidia-smi may well change; every other fact must come through."""


@pytest.fixture(scope="module")
def usual(gpudoctor: Program) -> frozenset[str]:
    """The facts that a check answers on this machine where nothing is sick."""
    facts = gpudoctor("check", "--json", "--level", "quick", "--python", sys.executable).document["facts"]
    return frozenset(name for name, fact in facts.items() if "unread" not in fact and not name.startswith(ASKED_HERE))


def unread(document: Mapping[str, Any], usual: frozenset[str]) -> dict[str, object]:
    """Of the usual facts, those that this check could not answer."""
    facts = document["facts"]
    return {name: facts.get(name) for name in usual if "unread" in facts.get(name, {"unread": "missing"})}


def test_a_sick_torch_that_leaves_a_child_is_contained(sick: Sick, usual: frozenset[str]) -> None:
    sick.torch("import ctypes, subprocess\nsubprocess.Popen(['sleep', '600'])\nctypes.string_at(0)")
    document = sick.check()
    assert value(document, "live.import_outcome") == "crashed"
    assert "SIGSEGV" in str(value(document, "live.import_error"))
    assert unread(document, usual) == {}


def why_no_gpu(document: Mapping[str, Any]) -> str:
    """Why no GPU is listed: unread, or absent where the PCI bus shows none; either names what went wrong."""
    fact = document["facts"]["gpu"]
    assert isinstance(fact, dict), "nobody listed GPUs that could be believed"
    return str(fact.get("unread") or fact["absent"])


def test_an_nvidia_smi_that_ignores_term_is_contained(sick: Sick, usual: frozenset[str]) -> None:
    sick.script("nvidia-smi", "trap '' TERM INT HUP\nwhile :; do sleep 600; done")
    document = sick.check()
    assert value(document, "nvml.state") == "library not found"
    assert "nvidia-smi" in why_no_gpu(document)
    assert unread(document, usual) == {}


def test_level_quick_never_imports_torch(sick: Sick, tmp_path: Path) -> None:
    sick.torch(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    document = sick.check("quick")
    assert not (tmp_path / "imported").exists()
    assert document["facts"]["live.import_outcome"] == {"unread": "asked from level standard on", "asked": False}
    sick.check("standard")
    assert (tmp_path / "imported").exists(), "the trap itself must work"
