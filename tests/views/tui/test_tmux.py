"""The program on a real window: tmux shows it, types and reads the screen, on a simulated 8-GPU machine."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudoctor.views.tui.widgets.frame import SCREEN_ENTRIES
from tests import needs
from tests.sim import scenario
from tests.sim.root import Machine
from tests.views.tui.conftest import NARROW, SIZES

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


@pytest.mark.parametrize("size", SIZES)
def test_one_types_through_every_screen(size: tuple[int, int], window: Opens, machine: Machine) -> None:
    short = size == NARROW
    shown = window(size, program(machine))
    first = shown.until(
        lambda lines: (
            all(words in "\n".join(lines) for words in ("✗ BROKEN", "not judged"))
            and "1 Diag" in lines[2]
            and lines[-1].endswith(("q ", "q quit", "q"))
        )
    )
    assert len(first) <= size[1]
    for number, door in enumerate(SCREEN_ENTRIES, 1):
        shown.type(str(number))
        name = f"[{number} {door.short if short else door.title}]"
        head = "? NO JOB" if door.short == "Job" else "✗ BROKEN"
        lines = shown.until(lambda lines, name=name, head=head: name in "\n".join(lines) and head in lines[0])  # type: ignore[misc]
        assert len(lines) <= size[1]
    shown.type("1")
    shown.wait(f"[1 {'Diag' if short else 'Diagnosis'}]")
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


def test_in_gnu_screen_without_unicode_it_is_drawn_in_ascii() -> None:
    with tempfile.TemporaryDirectory(prefix="gd-") as folder:  # a socket's path is short
        screen = [needs.program("screen"), "-S", "gpudoctor"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        environ = {**kept, "LANG": "C", "TERM": "xterm", "SCREENDIR": folder}
        copy = Path(folder, "copy")

        def do(*words: str, until: float = 0.0) -> None:
            """A command of screen; one that finds no session is asked again, for screen opens its socket when it
            has started, not before it returns."""
            while True:
                done = subprocess.run(
                    [*screen, *words], check=False, env=environ, timeout=600, capture_output=True, text=True
                )
                if done.returncode == 0:
                    return
                assert time.monotonic() < until, f"screen {shlex.join(words)}: {done.stdout}{done.stderr}"
                time.sleep(0.1)

        def wait(*wanted: str) -> str:
            deadline = time.monotonic() + SECONDS
            while True:
                do("-p", "0", "-X", "hardcopy", str(copy), until=deadline)
                time.sleep(0.2)  # screen writes it when it comes to it
                text = copy.read_bytes().decode("latin-1") if copy.exists() else ""
                if all(words in text for words in wanted):
                    return text
                assert time.monotonic() < deadline, f"{wanted} not on the screen:\n{text}"

        do("-d", "-m", sys.executable, "-m", "gpudoctor")
        try:
            assert "+- Causes --" in wait("[1 Diag", " sources in ")
            do("-p", "0", "-X", "stuff", "2", until=time.monotonic() + SECONDS)
            assert wait("[2 GPU").isascii()
        finally:
            do("-X", "quit")
