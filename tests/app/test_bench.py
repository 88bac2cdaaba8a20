"""``gpudoctor bench``: the real program, its exit codes, its document, and how it ends when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.core.measurement import from_json
from tests.conftest import Program
from tests.processes import gone
from tests.sick_kernels import Sick

DRIVER = ("bench", "--device", "cpu", "--kernel", "driver.add", "--kernel", "driver.reduction")


def test_its_document_is_what_the_schema_says_and_is_read_back(gpudoctor: Program) -> None:
    ran = gpudoctor(*DRIVER, "--json")
    document = ran.document
    assert (ran.code, document["verdict"], document["findings"]) == (0, "sound", [])
    found = from_json(document)
    assert [(run.kernel, run.status, run.right) for run in found.runs] == [(name, "ran", True) for name in DRIVER[4::2]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kernel", "matmull"], "there is no kernel 'matmull'; available: driver, eager,"),
        (["--device", "cuda:97"], "--device cuda:97: no such device; available:"),
        (["--python", "/no/such/python"], "--python /no/such/python: no such program"),
        (["--python", "/bin/true"], "--python /bin/true: not a Python interpreter 3.6 or newer"),
    ],
)
def test_what_is_misused_is_named(gpudoctor: Program, words: list[str], message: str) -> None:
    ran = gpudoctor("bench", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    ("name", "first"),
    [("driver", "driver."), ("readiness", "readiness."), ("matmul", "matmul."), ("triton", "compile.")],
)
def test_kernels_are_named_by_id_by_its_beginning_and_by_rung(gpudoctor: Program, name: str, first: str) -> None:
    listed = gpudoctor("bench", "--list", "--kernel", name)
    assert listed.code == 0
    ids = [line.split()[0] for line in listed.out.splitlines() if line.startswith("  ")]
    assert any(one.startswith(first) for one in ids)
    assert len(ids) < len(gpudoctor("bench", "--list").out.splitlines())


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Sick]]:
    """The program with one kernel over and one that never ends, which has started a process of its own session."""
    sick = Sick(tmp_path)
    sick.family("driver", "forks", "right", ids={"right": "driver.add", "forks": "driver.reduction"})
    words = ["bench", "--device", "cpu", "--kernel", "driver.add", "--kernel", "driver.reduction", "--json"]
    with sick.at_work(words) as child:
        yield child, sick


def test_ctrl_c_shows_what_was_measured_and_leaves_no_process(at_work: tuple[subprocess.Popen[str], Sick]) -> None:
    child, sick = at_work
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, err) == (130, "")
    runs = json.loads(out)["runs"]
    assert [(run["kernel"], run["status"], run.get("because")) for run in runs] == [
        ("driver.add", "ran", None),
        ("driver.reduction", "not-run", "stopped while it ran"),
    ]
    assert len(sick.pids()) == 1
    assert gone(sick.pids()[0])


def test_a_signal_that_ends_it_ends_all_that_it_started(at_work: tuple[subprocess.Popen[str], Sick]) -> None:
    child, sick = at_work
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=600) == 143
    assert len(sick.pids()) == 1
    assert gone(sick.pids()[0])
