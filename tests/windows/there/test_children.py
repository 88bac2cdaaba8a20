"""Children on Windows end in time, with all that they have started."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gpudoctor.target.child import Stream, run_child
from gpudoctor.target.local import Local

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="Windows' Python runs these")

ME = (sys.executable, "-I", "-S", "-c")
WAIT = "import time; time.sleep(600)"
LONG = 600.0


def _ended(pid: int) -> bool:
    """Whether the process is gone within the outer limit."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        listed = subprocess.run(["tasklist", "/FI", f"PID eq {pid}"], capture_output=True, check=False).stdout
        if str(pid).encode() not in listed:
            return True
        time.sleep(0.1)
    return False


def test_all_output_is_read() -> None:
    answer = run_child([*ME, "import sys; print('x' * 300000); print('y' * 9, file=sys.stderr)"], LONG, os.environ)
    assert (answer.status, answer.out, answer.err) == (0, "x" * 300000 + "\n", "y" * 9 + "\n")


@pytest.mark.parametrize(("code", "out"), [("import sys; print(len(sys.stdin.buffer.read()))", "5000000\n"), ("", "")])
def test_input_is_written_whether_it_is_read_or_not(code: str, out: str) -> None:
    answer = run_child([*ME, code], LONG, os.environ, "x" * 5_000_000)
    assert (answer.status, answer.out) == (0, out)


def test_one_that_hangs_is_ended_and_what_it_said_is_kept() -> None:
    answer = run_child([*ME, "print('begun', flush=True);" + WAIT], 3.0, os.environ)
    assert (answer.status, answer.out, answer.stuck) == (None, "begun\n", None)
    assert answer.how.startswith("stopped after")


def test_one_that_prints_without_end_is_ended() -> None:
    answer = run_child([*ME, "while 1: print('x' * 1000)"], LONG, os.environ, limit=100_000)
    assert answer.cut
    assert 99_000 < len(answer.out) <= 100_000


def test_a_crash_is_named_as_windows_names_it() -> None:
    answer = run_child([*ME, "import faulthandler; faulthandler._read_null()"], LONG, os.environ)
    assert answer.how == "crashed (access violation 0xC0000005)"
    assert answer.status is not None
    assert answer.status < 0


@pytest.mark.parametrize("flags", [0, 0x8, 0x10, 0x200], ids=["plain", "detached", "console", "group"])
def test_what_it_started_ends_with_it(flags: int) -> None:
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', %r], creationflags=%d); print(p.pid)"
    answer = run_child([*ME, code % (WAIT, flags)], LONG, os.environ)
    assert answer.status == 0
    assert _ended(int(answer.out))


def test_a_stream_is_read_line_by_line() -> None:
    stream = Stream([*ME, "import sys; print('one\\ntwo', flush=True); sys.stdin.read()"], os.environ)
    assert [stream.line(LONG), stream.line(LONG)] == ["one", "two"]
    assert stream.line(0.1) is None
    stream.end()
    assert _ended(stream.pid)


def test_lines_are_watched_as_they_come() -> None:
    heard: list[str] = []

    def watch(line: str | None) -> bool:
        heard.extend([line] if line else [])
        return len(heard) < 2

    answer = run_child([*ME, "print('one\\ntwo', flush=True);" + WAIT], LONG, os.environ, watch=watch)
    assert heard == ["one", "two"]
    assert answer.status is None


def test_this_machine_is_one_of_windows() -> None:
    target = Local("quick")
    assert target.system == "windows"
    assert target.python == sys.executable.replace("\\", "/")
    assert target.which("cmd") is not None
    assert target.run(["cmd", "/c", "echo %OS%"]).out == "Windows_NT\n"
    with pytest.raises(FileNotFoundError):
        target.run(["no-such-program"])
    assert target.listing("C:/no/such/folder") == []
    assert not target.exists("C:/windows/no-such-file*")
    total, free = target.space("C:/windows/system32/no/such/folder")
    assert 0 < free <= total
