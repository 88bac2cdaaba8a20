"""Whatever a child does, its answer comes in time and nothing of it stays; how long it is waited for."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudoctor.target import Answer
from gpudoctor.target.child import run_child
from gpudoctor.target.protocol import IDLE_SECONDS, Waiting, Work, work_of
from tests.processes import gone, is_alive, until

SOON = 300
"""Seconds, on a machine however busy: the children that are ended would take ten minutes."""

FREEZER = Path("/sys/fs/cgroup/freezer")
D_STATE = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("about to block"); fflush(stdout);
    if (vfork() == 0) { sleep(600); _exit(0); }  /* the parent waits in state D */
    return 0;
}
"""


def python(source: str, timeout: float = 600.0, stdin: str = "", limit: int = 1 << 20) -> Answer:
    return run_child([sys.executable, "-I", "-S", "-c", source], timeout, os.environ, stdin, limit)


def shell(source: str, timeout: float = 600.0, limit: int = 1 << 20) -> Answer:
    return run_child(["sh", "-c", source], timeout, os.environ, limit=limit)


def test_streams_status_and_environment_come_back() -> None:
    answer = run_child(["sh", "-c", "echo $WORD; echo oops >&2; exit 3"], 10, {"WORD": "héllo", "PATH": os.defpath})
    assert (answer.out, answer.err, answer.status) == ("héllo\n", "oops\n", 3)
    assert (answer.ok, answer.how, answer.cut, answer.stuck) == (False, "exit 3", False, None)
    text = "line\n" * 200_000
    assert python("import sys; print(len(sys.stdin.read()))", stdin=text).out == f"{len(text)}\n"
    assert python("print('busy')", stdin=text).out == "busy\n"
    assert python("import time; time.sleep(600)", timeout=1, stdin=text).status is None
    assert shell(r"printf '\377\000ok'").out == "\ufffd\0ok"


def test_what_cannot_be_started_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_child(["/nowhere/nvidia-smi"], 1, {})
    (tmp_path / "text").write_text("not a program\n")
    with pytest.raises(PermissionError):
        run_child([str(tmp_path / "text")], 1, {})


def test_a_child_that_will_not_end_is_ended_in_time() -> None:
    source = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    answer = python(source, timeout=2)
    assert (answer.status, answer.out) == (None, "deaf\n")
    assert answer.how == "stopped after 2 s"
    answer = shell("echo bye; exec >&- 2>&-; sleep 600", timeout=1)
    assert (answer.out, answer.status) == ("bye\n", None)


def test_a_child_that_falls_silent_is_ended_before_its_time() -> None:
    speaks = "[(print(n, flush=True), time.sleep(0.6)) for n in range(4)]"
    source = f"import time; time.sleep(2.1); {speaks}; time.sleep(600)"
    answer = run_child([sys.executable, "-I", "-S", "-c", source], 600, os.environ, silence=2)
    assert (answer.status, answer.out) == (None, "0\n1\n2\n3\n")
    assert answer.seconds < SOON


def test_who_watches_hears_each_line_as_it_comes_and_may_end_it() -> None:
    heard: list[str | None] = []

    def watch(line: str | None) -> bool:
        heard.append(line)
        return line != "2"

    source = "import time; [(print(n, flush=True), time.sleep(0.1)) for n in range(6000)]"
    answer = run_child([sys.executable, "-I", "-S", "-c", source], 600, os.environ, watch=watch)
    assert [line for line in heard if line is not None][:3] == ["0", "1", "2"]
    assert answer.status is None
    assert answer.seconds < SOON


def test_who_watches_hears_what_was_printed_before_the_end() -> None:
    """A busy machine may be late in reading it: what a kernel measured before Ctrl-C is not lost."""
    heard: list[str | None] = []

    def watch(line: str | None) -> bool:
        heard.append(line)
        return line is None

    source = "import time; print('0\\n1\\n2', flush=True); time.sleep(600)"
    run_child([sys.executable, "-I", "-S", "-c", source], 600, os.environ, watch=watch)
    assert [line for line in heard if line is not None] == ["0", "1", "2"]


def test_who_watches_is_asked_while_nothing_is_said() -> None:
    silences: list[str | None] = []

    def watch(line: str | None) -> bool:
        silences.append(line)
        return len(silences) < 3

    answer = run_child(["sleep", "600"], 600, os.environ, watch=watch)
    assert (answer.status, silences) == (None, [None, None, None])
    assert answer.seconds < SOON


def test_a_flood_is_stopped_at_the_limit() -> None:
    answer = run_child(["yes"], 600, os.environ, limit=100_000)
    assert (len(answer.out), answer.status, answer.cut) == (100_000, None, True)
    assert answer.how == "stopped for printing without end"
    answer = shell("echo first; exec yes >&2", limit=50_000)
    assert (answer.out, len(answer.err), answer.cut) == ("first\n", 50_000, True)


def test_a_grandchild_that_holds_the_pipe_is_not_waited_for() -> None:
    answer = shell("sleep 6000 & echo $!")
    assert answer.status == 0
    assert answer.seconds < SOON
    assert gone(int(answer.out))


def test_a_grandchild_of_a_session_of_its_own_is_not_waited_for_either() -> None:
    answer = python(
        "import subprocess, sys\n"
        "print(subprocess.Popen(['sleep', '6000'], start_new_session=True, stderr=sys.stderr).pid)"
    )
    assert (answer.status, answer.err) == (0, "")
    assert answer.seconds < SOON
    os.kill(int(answer.out), 9)


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (9, "SIGKILL")])
def test_a_signal_is_named(number: int, name: str) -> None:
    answer = python(f"import os; print('before', flush=True); os.kill(os.getpid(), {number})")
    assert (answer.status, answer.how, answer.out) == (-number, f"killed by {name}", "before\n")


