"""The program on a terminal, following real jobs of four processes; and the thread that looks at them."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from gpudoctor.app import interactive, live_gpus
from gpudoctor.app.interactive import shared
from gpudoctor.app.live_job import Follower, OfManyMachines, OfThisMachine
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import listed
from gpudoctor.probes._job.members import read_job
from gpudoctor.views.tui.work import JobLook
from tests import needs
from tests.cluster.hang.jobs import running
from tests.cluster.hang.test_bad_input import Ranks, sleeping
from tests.conftest import Program
from tests.views.tui.conftest import WIDE
from tests.views.tui.jobs import recorded
from tests.views.tui.terminal import Terminal
from tests.views.tui.test_tmux import Opens, Window
from tests.views.tui.test_tmux import window as window

PROGRAM = f"{sys.executable} -m gpudoctor"


@pytest.fixture
def sleepers() -> Iterator[Ranks]:
    with sleeping(4) as started:
        yield started


def follower(ranks: Ranks) -> Follower:
    """What looks at them in a thread."""
    pids = [rank.pid for rank in ranks.ranks]
    return Follower(OfThisMachine(lambda known: read_job([*pids, *known])))


# ---- The thread ----


def test_it_tells_of_each_look_and_rests_where_nobody_sees_it(sleepers: Ranks) -> None:
    looks: list[JobLook] = []
    fresh = threading.Semaphore(0)

    def hear(look: JobLook) -> None:
        looks.append(look)
        fresh.release()

    watch = follower(sleepers).watch(hear)
    for _ in range(3):
        assert fresh.acquire(timeout=600)
    assert all(look.diagnosis for look in looks)
    watch.rest(True)
    while not looks[-1].read_at or looks[-1].reading:  # what it has begun it ends
        assert fresh.acquire(timeout=600)
    while fresh.acquire(timeout=3):
        pass
    count = len(looks)
    assert not fresh.acquire(timeout=3)
    watch.rest(False)
    assert fresh.acquire(timeout=600)
    assert len(looks) > count
    watch.stop()


def test_a_reading_waits_for_stacks_that_are_newer_than_it(sleepers: Ranks) -> None:
    looking = follower(sleepers)
    looks: list[JobLook] = []
    watch = looking.watch(looks.append)
    watch.rest(True)
    events: list[str] = []
    for _ in range(2):
        (diagnosis,) = looking.diagnoses(lambda event: events.append(event.state))
        assert diagnosis.snapshot.number("job.ranks") == 4
    assert events == ["started", "done"] * 2
    assert len({look.read_at for look in looks if look.read_at}) >= 2
    watch.stop()


def test_hosts_that_cannot_be_asked_are_trouble_and_asked_again_later() -> None:
    asked: list[int] = []

    def ask() -> Diagnosis:
        asked.append(len(asked))
        if len(asked) == 1:
            raise UsageError("job: --hosts needs ClusterShell")
        return recorded("data")

    looks: SimpleQueue[JobLook] = SimpleQueue()
    watch = Follower(OfManyMachines(ask)).watch(looks.put)
    look = looks.get(timeout=600)
    assert (look.trouble, look.diagnosis) == ("job: --hosts needs ClusterShell", None)
    watch.read()
    look = looks.get(timeout=600)
    assert (look.trouble, look.local, look.every) == ("", False, 30.0)
    assert look.diagnosis
    watch.stop()


def test_what_is_shared_names_no_host(sleepers: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "trainer-a17")
    looks: SimpleQueue[JobLook] = SimpleQueue()
    pids = [rank.pid for rank in sleepers.ranks]
    source = OfThisMachine(lambda known: read_job([*pids, *known]))
    work = shared(interactive.of_job("job", source, (), live_gpus.Shared()))
    assert work.job
    watch = work.job(looks.put)
    diagnosis = looks.get(timeout=600).diagnosis
    assert diagnosis
    rows = listed(diagnosis.snapshot.rows("rank"))
    assert len(rows) == 4
    assert "trainer-a17" not in json.dumps(diagnosis.to_json())
    assert watch.stacks(rows[0])
    watch.stop()


def test_no_such_process_is_said_before_a_screen_is_drawn(called: Program) -> None:
    ran = called("job", str(2**22 + 1), "--tui")
    assert (ran.code, ran.out) == (2, "")
    assert "no process 4194305" in ran.err
    with pytest.raises(UsageError, match="no process 4194305"):
        OfThisMachine(lambda known: read_job([2**22 + 1, *known]))


@pytest.mark.parametrize("words", [("--json",), ("-o", "x"), ("--format", "text")])
def test_the_interface_is_no_report(called: Program, words: tuple[str, ...]) -> None:
    ran = called("job", str(os.getpid()), "--tui", *words)
    assert ran.code == 2
    assert "--tui shows the interface" in ran.err


# ---- On a terminal ----


def test_a_rank_that_is_stopped_is_on_the_screen_and_its_end_too(sleepers: Ranks) -> None:
    needs.program("py-spy")
    with Terminal(["-m", "gpudoctor", "job", str(sleepers.pid), "--tui"], WIDE) as program:
        program.wait_for("READING", "sleeps")
        program.wait_for("stacks read")
        os.kill(sleepers.ranks[2].pid, signal.SIGSTOP)
        program.wait_for("stopped")
        program.wait_for(f"kill -CONT {sleepers.ranks[2].pid}")
        for rank in sleepers.ranks:
            rank.kill()
        program.wait_for("ENDED")
        program.type("q")
        assert program.ended(600) == 1


def awaited(lines: list[str]) -> bool:
    """Whether rank 2 is on top, with its marks and the finding below."""
    row = next((line for line in lines if "▸!◂" in line), "")
    return re.match(r"│ ▸!◂ +2 ", row) is not None and "ranks.py:" in row and "Found · 1" in "\n".join(lines)


@pytest.mark.full
def test_of_four_ranks_of_torch_the_one_that_waits_for_a_file_is_shown(window: Opens, tmp_path: Path) -> None:
    needs.program("py-spy")
    os.mkfifo(tmp_path / "sample")
    with running("data", tmp_path) as job:
        shown: Window = window(WIDE, f"{PROGRAM} job {job.pid} --tui", PYTHONPATH=str(needs.REPOSITORY))
        lines = shown.until(awaited)
        assert len(lines) <= WIDE[1]
        assert "Ranks 0-1, 3 wait in all_reduce, for rank 2" in lines[0]
        assert [("waits in all_reduce" in line) for line in lines[6:9]] == [True] * 3
        shown.type("Enter")
        shown.wait("Stacks of Rank 2", "MainThread")
        shown.type("Escape")
        shown.until(awaited)
        shown.type("q")
        shown.wait("ended with 0")
