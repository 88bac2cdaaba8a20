"""One file runs wherever there is Python 3.10 or newer, and says what an installation says."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pyz
from gpudoctor.core.errors import UsageError
from tests.app.packaging.shelf import PYTHONS, bare
from tests.conftest import Program
from tests.needs import REPOSITORY
from tests.probes.nvml_machine import h100, simulated
from tests.processes import Ran, finished
from tests.views.tui.terminal import LEFT, Terminal

pytestmark = pytest.mark.full

REPORT = "PyTorch version: 2.9.0+cpu\nIs CUDA available: False\nGPU models and configuration: GPU 0: NVIDIA H100\n"


def run(file: Path, *words: str, python: str = sys.executable, env: dict[str, str], stdin: str = "") -> Ran:
    """The file in that Python, isolated from what is installed there."""
    argv = [python, "-I", "-S", str(file), *words]
    return finished(argv, input=stdin, env=env)


def judged(document: Any) -> Any:
    """What was found and what could not be judged: the rest of two runs differs by the clock."""
    return document["verdict"], [one["id"] for one in document["findings"]], [one["id"] for one in document["unjudged"]]


@pytest.mark.parametrize("version", PYTHONS)
def test_a_node_with_only_python_is_diagnosed_and_nothing_is_written_there(
    version: str, lean: Path, gpudoctor: Program, tmp_path: Path
) -> None:
    python = PYTHONS[version]
    words = ("check", "--level", "quick", "--json", "--python", python)
    said = run(lean, *words, python=python, env=bare(tmp_path))
    assert judged(said.document) == judged(gpudoctor(*words, env=bare(tmp_path)).document)
    assert said.err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", PYTHONS)
def test_modules_come_compiled_in_every_python_that_the_file_was_compiled_for(version: str, lean: Path) -> None:
    code = "import runpy, sys; sys.argv[1:] = ['rules', 'list']\n"
    code += f"try: runpy.run_path({str(lean)!r}, run_name='__main__')\nexcept SystemExit: pass\n"
    code += "print([name for name, one in sys.modules.items() if 'pyz' in (getattr(one, '__file__', '') or '')"
    code += " and not one.__file__.endswith('.pyc')], file=sys.stderr)"
    done = subprocess.run([PYTHONS[version], "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("version", PYTHONS)
def test_another_python_runs_the_sources(version: str, whole: Path, tmp_path: Path) -> None:
    said = run(whole, "explain", "driver.missing", python=PYTHONS[version], env=bare(tmp_path))
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("driver.missing")
    assert list(tmp_path.iterdir()) == [], "what was unpacked is gone again"


def test_the_child_that_asks_nvml_has_its_binding_from_the_file(lean: Path, tmp_path: Path) -> None:
    env = bare(tmp_path, **simulated(h100(2), tmp_path / "answers"))
    facts = run(lean, "check", "--level", "standard", "--json", env=env).document["facts"]
    assert facts["nvml.state"]["value"] == "ok"
    assert len(facts["gpu"]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("rules", "test", str(REPOSITORY / "gpudoctor/app/docs/site-rules")),
        ("schema",),
        ("explain", "driver.version"),
        ("explain", "gpus", "H100"),
        ("setup", "torch", "--offline", "--for", "gpu=H100,driver=580,python=3.12,os=linux,arch=x86_64"),
        ("setup", "driver", "--for", "distribution=ubuntu 24.04,gpu=H100,arch=x86_64"),
        ("bench", "--list"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_an_installation_knows_the_file_knows(
    words: tuple[str, ...], lean: Path, gpudoctor: Program, tmp_path: Path
) -> None:
    installed = gpudoctor(*words, env=bare(tmp_path))
    assert installed.code == 0
    assert run(lean, *words, env=bare(tmp_path)) == installed


def test_a_paste_is_read_and_a_sites_rules_are_judged(lean: Path, gpudoctor: Program, tmp_path: Path) -> None:
    words = ("read", "-", "--json", "--rules", str(REPOSITORY / "gpudoctor/app/docs/site-rules"))
    said = run(lean, *words, env=bare(tmp_path), stdin=REPORT)
    assert said.document == gpudoctor(*words, stdin=REPORT).document


def test_a_checked_process_of_a_job_and_its_kernels_run_from_the_file(lean: Path, tmp_path: Path) -> None:
    env = bare(tmp_path)
    said = run(lean, "preflight", "--json", "--level", "quick", env=env)
    assert said.document["target"]["level"] == "quick"
    assert said.document["facts"]["nvml.state"]
    measured = run(
        lean, "bench", "--device", "cpu", "--kernel", "driver.add", "--json", "--python", sys.executable, env=env
    )
    assert "kernels" in measured.document, measured
    assert list(tmp_path.iterdir()) == []


def test_without_textual_the_report_is_printed_and_the_interface_excused(lean: Path, tmp_path: Path) -> None:
    sentence = "the interface is not in this file"
    with Terminal(["-I", "-S", str(lean), "--level", "quick"], environ=bare(tmp_path, TERM="xterm")) as terminal:
        terminal.wait_for(sentence)
        terminal.wait_for("not judged")
        assert terminal.ended(30) in {0, 1, 3}
    with Terminal(["-I", "-S", str(lean), "demo", "lost-gpu"], environ=bare(tmp_path, TERM="xterm")) as terminal:
        terminal.wait_for(sentence)
        assert terminal.ended(30) == 2


def test_the_interface_opens_from_the_file(whole: Path, tmp_path: Path) -> None:
    environ = bare(tmp_path, TERM="xterm-256color")
    with Terminal(["-I", "-S", str(whole), "demo", "lost-gpu"], environ=environ) as terminal:
        terminal.wait_for("Take the power away")
        terminal.type("q")
        terminal.wait_for(LEFT)
        assert terminal.ended(30) == 0


def test_an_older_python_hands_over_to_a_newer_one_or_says_what_it_needs(lean: Path, tmp_path: Path) -> None:
    """What it does where Python is too old does not depend on how old it is."""
    with zipfile.ZipFile(lean) as archive:
        text = archive.read("__main__.py").decode()
    late = tmp_path / "late"
    late.mkdir()
    (late / "__main__.py").write_text(text.replace("OLDEST = (3, 10)", "OLDEST = (4, 0)"))
    empty = finished([sys.executable, str(late)], env={"PATH": str(tmp_path)})
    assert empty.code == 2
    assert empty.err.startswith("gpudoctor: Python 3.10 or newer is needed, and this is 3.")
    newer = tmp_path / "python3.12"
    newer.write_text('#!/bin/sh\necho "newer: $*"\n')
    newer.chmod(0o755)
    handed = finished([sys.executable, str(late), "check"], env={"PATH": str(tmp_path)})
    assert handed.out == f"newer: {late} check\n"


def test_the_same_gpudoctor_gives_the_same_bytes(lean: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    pyz.build(again, tui=False)
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(lean) as other:
        assert {entry.date_time for entry in one.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        there = {entry.filename: entry.CRC for entry in other.infolist()}
        assert {entry.filename: entry.CRC for entry in one.infolist()}.items() <= there.items()
    assert os.access(again, os.X_OK)


def test_a_python_that_is_none_is_refused(tmp_path: Path) -> None:
    for python, why in (("/nowhere/python", "cannot be started"), ("/bin/false", "3.10 or newer")):
        with pytest.raises(UsageError, match=why):
            pyz.build(tmp_path / "x.pyz", [python], tui=False)
    assert list(tmp_path.iterdir()) == []


def test_every_package_within_brings_its_licence(whole: Path) -> None:
    with zipfile.ZipFile(whole) as archive:
        names = archive.namelist()
        assert json.loads(archive.read("gpudoctor/rules/rules.json"))
    infos = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    licensed = {name.partition("/")[0] for name in names if ".dist-info/" in name and "licen" in name.lower()}
    in_its_source = {name for name in infos if name.startswith("nvidia_ml_py-")}
    assert infos - licensed == in_its_source
