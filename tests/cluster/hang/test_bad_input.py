"""What `gpudoctor job` says of processes that end, hide, are no Python or too many, and where its helpers fail."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import live_gpus
from gpudoctor.cluster.running_job import looking
from gpudoctor.cluster.running_job.job_diagnosis import compared, diagnose, ranges
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Unread, Value, texts_of, value_of
from gpudoctor.core.language import speaking
from gpudoctor.core.shipped import own_command
from gpudoctor.probes._job import stacks
from gpudoctor.probes._job.members import Job, read_job
from gpudoctor.probes._job.waiting import on_gpu, wait_of
from gpudoctor.target import proc
from gpudoctor.views import job as view
from tests import needs
from tests.cluster.hang.jobs import asked
from tests.conftest import Program
from tests.processes import until

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"


class Ranks:
    """Processes that were started as ranks of one job."""

    def __init__(self, argvs: Sequence[Sequence[str]]) -> None:
        self.port = str(os.getpid())
        self.ranks = [self._start(rank, argv, len(argvs)) for rank, argv in enumerate(argvs)]

    def _start(self, rank: int, argv: Sequence[str], world: int) -> subprocess.Popen[str]:
        own = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "n1", "MASTER_PORT": self.port}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **own})

    @property
    def pid(self) -> int:
        """The first one's process."""
        return self.ranks[0].pid

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill and collect them."""
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            if rank.stdout:
                rank.stdout.close()


@contextmanager
def sleeping(count: int) -> Iterator[Ranks]:
    """So many ranks, each a Python that sleeps."""
    with Ranks([[sys.executable, "-c", SLEEP]] * count) as started:
        for rank in started.ranks:
            assert rank.stdout
            rank.stdout.readline()
        yield started


@pytest.fixture
def sleeper() -> Iterator[Ranks]:
    with sleeping(1) as started:
        yield started


def job_of(pid: int) -> Job:
    """The job of that process."""
    job = read_job([pid])
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize(("name", "is_python"), [("python3.13", True), ("python3.13t", True), ("pythonista", False)])
def test_a_python_without_a_global_lock_is_one(tmp_path: Path, name: str, is_python: bool) -> None:
    """By the name of its executable, which free-threaded builds end with a t."""
    program = tmp_path / name
    shutil.copy(needs.program("sleep"), program)
    with Ranks([[str(program), "600"]]) as started:
        (member,) = job_of(started.pid).members.values()
        assert member.is_python is is_python


def test_a_file_that_is_to_be_cut_is_named_by_its_path(tmp_path: Path) -> None:
    """truncate(2) takes no descriptor; it waits for us to give up our lease on the file."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    (tmp_path / "checkpoint").touch()
    with (tmp_path / "checkpoint").open("rb") as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        argv = [sys.executable, "-c", f"import os; os.truncate({str(tmp_path / 'checkpoint')!r}, 0)"]
        with subprocess.Popen(argv) as process:
            assert until(lambda: "break_lease" in getattr(wait_of(process.pid), "where", ""))
            wait = wait_of(process.pid)
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    signal.signal(signal.SIGIO, before)
    assert wait
    assert (wait.kind, wait.what) == ("file", str(tmp_path / "checkpoint"))


