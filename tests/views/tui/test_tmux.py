"""The program on a real window: tmux shows it, types and reads the screen; its keys change a real environment."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudoctor.views.tui.widgets.frame import SCREEN_ENTRIES
from tests import needs
from tests.fixes import shelves
from tests.fixes.index import Index
from tests.fixes.place import JOURNALS, Patient, difference, record
from tests.sim import scenario
from tests.sim.root import Machine
from tests.views.tui.conftest import NARROW, WIDE

SECONDS = 600.0
"""How long a screen may take to be there: far more than it needs, on a machine that does other things, too."""


class Window:
    """A window of a tmux server of its own, in which a program runs."""

    def __init__(self, name: str, size: tuple[int, int], command: str, environ: dict[str, str]) -> None:
        self._tmux = [needs.program("tmux"), "-L", name, "-f", "/dev/null"]
        self._environ = {**os.environ, "LANG": "C.UTF-8", **environ}
        width, height = size
        self.do("new-session", "-d", "-x", str(width), "-y", str(height), f"{command}; echo ended with $?; sleep 600")

    def do(self, *words: str) -> str:
        """A command of tmux."""
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, check=True, timeout=600, env=self._environ
        )
        return done.stdout

    def text(self) -> str:
        """What the screen shows."""
        return self.do("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.do("send-keys", *keys)

    def wait(self, *wanted: str) -> str:
        """The screen, once all of these are on it."""
        return "\n".join(self.until(lambda lines: all(words in "\n".join(lines) for words in wanted)))

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the screen, once that holds of them: they are looked at while they are drawn, too."""
        deadline = time.monotonic() + SECONDS
        while True:
            lines = self.text().splitlines()
            if len(lines) > 2 and holds(lines):
                return lines
            assert time.monotonic() < deadline, "not on the screen:\n" + "\n".join(lines)
            time.sleep(0.1)


Opens = Callable[..., Window]


@pytest.fixture
def window() -> Iterator[Opens]:
    """``window(size, command, NAME=value, ...)``: that command in a window of that size."""
    opened: list[Window] = []

    def run(size: tuple[int, int], command: str, **environ: str) -> Window:
        opened.append(Window(f"gpudoctor-{uuid.uuid4().hex[:8]}", size, command, environ))
        return opened[-1]

    yield run
    for one in opened:
        one.do("kill-server")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Eight H100, one of which has fallen off the bus."""
    return Machine(scenario.load(scenario.SICK / "lost-gpu-h100.json"), tmp_path.resolve() / "root")


def program(machine: Machine, *words: str) -> str:
    """The program in that machine, as a shell has it typed, with colours and a terminal's name."""
    surroundings = ["/.host/usr/bin/env", "TERM=screen-256color", f"PYTHONPATH={needs.REPOSITORY}"]
    inside = machine.command([*surroundings, sys.executable, "-m", "gpudoctor", *words])
    inside[-1] = inside[-1].replace("NO_COLOR=1 ", "")
    return shlex.join(inside)


def test_one_types_through_every_screen(window: Opens, machine: Machine) -> None:
    shown = window(NARROW, program(machine))
    first = shown.until(
        lambda lines: (
            all(words in "\n".join(lines) for words in ("✗ BROKEN", "not judged"))
            and "1 Diag" in lines[2]
            and lines[-1].endswith(("q ", "q quit", "q"))
        )
    )
    assert len(first) <= NARROW[1]
    for number, door in enumerate(SCREEN_ENTRIES, 1):
        shown.type(str(number))
        name = f"[{number} {door.short}]"
        head = "? NO JOB" if door.short == "Job" else "✗ BROKEN"
        lines = shown.until(lambda lines, name=name, head=head: name in "\n".join(lines) and head in lines[0])  # type: ignore[misc]
        assert len(lines) <= NARROW[1]
    shown.type("1")
    shown.wait("[1 Diag]")
    shown.type("?")
    assert "What the marks mean" in shown.wait("On this screen", "Everywhere")
    shown.type("Escape")
    shown.wait("[1 Diag")
    shown.type("C-p")
    shown.wait("Search for commands")
    shown.type("-l", "go: GPUs")
    shown.until(lambda lines: sum("go: " in line for line in lines) == sum("go: GPUs" in line for line in lines) == 2)
    shown.type("Enter")
    shown.wait("[2 GPU")
    shown.type("q")
    shown.wait("ended with 1")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        yield shelves.stock(index)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, index: Index) -> Path:
    """With torch for processors alone."""
    patient = Patient(record("hgx-h100"), tmp_path_factory.mktemp("made").resolve() / "root")
    patient.pip("install", "torch==2.9.0+cpu", "--index-url", index.url("cpu"))
    return patient.prefix


@pytest.fixture
def patient(tmp_path: Path, index: Index, environment: Path) -> Patient:
    surroundings = {"PIP_INDEX_URL": index.url(), "GPUDOCTOR_TORCH_INDEX": index.url("").rstrip("/")}
    return Patient(record("hgx-h100", **surroundings), tmp_path.resolve() / "root", environment)


def shown(patient: Patient, opens: Opens) -> Window:
    """The plan of all that is found, on the screen."""
    surroundings = ["/.host/usr/bin/env", "TERM=screen-256color", f"PYTHONPATH={needs.REPOSITORY}"]
    inside = patient.command([*surroundings, sys.executable, "-m", "gpudoctor", "--level", "quick"])
    opened = opens(WIDE, shlex.join(inside))
    opened.wait("✗ BROKEN", "not judged")
    opened.type("f")
    opened.wait("Install torch 2.9.0 for CUDA 12.8", "foreseen ✓ no longer found: torch.cpu-build")
    return opened


@pytest.mark.full
def test_a_plan_is_applied_verified_and_taken_back(patient: Patient, window: Opens) -> None:
    before = patient.files()
    opened = shown(patient, window)
    opened.type("a")
    opened.wait("Run 2 commands in /opt/venv?", "undo is kept")
    opened.type("y")
    opened.wait("✓ FIXED", "no longer found")
    assert patient.distributions()["torch"] == "2.9.0+cu128"
    opened.type("U")
    opened.wait("torch 2.9.0+cpu → 2.9.0+cu128", "take it back")
    opened.type("y")
    opened.wait("✓ UNDONE")
    assert not difference(before, patient.files())


@pytest.mark.full
def test_a_run_that_was_killed_is_offered_back_when_it_is_opened_again(
    patient: Patient,
    window: Opens,
    index: Index,
) -> None:
    before = patient.files()
    opened = shown(patient, window)
    index.pause = 5.0  # it is killed before the wheel is there
    try:
        opened.type("a")
        opened.wait("run it")
        opened.type("y")
        opened.wait("FIXING", "Downloading")
        (lock,) = (patient.root / JOURNALS[1:]).glob(".lock")
        os.kill(int(lock.read_text().split()[-1]), signal.SIGKILL)
        opened.wait("ended with")
    finally:
        index.pause = 0.0
    (journal,) = (patient.root / JOURNALS[1:]).glob("*/run.json")
    name = json.loads(journal.read_text())["id"]
    again = shown(patient, window)
    again.wait(f"run {name} was ended from outside in step 2: U takes back what it had done")
    again.type("U")
    again.wait(f"Take back run {name}")
    again.type("y")
    again.wait("✓ UNDONE")
    assert not difference(before, patient.files())
