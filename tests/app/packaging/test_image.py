"""The image of gpudoctor: its linter is content, and its lines work without root, network and a place to write."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs
from tests.app.packaging.pythons import OWN, bare
from tests.conftest import Program

pytestmark = pytest.mark.full


@pytest.fixture
def image(gpudoctor: Program, tmp_path: Path) -> Path:
    assert gpudoctor("recipe", "write", "image.Dockerfile", str(tmp_path)).code == 0
    return tmp_path / "image.Dockerfile"


def test_the_linter_of_dockerfiles_has_nothing_to_say(image: Path) -> None:
    linter = [needs.program("hadolint"), "--no-color", str(image)]
    said = subprocess.run(linter, check=False, capture_output=True, text=True, timeout=600)
    assert (said.returncode, said.stdout) == (0, "")


def test_gpudoctor_reads_it_and_finds_nothing_wrong(image: Path, gpudoctor: Program) -> None:
    said = gpudoctor("read", str(image), "--for", "gpu=H100,driver=580", "--json")
    assert said.document["findings"] == []


def test_what_it_runs_works_as_nobody_with_nothing(
    image: Path, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    text = image.read_text("utf-8").replace("\\\n", " ")
    made = re.findall(r"&& gpudoctor (.+)", text)[0]
    file = tmp_path / "gpudoctor.pyz"
    words = [str(file) if word == "/gpudoctor.pyz" else word for word in shlex.split(made)]
    subprocess.run([installed(OWN) / "bin/gpudoctor", *words], check=True, capture_output=True, env=bare(tmp_path))
    start = json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0])
    assert start == ["python3", "-I", "/usr/local/bin/gpudoctor"]
    assert re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE) == [("65534", "65534")]
    argv = [sys.executable, "-I", str(file)]
    env = bare(Path("/proc"))
    said = subprocess.run([*argv, "--json"], check=False, capture_output=True, text=True, env=env, timeout=600)
    assert json.loads(said.stdout)["verdict"]
    assert said.stderr == ""
    report = "Nvidia driver version: 470.57.02\nGPU 0: NVIDIA GeForce RTX 5090\n"
    read = subprocess.run([*argv, "read", "-"], check=False, input=report, capture_output=True, text=True, env=env)
    assert read.returncode == 1
