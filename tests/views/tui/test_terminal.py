"""On a real terminal: it is left at once whatever hangs, and what only the terminal can do is left to it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.readme import REPORT
from tests.views.tui.terminal import Terminal


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An interpreter that answers who it is, and nothing else, ever."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *ask_*) exec sleep 1000.25;; esac\nexec {sys.executable} "$@"\n', "utf-8"
    )
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("leave", ["q", "\x03"], ids=["q", "ctrl+c"])
def test_it_can_be_left_while_a_probe_never_returns(hanging: Path, leave: str) -> None:
    with Terminal(["-m", "gpudoctor", "--python", str(hanging)]) as terminal:
        terminal.wait_for("READING")
        end = time.monotonic() + 600
        while not _asleep():
            assert time.monotonic() < end, "the child that hangs was not started"
            time.sleep(0.02)
        terminal.type(leave)
        assert terminal.ended(300) in {0, 1, 3}  # the probe would take 1,000 seconds
    assert not _asleep()


def _asleep() -> bool:
    """Whether the child that hangs is there."""
    return any(_is(line, "sleep", "1000.25") for line in Path("/proc").glob("[0-9]*/cmdline"))


def _is(cmdline: Path, *words: str) -> bool:
    try:
        return cmdline.read_bytes().split(b"\0")[:-1] == [word.encode() for word in words]
    except OSError:
        return False


@pytest.mark.parametrize("leave", ["enter", "esc"])
def test_commands_are_shown_alone_on_the_plain_terminal(tmp_path: Path, leave: str) -> None:
    report = tmp_path / "report.txt"
    report.write_text(REPORT, "utf-8")
    with Terminal(["-m", "gpudoctor", "read", "--tui", str(report)]) as terminal:
        terminal.wait_for("BROKEN")
        terminal.wait_for("quit" if "quit" in terminal.said else "^p")
        terminal.type("C")
        terminal.wait_for("Enter or Esc goes back to gpudoctor.")
        alone = terminal.said.rpartition("\x1b[?1049l")[2].replace("\r\n", "\n")
        commands = [line for line in alone.split("\n")[1:-2] if line]
        assert commands
        assert all("\x1b" not in line for line in commands)
        headings = [line for line in commands if line.startswith("#")]
        assert headings[0] == "# 1: Install a newer driver (Ubuntu)"
        assert all(line.startswith("# or ") for line in headings[1:])
        terminal.type("\x1b[A")  # an arrow is no Esc
        terminal.type("\x1b" if leave == "esc" else "\n")
        terminal.wait_for("BROKEN")
        terminal.type("q")
        assert terminal.ended(60) == 1