def rows(document: Any) -> list[Mapping[str, Any]]:
    """The rows of its ranks."""
    return list(document["facts"]["rank"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--json",), "job: give a process id of a job (gpudoctor job lists them)"),
        ((str(2**22 + 1),), "no process 4194305"),
        (("1", "--match", "A=b"), "a PID is of this machine"),
        (("--match", "A"), "a variable is written NAME=VALUE"),
        (("--match", "NOSUCH=1", "--look", "0.2"), "no process of this machine was started with NOSUCH=1"),
        (("1", "--slurm", "7", "--hosts", "n1"), "give one of --slurm JOBID and --hosts NODESET"),
    ],
)
def test_misuse(words: Sequence[str], says: str, called: Program) -> None:
    ran = called("job", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.parametrize("count", [1, 2])
def test_without_a_job_those_of_this_machine_are_named_with_what_to_type(count: int, gpudoctor: Program) -> None:
    title = f"{Path(sys.executable).name} -c"
    with subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE) as alone, sleeping(count) as job:
        assert alone.stdout
        alone.stdout.readline()
        ran = gpudoctor("job")
        alone.kill()
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    ranks = f"2 ranks: {title}" if count == 2 else f"1 rank: {title}"
    parent = f", started by process {os.getpid()}" if count == 2 else ""
    assert f"  gpudoctor job {job.pid}    {ranks}, in {Path.cwd()}{parent}" in lines
    assert not any(f"gpudoctor job {alone.pid} " in line for line in lines)


@pytest.mark.parametrize(
    ("file", "expected"), [("/dev/nvidia0", True), ("/dev/nvidiactl", False), ("/dev/nvidia-uvm", False)]
)
def test_a_process_is_on_a_gpu_with_the_device_file_of_one_open(
    file: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "link", lambda _: file)
    assert on_gpu(os.getpid()) is expected


def test_it_ends_while_it_is_looked_at() -> None:
    with sleeping(1) as sleeper:
        job = job_of(sleeper.pid)
    looked = looking.look(job, 0.2, stop=threading.Event())
    (row,) = looked.rows
    assert value_of(row["state"]) == "gone"
    assert value_of(row["pid"]) == sleeper.pid


def test_a_zombie_is_no_rank(called: Program) -> None:
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    try:
        ran = called("job", str(dead.pid), "--look", "0.2", "--json")
        assert ran.code == 3
        assert rows(ran.document) == []
    finally:
        dead.wait()


