"""Standard output that is full, closed or unbuffered, and an end beside threads that were given up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

_PROGRAM = (sys.executable, "-m", "gpudoctor")
_BEHIND = """
import atexit, socket, sys, threading
from gpudoctor.core import system
atexit.register(print, "children ended")
here, there = socket.socketpair()
threading.Thread(target=here.recv, args=(1,), daemon=True).start()
print("said")
sys.exit(system.finish_process(7))
"""


def _run(words: tuple[str, ...], unbuffered: str, **streams: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(words, check=False, text=True, env=environ, cwd=REPOSITORY, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_a_line(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = _run((*_PROGRAM, "schema"), unbuffered, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    said = (
        "gpudoctor: the answer could not be written whole: No space left on device; make room, or write it elsewhere\n"
    )
    assert ended.stderr == said


def test_what_is_cut_short_is_told(tmp_path: Path) -> None:
    """A write that finds room for a part says so: the rest is tried, and fails."""
    words = ("sh", "-c", f"ulimit -f 4; exec {' '.join(_PROGRAM)} schema > {tmp_path}/schema.json")
    ended = _run(words, "1", stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert "the answer could not be written whole: File too large" in ended.stderr


@pytest.mark.parametrize(
    ("closed", "unbuffered"), [(">&-", ""), (">&-", "1"), ("2>&-", ""), ("<&-", ""), ("<&- >&- 2>&-", "1")]
)
def test_closed_streams_leave_the_exit_code(closed: str, unbuffered: str) -> None:
    words = ("sh", "-c", f"exec {' '.join(_PROGRAM)} rules list {closed}")
    ended = _run(words, unbuffered, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("torch.cpu-build" in ended.stdout) is (">&- 2" not in closed and closed != ">&-")


def test_beside_a_thread_that_was_given_up_the_process_ends_whole() -> None:
    ended = _run((sys.executable, "-c", _BEHIND), "", capture_output=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (7, "said\nchildren ended\n")
