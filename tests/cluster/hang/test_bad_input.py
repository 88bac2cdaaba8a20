"""What `gpudoctor job` says of processes that end, hide, are no Python or too many, and where its helpers fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import live
from gpudoctor.cluster.running import looking
from gpudoctor.core.fact import Known, Reason, Unread, value_of
from gpudoctor.core.shipped import own_command
from gpudoctor.probes._job import stacks
from gpudoctor.probes._job.members import Job, read_job
from tests import needs
from tests.cluster.hang.jobs import asked
from tests.conftest import Program

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

    def end(self) -> None:
        """Kill and collect them."""
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            if rank.stdout:
                rank.stdout.close()


@pytest.fixture
def sleeper() -> Iterator[Ranks]:
    """One rank, a Python that sleeps."""
    ranks = Ranks([[sys.executable, "-c", SLEEP]])
    assert ranks.ranks[0].stdout
    ranks.ranks[0].stdout.readline()
    yield ranks
    ranks.end()


def job_of(pid: int) -> Job:
    """The job of that process."""
    job = read_job([pid])
    assert isinstance(job, Job)
    return job


def rows(document: Any) -> list[Mapping[str, Any]]:
    """The rows of its ranks."""
    return list(document["facts"]["rank"])


def test_no_such_process(called: Program) -> None:
    ran = called("job", str(2**22 + 1))
    assert (ran.code, ran.out) == (2, "")
    assert "no process 4194305" in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give the process id of the job"),
        (("1", "--match", "A=b"), "a PID is of this machine"),
        (("--match", "A"), "a variable is written NAME=VALUE"),
        (("1", "--slurm", "7", "--hosts", "n1"), "give one of --slurm JOBID and --hosts NODESET"),
    ],
)
def test_misuse(words: Sequence[str], says: str, called: Program) -> None:
    ran = called("job", *words)
    assert ran.code == 2
    assert says in ran.err


def test_it_ends_while_it_is_looked_at(sleeper: Ranks) -> None:
    job = job_of(sleeper.pid)
    stop = threading.Event()
    sleeper.end()
    looked = looking.look(job, 0.2, stop=stop)
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
    ranks = Ranks([["sleep", "600"]])
    try:
        document = asked(str(ranks.pid), "--look", "0.2")
        (row,) = rows(document)
        assert row["unseen"]["value"] == "no Python interpreter is in it"
        assert row["state"]["value"] == "sleeps"
        assert document["verdict"] == "unknown"
    finally:
        ranks.end()


@pytest.mark.full
def test_512_ranks_are_all_looked_at() -> None:
    ranks = Ranks([["sleep", "600"]] * 512)
    try:
        found = rows(asked(str(ranks.pid)))
        assert [row["rank"]["value"] for row in found] == list(range(512))
        assert {row["state"]["value"] for row in found} == {"sleeps"}
    finally:
        ranks.end()


def test_py_spy_is_missing(sleeper: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Unread("py-spy is not installed: pip install 'gpudoctor[job]'", reason=Reason.MISSING)
    monkeypatch.setattr(looking, "find_program", lambda _: missing)
    (row,) = looking.look(job_of(sleeper.pid), 0.2).rows
    assert row["unseen"] == Known(missing.why, "py-spy")
    assert row["stack"] == missing
    assert value_of(row["state"]) == "sleeps"
    assert value_of(row["kernel_state"]) == "S"


def test_py_spy_hangs(sleeper: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hung = tmp_path / "py-spy"
    hung.write_text("#!/bin/sh\nexec sleep 600\n")
    hung.chmod(0o755)
    monkeypatch.setattr(looking, "find_program", lambda _: str(hung))
    monkeypatch.setattr(stacks, "_SECONDS", 0.3)
    (row,) = looking.look(job_of(sleeper.pid), 0.2).rows
    stack = row["stack"]
    assert isinstance(stack, Unread)
    assert stack.reason is Reason.TIMED_OUT
    assert value_of(row["waits_in"]) == "sleep"


def test_nvml_hangs_meanwhile(sleeper: Ranks, called: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "has_gpus", lambda: True)
    monkeypatch.setattr(live, "child_argv", lambda *_: ["sleep", "600"])
    ran = called("job", str(sleeper.pid), "--look", "0.2", "--json")
    (row,) = rows(ran.document)
    assert "absent" in row["gpu"]
    assert row["waits_in"]["value"] == "sleep"


def test_processes_are_found_by_what_they_were_started_with(sleeper: Ranks) -> None:
    (row,) = rows(asked("--match", f"MASTER_PORT={sleeper.port}", "--match", "MASTER_ADDR=n1", "--look", "0.2"))
    assert (row["rank"]["value"], row["pid"]["value"]) == (0, sleeper.pid)
    assert rows(asked("--match", "MASTER_PORT=none", "--look", "0.2")) == []