def test_another_users_process_is_not_seen_and_that_is_said(sleeper: Ranks) -> None:
    if os.geteuid():
        needs.missing("root, to become another user")
    needs.program("py-spy")
    user = [needs.program("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]
    argv = [*user, *own_command(), "job", str(sleeper.pid), "--look", "0.2"]
    home = {**os.environ, "HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600, env=home)
    assert done.returncode == 3, done.stderr
    assert "Not seen: process" in done.stdout
    assert "run gpudoctor job as root" in done.stdout or "run as root" in done.stdout
    assert "0 found" in done.stdout


def test_a_program_that_is_no_python() -> None:
    needs.program("py-spy")
    with Ranks([["sleep", "600"]]) as ranks:
        document = asked(str(ranks.pid), "--look", "0.2")
        (row,) = rows(document)
        assert row["unseen"]["value"] == "no Python interpreter is in it"
        assert row["state"]["value"] == "sleeps"
        assert document["verdict"] == "unknown"


@pytest.mark.full
def test_512_ranks_are_all_looked_at() -> None:
    with Ranks([["sleep", "600"]] * 512) as ranks:
        found = rows(asked(str(ranks.pid)))
        assert [row["rank"]["value"] for row in found] == list(range(512))
        assert {row["state"]["value"] for row in found} == {"sleeps"}


def test_py_spy_hangs(sleeper: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hung = tmp_path / "py-spy"
    hung.write_text("#!/bin/sh\nexec sleep 600\n")
    hung.chmod(0o755)
    monkeypatch.setattr(looking, "find_program", lambda _: str(hung))
    monkeypatch.setattr(stacks, "_PY_SPY_SECONDS", 0.3)
    (row,) = looking.look(job_of(sleeper.pid), 0.2).rows
    stack = row["stack"]
    assert isinstance(stack, Unread)
    assert stack.reason is Reason.TIMED_OUT
    assert value_of(row["waits_in"]) == "sleep"


def test_nvml_hangs_meanwhile(sleeper: Ranks, called: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_gpus, "has_gpus", lambda: True)
    monkeypatch.setattr(live_gpus, "child_argv", lambda *_: ["sleep", "600"])
    ran = called("job", str(sleeper.pid), "--look", "0.2", "--json")
    (row,) = rows(ran.document)
    assert "absent" in row["gpu"]
    assert row["waits_in"]["value"] == "sleep"


def test_processes_are_found_by_what_they_were_started_with(sleeper: Ranks) -> None:
    (row,) = rows(asked("--match", f"MASTER_PORT={sleeper.port}", "--match", "MASTER_ADDR=n1", "--look", "0.2"))
    assert (row["rank"]["value"], row["pid"]["value"]) == (0, sleeper.pid)
    assert rows(asked("--match", "MASTER_PORT=none", "--look", "0.2")) == []


def row(rank: int, state: str, still: bool = True, **more: Value) -> Row:
    """A rank's row."""
    facts: dict[str, Fact] = {
        "rank": Known(rank, "test"),
        "world": Known(4, "test"),
        "host": Known("n1", "test"),
        "pid": Known(100 + rank, "test"),
        "state": Known(state, "test"),
        "still": Known(still, "test"),
        "unseen": Absent("it is known"),
        "collective": Known("all_reduce", "test") if state == "waits" else Absent("in none"),
        "place": Known("train (train.py:41)" if state == "waits" else "load (data.py:9)", "test"),
    }
    return {**facts, **{name: Known(value, "test") for name, value in more.items()}}


def waiting(*ranks: int) -> list[Row]:
    """Ranks that wait in a collective, all the time."""
    return [row(rank, "waits") for rank in ranks]


def awaited(rows: Sequence[Row]) -> list[object]:
    """The ranks that the others wait for."""
    _, groups = compared(rows, 8.0)
    return [value_of(one["rank"]) for one in groups["rank"] if value_of(one["awaited"])]


ALL = ("loads", "sleeps", "locked", "reads", "listens", "idles", "stopped", "frozen", "gone")
GOING = (row(3, "computes", False), row(3, "moves", False), row(3, "waits", False))
HIDDEN: dict[str, Any] = {"unseen": "py-spy was stopped after 5 s", "place": ""}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        *(([*waiting(0, 1, 3), row(2, state)], [2]) for state in ALL),
        *(([*waiting(0, 1), row(2, state), going], []) for state in ("loads", "sleeps", "gone") for going in GOING),
        *(([row(0, "moves", False), row(1, "computes", False), row(2, state)], [2]) for state in ("stopped", "frozen")),
        # Where the stack is hidden: not for what collectives do, too, but for what the kernel tells by itself.
        *(([*waiting(0, 1, 3), row(2, state, **HIDDEN)], []) for state in ("locked", "sleeps", "listens", "idles")),
        *(([*waiting(0, 1, 3), row(2, state, **HIDDEN)], [2]) for state in ("stopped", "frozen", "gone", "reads")),
        ([row(0, "sleeps"), row(1, "sleeps")], []),
        ([row(0, "moves", False), row(1, "gone")], []),
        (waiting(0, 1, 2, 3), []),
        ([], []),
    ],
)
def test_who_stands_still_is_awaited_by_those_who_wait_unless_one_goes_on(rows: list[Row], named: list[int]) -> None:
    assert awaited(rows) == named


def test_of_ranks_in_two_collectives_the_fewer_are_named() -> None:
    other = row(2, "waits", collective="broadcast")
    facts, _ = compared([*waiting(0, 1, 3), other], 8.0)
    assert value_of(facts["job.differing"]) is True
    assert awaited([*waiting(0, 1, 3), other]) == [2]
    assert awaited([*waiting(0, 1), other, row(3, "waits", collective="broadcast")]) == []


def test_ranks_that_are_not_seen_are_told_by_reason() -> None:
    hidden: dict[str, Any] = {"unseen": "py-spy is not installed", "place": ""}
    facts, _ = compared([row(0, "idles", **hidden), row(1, "idles", **hidden), row(2, "gone", **hidden)], 8.0)
    assert texts_of(facts["job.unseen"]) == ("ranks 0-1: py-spy is not installed",)


def test_numbers_are_folded() -> None:
    assert ranges([0]) == "0"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


def report(rows: Sequence[Row], silent: dict[str, str] | None = None) -> str:
    """The report's text, on one line."""
    diagnosis = diagnose("job of process 100", rows, 8.0, {"job.ras": Unread("not asked")}, (), silent=silent or {})
    return " ".join(view.render(diagnosis).split())


def test_the_report_says_whom_they_wait_for() -> None:
    text = report([*waiting(0, 1, 3), row(2, "sleeps", gpu=2)])
    assert "4 ranks on n1, looked at for 8.0 s Ranks 0-1, 3 wait in all_reduce, for rank 2" in text
    assert "Rank 2 (pid 102 on n1, GPU 2): sleeps at load (data.py:9)" in text
    assert "Ranks 0-1, 3: wait in all_reduce at train (train.py:41)" in text


def test_the_report_of_a_job_is_chinese_throughout() -> None:
    with speaking("zh"):
        hidden: dict[str, Any] = {"unseen": "py-spy is not installed: pip install 'gpudoctor[job]'", "place": ""}
        text = report([*waiting(0, 1, 3), row(2, "sleeps", gpu=2), row(5, "idles", **hidden)], {"n7": "ssh: no route"})
        going = report([*waiting(0, 1), row(2, "computes", False)])
    assert "：进程 100 的作业，n1 上有 5 个 rank，观察了 8.0 s" in text
    assert "rank 0-1, 3 在 all_reduce 中等待，等的是 rank 2" in text.lower()
    assert "Rank 2（n1 上的 pid 102，GPU 2）：在睡眠，位置是 load (data.py:9)" in text
    assert "Rank 0-1, 3：在等待（all_reduce），位置是 train (train.py:41)" in text
    assert "没有看到：rank 5：没有安装 py-spy" in text
    assert "没有看到：主机 n7：ssh: no route" in text
    assert "Rank 0-1 在 all_reduce 中等待；rank 2 还在运行" in going


def test_a_process_that_nobody_numbers_is_named_once_and_with_its_command() -> None:
    unnumbered: Row = {"rank": Absent("no launcher numbers it"), "process": Known("python3 train.py", "test")}
    text = report([{**row(0, "sleeps"), **unnumbered}])
    assert "Process 100 (python3 train.py on n1): sleeps" in text
    assert "pid 100" not in text


def test_a_process_is_named_by_what_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time; print('up', flush=True); time.sleep(600)", "utf-8")
    python = Path(sys.executable).name
    for words, title in (
        (["-u", "-X", "dev", str(script), "--token", "x"], f"{python} train.py"),
        (["-um", "train"], f"{python} -m train"),
        (["-c", script.read_text("utf-8")], f"{python} -c"),
    ):
        with subprocess.Popen([sys.executable, *words], cwd=tmp_path, stdout=subprocess.PIPE) as started:
            assert started.stdout
            started.stdout.readline()
            assert [rank.member.title for rank in job_of(started.pid).ranks] == [title]
            started.kill()


def test_the_report_says_that_none_is_found() -> None:
    assert "The job goes on: no rank is found" in report([row(0, "moves", False), row(1, "computes", False)])
    assert "Ranks 0-1 wait in all_reduce; rank 2 goes on" in report([*waiting(0, 1), row(2, "computes", False)])
    assert "All 4 ranks wait in all_reduce at the same line" in report(waiting(0, 1, 2, 3))


def test_a_host_that_gives_no_answer_is_named() -> None:
    text = report(waiting(0, 1), {"n7": "ssh: no route to host"})
    assert "Not seen: host n7: ssh: no route to host" in text
    assert "0 found" in text
