"""Signals reach the command as they would without us, each once; what stops it stops us; it keeps its terminal."""

import os
import pty
import select
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.app.monitoring.running import beside, python
from tests.processes import until

fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

COUNTS = """
import os, signal, time
seen = []
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGQUIT"):
    signal.signal(getattr(signal, name), lambda number, _: (seen.append(number), open(str(int(number)), "w").close()))
print("ready", os.getpid(), flush=True)
while not os.path.exists("enough"):
    time.sleep(0.01)
time.sleep(0.5)
print("seen", sorted(map(int, seen)), flush=True)
"""


class Started:
    """A command under ``gpudoctor run``, in a process group of its own."""

    def __init__(self, folder: Path, code: str = COUNTS) -> None:
        self.folder = folder
        self.ran = subprocess.Popen(
            [*beside("--quiet"), *python(code)], stdout=subprocess.PIPE, cwd=folder, start_new_session=True
        )
        assert self.ran.stdout
        self.pid = int(self.ran.stdout.readline().split()[1])

    def has(self, number: int) -> bool:
        """Whether it gets that signal."""
        return until((self.folder / str(int(number))).exists)

    def enough(self) -> str:
        """Have it say what it has seen, and end."""
        (self.folder / "enough").touch()
        assert self.end() == 0
        return self.said

    def end(self) -> int:
        """Wait for its end; the exit code."""
        assert self.ran.stdout
        with self.ran:
            self.said = self.ran.stdout.read().decode()
        return self.ran.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_us_reaches_it_once(tmp_path: Path, number: int) -> None:
    started = Started(tmp_path)
    os.kill(started.ran.pid, number)
    assert started.has(number)
    assert started.enough() == f"seen [{int(number)}]\n"


def test_a_signal_to_the_group_reaches_it_once(tmp_path: Path) -> None:
    """As by Ctrl-C, ``kill -- -GROUP`` and schedulers that signal each process."""
    started = Started(tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.killpg(started.ran.pid, number)
        assert started.has(number)
    assert started.enough() == f"seen [{int(signal.SIGINT)}, {int(signal.SIGTERM)}]\n"


def test_it_dies_of_the_signal_and_so_do_we(tmp_path: Path) -> None:
    started = Started(tmp_path, "import os, time; print('ready', os.getpid(), flush=True); time.sleep(600)")
    os.kill(started.ran.pid, signal.SIGTERM)
    assert started.end() == -signal.SIGTERM


def _state(pid: int) -> str:
    """The state letter of the process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_what_stops_it_stops_us(tmp_path: Path, number: int) -> None:
    started = Started(tmp_path)
    os.kill(started.pid, number)
    if number == signal.SIGTSTP:  # the group is an orphan: the kernel stops nobody by it, as bare
        assert _state(started.pid) != "T"
    else:
        assert until(lambda: _state(started.ran.pid) == "T")
        os.kill(started.ran.pid, signal.SIGCONT)
        assert until(lambda: _state(started.pid) != "T")
    assert started.enough() == "seen []\n"


# ---- On a terminal ----

ON_TERMINAL = """
import fcntl, os, signal, struct, sys, termios, time
size = lambda: struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))[:2]
interrupted = []
signal.signal(signal.SIGINT, lambda *_: interrupted.append(1))
print(os.isatty(0), os.isatty(1), os.isatty(2), size(), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while not interrupted:
    time.sleep(0.01)
time.sleep(0.3)
print("interrupted", len(interrupted), size(), flush=True)
print("typed", input(), file=sys.stderr, flush=True)
"""


class Terminal:
    """A terminal with a program on it, in the foreground, as a shell would start it."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.handle = pty.fork()
        if not self.pid:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 33, 111, 0, 0))
                child = os.fork()
                if not child:
                    os.setpgid(0, 0)
                    time.sleep(0.1)
                    os.execvp(argv[0], argv)
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.setpgid(child, child)
                os.tcsetpgrp(0, child)
                while True:
                    _, status = os.waitpid(child, os.WUNTRACED)
                    if not os.WIFSTOPPED(status):
                        break
                    os.write(1, b"stopped by %d\n" % os.WSTOPSIG(status))
                    os.killpg(child, signal.SIGCONT)
                os.write(1, b"ended with %d\n" % os.waitstatus_to_exitcode(status))
            finally:
                os._exit(0)
        self.said = b""

    def wait_for(self, words: bytes) -> str:
        """All that was said once these words were."""
        deadline = time.monotonic() + 600
        while words not in self.said and time.monotonic() < deadline:
            if select.select([self.handle], [], [], 1)[0]:
                try:
                    self.said += os.read(self.handle, 65536)
                except OSError:
                    break
        assert words in self.said, self.said
        return self.said.decode()

    def close(self) -> None:
        """Collect it."""
        os.close(self.handle)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("with_us", [True, False])
def test_a_terminal_stays_one(with_us: bool) -> None:
    terminal = Terminal([*(beside("--quiet") if with_us else []), *python(ON_TERMINAL)])
    terminal.wait_for(b"True True True (33, 111) True\r\n")
    fcntl.ioctl(terminal.handle, termios.TIOCSWINSZ, struct.pack("4H", 44, 88, 0, 0))
    time.sleep(0.5)
    os.write(terminal.handle, b"\x1a")  # Ctrl-Z
    terminal.wait_for(b"stopped by 20\r\n")
    os.write(terminal.handle, b"\x03")  # Ctrl-C
    terminal.wait_for(b"interrupted 1 (44, 88)\r\n")
    os.write(terminal.handle, b"a word\n")
    terminal.wait_for(b"typed a word\r\n")
    terminal.wait_for(b"ended with 0\r\n")
    terminal.close()


@pytest.mark.parametrize("options", [("--quiet",), ("--quiet", "--untouched")])
def test_a_terminal_gets_the_same_bytes(options: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "for n in range(300):\n"
        "    print('\\x1b[3%dmline' % (n % 8), n, '\\t\\xe4\\r', flush=True)\n"
        "    print('progress', n, end='\\r', file=sys.stderr, flush=True)"
    )
    said = []
    for front in ([], beside(*options)):
        terminal = Terminal([*front, *python(code)])
        said.append(terminal.wait_for(b"ended with 0\r\n"))
        terminal.close()
    assert said[0] == said[1]


def test_a_terminal_that_goes_away(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid()))\nwhile True: print('x'); time.sleep(0.01)"
    )
    terminal = Terminal([*beside(), *python(code)])
    assert until(lambda: mark.exists() and bool(mark.read_text()))
    terminal.wait_for(b"x\r\n")
    pid = int(mark.read_text())
    terminal.close()
    assert until(lambda: _state(pid) in ("", "Z"))
