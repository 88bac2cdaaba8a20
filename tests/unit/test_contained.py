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


@pytest.mark.parametrize(
    ("source", "state", "error"),
    [
        ("import ctypes\nctypes.string_at(0)", "crashed", "SIGSEGV"),
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "error", "OSError: libcudart.so.13"),
        ("import subprocess\nsubprocess.Popen(['sleep', '600'])\nraise ImportError('x')", "error", "ImportError"),
    ],
    ids=["segfaults", "lacks a library", "leaves a child"],
)
def test_a_sick_torch_is_contained(sick: Sick, usual: frozenset[str], source: str, state: str, error: str) -> None:
    sick.torch(source)
    document = sick.check()
    assert value(document, "live.import_outcome") == state
    assert error in str(value(document, "live.import_error"))
    assert value(document, "live.last_step") == "import torch"
    assert "unread" in document["facts"]["live.cuda_available"]
    assert unread(document, usual) == {}


def test_a_torch_that_hangs_is_not_judged_and_no_cure_is_named(sick: Sick, usual: frozenset[str]) -> None:
    sick.torch("import time\ntime.sleep(600)")
    document = sick.check()
    because = {rule["id"]: rule["because"] for rule in document["unjudged"]}
    assert "given up after" in because["torch.import-failed"]
    assert not [one for one in document["findings"] if one["id"].startswith("torch.import")]
    assert unread(document, usual) == {}


SMI = {
    "hangs and ignores TERM": "trap '' TERM INT HUP\nwhile :; do sleep 600; done",
    "never stops printing": "yes",
}


def why_no_gpu(document: Mapping[str, Any]) -> str:
    """Why no GPU is listed: unread, or absent where the PCI bus shows none; either names what went wrong."""
    fact = document["facts"]["gpu"]
    assert isinstance(fact, dict), "nobody listed GPUs that could be believed"
    return str(fact.get("unread") or fact["absent"])


@pytest.mark.parametrize("body", SMI.values(), ids=SMI.keys())
def test_a_sick_nvidia_smi_is_contained_and_never_believed(sick: Sick, usual: frozenset[str], body: str) -> None:
    sick.script("nvidia-smi", body)
    document = sick.check()
    assert value(document, "nvml.state") == "library not found"
    assert "nvidia-smi" in why_no_gpu(document)
    assert "text" not in document["facts"] or "nonsense" not in str(document["facts"]["text"])
    assert unread(document, usual) == {}


def test_level_quick_never_imports_torch(sick: Sick, tmp_path: Path) -> None:
    sick.torch(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    document = sick.check("quick")
    assert not (tmp_path / "imported").exists()
    assert document["facts"]["live.import_outcome"] == {"unread": "asked from level standard on", "asked": False}
    sick.check("standard")
    assert (tmp_path / "imported").exists(), "the trap itself must work"
