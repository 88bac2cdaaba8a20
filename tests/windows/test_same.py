"""What touches no machine says on Windows what it says here; and Windows' own Python runs tests of rooms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.corpus import blocks, pairs, sick_texts
from tests.needs import REPOSITORY
from tests.processes import Ran
from tests.windows.rig import OTHER_PYTHONS, Windows
from tests.windows.test_machines import Doctor

pytestmark = pytest.mark.full

READERS = REPOSITORY / "tests/readers"
REPORT = """PyTorch version: 2.13.0+cpu
Is CUDA available: False
OS: Ubuntu 24.04.3 LTS (x86_64)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 470.57.02
Working directory: /home/jürgen/模型
"""
COMMANDS = (
    *("read -", "read - --json", "read - --lang zh", "read - --format html", "read - --format markdown --share"),
    *("explain driver.too-old-for-gpu", "explain gpu.name", "rules list", "rules test", "schema", "recipe list"),
    *("expect list", "expect show hgx-h100", "recipe show slurm-prolog.sh"),
    "setup torch --for gpu=RTX_5090,driver=570,python=3.12 --offline",
    "setup torch --for gpu=RTX_5090,driver=580,python=3.12,os=windows --offline --json",
    *(f"demo {name} --json" for name in ("sound", "no-gpus", "hot-gpu", "lost-gpu", "dark-nvlink", "upgraded")),
    *("setup torch --for gpu=K80,driver=470,python=3.12 --offline", "read nothing-there.txt", "nonsense"),
)


def here(words: list[str], stdin: str, folder: Path) -> Ran:
    """What the same command says on this machine."""
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", *words],
        input=stdin.encode(),
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def without_times(text: str) -> object:
    """The document without what differs from run to run; the text itself where it is none."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    document.pop("timings_ms", None)
    return document


@pytest.fixture
def process(windows: Windows) -> Iterator[Doctor]:
    """gpudoctor in one process there."""
    started = Doctor(windows)
    yield started
    started.close()


def test_commands_say_the_same(process: Doctor, called: Program) -> None:
    """By calls in one process each; that a process of its own prints the same is tested with other Pythons."""
    for command in COMMANDS:
        words = [word.replace("_", " ") if "gpu=" in word else word for word in command.split()]
        there, ours = process.run(words, stdin=REPORT), called(*words, stdin=REPORT)
        assert (there.code, there.err) == (ours.code, ours.err), command
        assert without_times(there.out) == without_times(ours.out), command
        assert there.out or there.err


@pytest.mark.parametrize("version", ["3.11", *OTHER_PYTHONS])
def test_each_python_says_the_same(version: str, windows: Windows, called: Program) -> None:
    python = windows.other_python(version) if version != "3.11" else "D:\\py\\python.exe"
    for words in (["--version"], ["read", "-", "--lang", "zh"], ["read", "-", "--json"], ["nonsense"]):
        there, ours = windows.run([python, "-m", "gpudoctor", *words], REPORT), called(*words, stdin=REPORT)
        assert (there.code, there.err) == (ours.code, ours.err)
        assert without_times(there.out) == without_times(ours.out)


def test_open_texts_get_the_same_documents(windows: Windows, tmp_path: Path) -> None:
    """What the tests of readers read, in one process each: a text of each cause and a sound one of each program, for
    each text takes 25 ms on either side.
    """
    texts = {cause: text for file in sorted((READERS / "messages").glob("*.txt")) for cause, text in blocks(file.stem)}
    texts |= {str(sick["finds"]): text for pair in pairs() for text, sick in sick_texts(pair)}
    texts |= {pair["name"]: pair["sound"] for pair in pairs()}
    files = {f"{number}.txt": text.encode() for number, text in enumerate(texts.values())}
    files |= {
        place.name: place.read_bytes() for folder in ("outputs", "files") for place in (READERS / folder).iterdir()
    }
    work = windows.new_folder()
    for folder in (work, tmp_path):
        for name, content in files.items():
            (folder / name).write_bytes(content)
    words = ["read", "--json", *files]
    with ThreadPoolExecutor() as pool:
        theirs = pool.submit(windows.gpudoctor, *words, cwd=work.name)
        ours = here(words, "", tmp_path)
        there = theirs.result()
    assert (there.code, there.err) == (ours.code, ours.err)
    both = zip([*files, ""], there.out.split("\n"), ours.out.split("\n"), strict=True)
    assert [name for name, one, other in both if without_times(one) != without_times(other)] == []


def test_files_are_written_with_the_same_bytes(windows: Windows, tmp_path: Path) -> None:
    work = windows.new_folder()
    (tmp_path / "report.txt").write_bytes(REPORT.replace("\n", "\r\n").encode())
    (work / "report.txt").write_bytes(REPORT.replace("\n", "\r\n").encode())
    for words in (
        ["read", "report.txt", "--format", "markdown", "-o", "report.md"],
        ["recipe", "write", "ansible"],
        ["rules", "new", "site.quota", "pages"],
    ):
        assert here(words, "", tmp_path).code == windows.gpudoctor(*words, cwd=work.name).code
    files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) > 4
    assert {name: (work / name).read_bytes() for name in files} == {
        name: (tmp_path / name).read_bytes() for name in files
    }


def test_what_needs_posix_or_root_says_so(process: Doctor) -> None:
    for command in ("run -- python train.py", "preflight", "fleet --hosts node[1-2]", "record"):
        ran = process.run(command.split())
        assert (ran.code, ran.out) == (2, "")
        assert f"{command.split()[0]} is not for Windows" in ran.err
    ran = process.run(["fix", "--only", "user"])
    assert (ran.code, ran.out) == (2, "")
    assert "no user of Windows is root" in ran.err


ROOMS = (
    *("windows/there", "core/test_model.py", "core/test_plan_model.py"),
    *("diagnosis/test_expression.py", "diagnosis/test_judge.py", "diagnosis/test_knowledge_drivers.py"),
    *("readers/test_reader_collect_env.py", "readers/test_reader_nvidia_smi.py"),
)


def test_tests_of_rooms_pass(windows: Windows) -> None:
    windows.with_tests()
    windows.with_environment()
    places = ["E:\\tests\\" + place.replace("/", "\\") for place in ROOMS]
    options = ["-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-q", "-m"]
    ran = windows.python("-m", "pytest", *options, "not gpu and not full", "-rpf", *places, env={"CI": ""})
    assert ran.code == 0, ran.out[-6000:] + ran.err[-2000:]
    assert [place for place in places if f"PASSED {place}" not in ran.out] == []