def test_nothing_stays_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for source in ("true", "sleep 600 &", "yes", "exec >&-; sleep 600"):
        shell(source, timeout=0.3, limit=1000)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_child_in_state_d(tmp_path: Path) -> None:
    (tmp_path / "blocks.c").write_text(D_STATE)
    subprocess.run(["cc", "-o", tmp_path / "blocks", tmp_path / "blocks.c"], check=True)
    answer = run_child([str(tmp_path / "blocks")], 1, os.environ)
    assert (answer.out, answer.status, answer.stuck) == ("about to block\n", None, None)


@contextmanager
def icebox() -> Iterator[Path]:
    """A freezer cgroup of version 1, the one place where even SIGKILL has to wait."""
    folder = FREEZER / f"child-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer of cgroups version 1 that we may use: {error}")
    try:
        yield folder
    finally:
        (folder / "freezer.state").write_text("THAWED")
        until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_a_child_that_cannot_be_killed_is_named_and_left() -> None:
    with icebox() as folder:
        freeze = f"echo $$ > {folder}/cgroup.procs; echo in; echo FROZEN > {folder}/freezer.state; sleep 600"
        answer = shell(freeze, timeout=2)
        assert (answer.out, answer.status) == ("in\n", None)
        assert answer.stuck is not None
        assert is_alive(answer.stuck)
        assert answer.how == f"could not be stopped (pid {answer.stuck} is left behind)"
    assert gone(answer.stuck)


def test_an_interrupted_diagnosis_takes_its_children_along(tmp_path: Path) -> None:
    source = (
        "import os, sys, threading, time\n"
        "from gpudoctor.target.child import run_child\n"
        "child = ['sh', '-c', 'echo $$ > \"$0\"; sleep 600', sys.argv[1]]\n"
        "threading.Thread(target=run_child, args=(child, 60, os.environ), daemon=True).start()\n"
        "while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]): time.sleep(0.01)\n"
        "raise KeyboardInterrupt\n"
    )
    argv = [sys.executable, "-c", source, str(tmp_path / "pid")]
    ended = subprocess.run(argv, stderr=subprocess.PIPE, timeout=600, check=False)
    assert b"KeyboardInterrupt" in ended.stderr
    assert gone(int((tmp_path / "pid").read_text()))


class World:
    """A clock, and a child that has done so much by now."""

    def __init__(self, most: float = 120.0, still: float = IDLE_SECONDS) -> None:
        self.now, self.work = 1000.0, Work()
        self.waiting = Waiting(most, still, measure=lambda _: self.work, clock=lambda: self.now)
        self.waiting.pid = 1 << 30

    def pass_by(
        self, seconds: int, seconds_of_work: float = 0.0, read: int = 0, pages: int = 0, runnable: bool = False
    ) -> bool:
        """So many seconds, in each of which it does so much; whether it is waited for."""
        for _ in range(seconds):
            self.now += 1
            before = self.work
            self.work = Work(before.seconds + seconds_of_work, before.read + read, before.pages + pages, runnable)
            if not self.waiting(None) or self.waiting.why:
                return False
        return True


def test_what_computes_reads_or_waits_for_a_busy_processor_is_waited_for_to_the_limit() -> None:
    for signs in ({"seconds_of_work": 0.05}, {"read": 4096}, {"pages": 1}, {"runnable": True}):
        world = World()
        assert world.pass_by(119, **signs)
        assert not world.pass_by(3, **signs)
        assert world.waiting.why == "given up after 121 s, still at work"


def test_what_does_nothing_is_given_up_sooner() -> None:
    world = World()
    assert world.pass_by(20, seconds_of_work=1)
    assert world.pass_by(29)
    assert not world.pass_by(3)
    assert world.waiting.why == "given up after 51 s, the last 30 s without a sign of work"


def test_half_a_minute_without_a_sign_of_work_is_enough() -> None:
    assert World().pass_by(29)
    assert not World().pass_by(32)


def test_to_poll_in_sleep_or_the_work_of_others_is_no_sign_of_work() -> None:
    world = World()
    assert not world.pass_by(40, seconds_of_work=0.001, read=8)
    assert work_of(os.getppid()) is None
    assert work_of(1 << 30) is None


def test_a_line_is_a_sign_of_work_and_a_step_has_seconds_of_its_own() -> None:
    world = World()
    assert world.pass_by(25)
    assert world.waiting("@gpudoctor {}")
    assert world.pass_by(25)
    world.waiting.begin(300.0, 200.0)
    assert world.pass_by(199)
    assert not world.pass_by(3)


def test_what_cannot_be_seen_has_all_its_time() -> None:
    world = World()
    world.work = None  # type: ignore[assignment]
    for _ in range(119):
        world.now += 1
        assert world.waiting(None)
    assert not world.waiting.why


def test_who_is_given_up_has_a_moment_to_say_where_it_is() -> None:
    world = World()
    assert not world.pass_by(32)
    assert world.waiting(None)
    world.now += 2
    assert not world.waiting(None)


def test_the_work_of_a_real_process_and_its_child() -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass\ninput()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    runnable = False
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        work = work_of(process.pid)
        while work and work.seconds < 0.2:
            work = work_of(process.pid)
            runnable = runnable or bool(work and work.runnable)
        process.communicate(b"\n", timeout=600)
    assert work
    assert work.read > 0
    assert runnable
