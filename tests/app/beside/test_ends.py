"""gpudoctor ends as the command ended, and what it printed is what arrives, over all kinds of end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.app.beside.running import beside, python, run

CODES = (0, 1, 2, 3, 42, 126, 127, 128, 137, 139, 143, 255)
SIGNALS = (
    *("SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1"),
    *("SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGIO"),
    *("SIGPWR", "SIGSYS", "SIGRTMIN"),
)
PROGRAMS = {
    "an exception": "raise RuntimeError('no such layer')",
    "words as its exit": "import sys; sys.exit('bad config')",
    "binary output": "import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'\\0\\xff\\n')",
    "no end of line": "import os; os.write(1, b'half a line'); os._exit(4)",
    "stdout closed": "import os, time; os.close(1); time.sleep(0.2); os._exit(5)",
    "stderr closed": "import os, time; os.close(2); time.sleep(0.2); os._exit(6)",
    "both closed": "import os, time; os.closerange(0, 3); time.sleep(0.2); os._exit(7)",
    "stdin is read": "import sys; sys.stdout.write(sys.stdin.read().upper())",
    "a child dies": "import os; p = os.fork(); p or os.kill(os.getpid(), 9); os._exit(os.waitpid(p, 0)[1] & 127)",
    "its group is killed": "import os, signal; os.setpgid(0, 0); os.killpg(0, signal.SIGTERM)",
    "a session of its own": "import os; os.setsid(); print(os.getsid(0) == os.getpid())",
    "signals are as given": "import signal; print([signal.getsignal(n) for n in (1, 10, 13, 15, 17, 25)],"
    " signal.pthread_sigmask(signal.SIG_BLOCK, ()))",
    "open files": "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])",
    "the environment": "import os; print(sorted(os.environ.items()))",
    "the folder and the group": "import os; print(os.getcwd(), os.getpgrp() == os.getpgid(os.getppid()))",
    "limits and priority": "import os, resource; print([resource.getrlimit(n) for n in range(10)])\n"
    "print(os.nice(0), oct(os.umask(0)), os.sched_getaffinity(0))",
    "both streams at once": "import os\nfor n in range(200): os.write(1 + n % 2, b'%d\\n' % n)",
    "the processor's time is over": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 2))\nwhile True: pass",
}


def same(argv: list[str], stdin: bytes = b"") -> None:
    """Run it bare and with the doctor, and compare: the end, stdout, and what stderr begins with."""
    bare, ours = run(argv, stdin), run([*beside("--quiet"), *argv], stdin)
    assert (ours.code, ours.out) == (bare.code, bare.out)
    assert ours.err.startswith(bare.err)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_code(code: int) -> None:
    same(["sh", "-c", f"echo out; echo err >&2; exit {code}"])


@pytest.mark.full
@pytest.mark.parametrize("code", [code for code in CODES if code not in (0, 3)])
def test_more_exit_codes(code: int) -> None:
    same(["sh", "-c", f"exit {code}"])


def test_a_signal() -> None:
    same(["sh", "-c", "echo out; kill -TERM $$"])


@pytest.mark.full
@pytest.mark.parametrize("name", SIGNALS)
def test_more_signals(name: str) -> None:
    same(
        python(
            f"import os, signal; signal.signal(signal.{name}, 0) if '{name}' != 'SIGKILL' else 0;"
            f" print('before', flush=True); os.kill(os.getpid(), signal.{name})"
        )
    )


@pytest.mark.full
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program(what: str) -> None:
    same(python(PROGRAMS[what]), stdin=b"what comes in\n" * 5)


def test_there_are_forty_kinds_of_end() -> None:
    assert len(CODES) + len(SIGNALS) + len(PROGRAMS) >= 40


@pytest.mark.parametrize(
    ("name", "code", "says"), [("no-such-program", 127, "no such command"), ("/", 126, "a folder")]
)
def test_what_cannot_be_run(name: str, code: int, says: str) -> None:
    end = run([*beside(), name])
    assert end.code == code
    assert says in end.err.decode()


def test_a_file_that_is_not_executable_and_scripts(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo it runs; exit 9\n")
    assert run([*beside(), str(script)]).code == 126
    script.chmod(0o755)
    assert run([*beside("--quiet"), str(script)])[:2] == (9, b"it runs\n")  # as shells and execvp(3) do
    script.write_text("#!/no/such/interpreter\n")
    assert run([*beside(), str(script)]).code == 127


def test_misuse_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for options in (["-o", "-"], ["-o", str(tmp_path)], ["--rules", str(tmp_path / "none")], ["--nonsense"]):
        assert run([*beside(*options), "touch", str(mark)]).code == 2, options
    assert run(beside()).code == 2
    assert not mark.exists()


def test_a_reader_that_goes_away_ends_it_as_it_would() -> None:
    """``yes | head``: the writer gets SIGPIPE, not an error of ours."""
    import subprocess

    with subprocess.Popen([*beside("--quiet"), "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ran:
        assert ran.stdout
        assert ran.stdout.read(4) == b"y\ny\n"
        ran.stdout.close()
        assert ran.wait(60) == -signal.SIGPIPE


def test_what_it_leaves_running_goes_on_writing(tmp_path: Path) -> None:
    """A daemon that holds its output: gpudoctor ends with the command, the output comes to its end."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); time.sleep(3); os.write(1, b'later\\n'); os._exit(0)\n"
        "print('now', flush=True)"
    )
    end = run([*beside("--quiet"), *python(code)])
    assert (end.code, end.out) == (0, b"now\nlater\n")


def test_a_killed_doctor_takes_the_command_along(tmp_path: Path) -> None:
    import subprocess
    import time

    from tests.processes import gone

    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with subprocess.Popen([*beside(), *python(code)]) as ran:
        while not mark.exists() or not mark.read_text():
            time.sleep(0.02)
        os.kill(ran.pid, signal.SIGKILL)
        assert ran.wait(60) == -signal.SIGKILL
    assert gone(int(mark.read_text()))
