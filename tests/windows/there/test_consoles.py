"""Ctrl-C on a console, a reader that goes away, and code pages; Wine 8 passes on no Ctrl-Break."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app.output import BROKEN_PIPE, INTERRUPTED

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="Windows' Python runs these")

GPUDOCTOR = (sys.executable, "-m", "gpudoctor")
LONG = 600.0
CHILD = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(3600)"
CHECK = f"""
import sys, threading, time
from gpudoctor.app.cli import run_and_finish
from gpudoctor.probes import windows

def waited_for():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code.co_name != "_await":
        frame = frame.f_back
    return frame and frame.f_locals["run"].name == "windows"

def hangs(target):
    while not waited_for():
        time.sleep(0.05)
    target.run([sys.executable, "-I", "-S", "-c", {f"import os; os.chdir(r'%s'); {CHILD}"!r} % sys.argv[1]], 3600.0)
    yield from ()

windows.probe, windows.DEADLINE = hangs, 3600.0
sys.exit(run_and_finish(["check", "--level", "quick", "--json"]))
"""
"""A check whose child says nothing and is given up after an hour; it begins once the check waits for it alone."""
CONSOLE = """
import ctypes, os, signal, subprocess, sys, time
folder, check = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN)
gpudoctor = subprocess.Popen([sys.executable, "-c", check, folder], stdout=subprocess.DEVNULL)
place = os.path.join(folder, "child")
while gpudoctor.poll() is None and not (os.path.isfile(place) and os.path.getsize(place)):
    time.sleep(0.05)
ctypes.windll.kernel32.GenerateConsoleCtrlEvent(signal.CTRL_C_EVENT, 0)
sys.exit(gpudoctor.wait())
"""
"""Starts the check in the console that it has, and presses Ctrl-C there once the child is at work."""


def test_a_key_ends_a_check_that_waits_and_its_children(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CONSOLE, str(tmp_path), CHECK]
    own_console = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    assert subprocess.run(argv, creationflags=own_console, timeout=LONG, check=False).returncode == INTERRUPTED
    pid = (tmp_path / "child").read_text()
    listed = subprocess.run(["tasklist", "/FI", f"PID eq {pid}"], capture_output=True, check=False).stdout
    assert pid.encode() not in listed


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    with subprocess.Popen([*GPUDOCTOR, "rules", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(LONG) == BROKEN_PIPE


def test_a_document_is_utf_8_whatever_the_code_page(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    report.write_text("PyTorch version: 2.13.0+cpu\nWorking directory: /home/jürgen/模型\n", "utf-8")
    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - what only Windows has
    before = kernel.GetConsoleOutputCP()
    outputs = set()
    try:
        for page in (1252, 936, 65001):
            kernel.SetConsoleCP(page)
            kernel.SetConsoleOutputCP(page)
            argv = [*GPUDOCTOR, "read", str(report), "--lang", "zh"]
            outputs.add(subprocess.run(argv, capture_output=True, check=False).stdout)
    finally:
        kernel.SetConsoleOutputCP(before)
    (output,) = outputs
    assert "报告" in output.decode()
