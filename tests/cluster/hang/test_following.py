"""Real processes that are followed: what the kernel alone tells shows at once, the rest when stacks are read."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudoctor.cluster.running_job.following import Following, Look
from gpudoctor.core.fact import Row, Unread, listed, text_of, value_of
from gpudoctor.core.sample import GPU, Process, Sample
from gpudoctor.probes._job.members import Job, read_job
from tests import needs
from tests.cluster.hang.test_bad_input import SLEEP, Ranks, sleeping


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with sleeping(3) as started:
        yield started


def following(ranks: Ranks) -> Following:
    """What follows them; each is named, for what this process has started is else not part of it."""
    pids = [rank.pid for rank in ranks.ranks]
    job = read_job(pids)
    assert isinstance(job, Job)
    return Following("job", job, lambda known: read_job([*pids, *known]))


def until(follow: Following, holds: Callable[[Look], bool], sample: Sample | None = None, read: bool = False) -> Look:
    """The first look of which that holds."""
    deadline = time.monotonic() + 600
    while True:
        look = follow.look(sample, read)
        if holds(look):
            return look
        assert time.monotonic() < deadline, look.diagnosis.snapshot.to_json()
        time.sleep(0.1)


def rows(look: Look) -> list[Row]:
    """The ranks, by their numbers."""
    return list(listed(look.diagnosis.snapshot.rows("rank")))


def states(look: Look) -> list[str]:
    """What each rank does."""
    return [text_of(row.get("state")) for row in rows(look)]


def test_nothing_is_judged_before_the_first_reading_has_ended(ranks: Ranks) -> None:
    look = following(ranks).look(None, True)
    assert (look.reading, look.read_at, look.ended) == (True, 0.0, False)
    assert look.diagnosis.verdict == "unknown"
    assert not look.diagnosis.findings
    assert len(rows(look)) == 3


def test_a_rank_that_is_stopped_shows_at_once_and_its_stacks_are_read_again(ranks: Ranks) -> None:
    needs.program("py-spy")
    follow = following(ranks)
    first = until(follow, lambda look: bool(look.read_at))
    assert states(first) == ["sleeps"] * 3
    ranks.ranks[1].send_signal(signal.SIGSTOP)
    stopped = until(follow, lambda look: states(look)[1] == "stopped")
    assert stopped.read_at == first.read_at
    assert [finding.id for finding in stopped.diagnosis.findings] == ["workload.rank-stopped"]
    assert until(follow, lambda look: look.read_at > first.read_at).diagnosis.findings
    ranks.ranks[1].send_signal(signal.SIGCONT)
    again = until(follow, lambda look: states(look) == ["sleeps"] * 3 and not look.reading)
    assert not again.diagnosis.findings


@pytest.mark.parametrize(("number", "says"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM")])
def test_how_a_rank_ended_is_read_before_its_parent_takes_it(ranks: Ranks, number: int, says: str) -> None:
    follow = following(ranks)
    until(follow, lambda look: bool(look.read_at))
    ranks.ranks[2].send_signal(number)
    look = until(follow, lambda look: states(look)[2] == "gone")
    assert text_of(rows(look)[2].get("exit")) == says
    ranks.ranks[2].wait()
    later = until(follow, lambda look: not look.reading, read=True)
    assert text_of(rows(later)[2].get("exit")) == says
    assert not later.ended


def test_a_job_whose_processes_have_all_gone_has_ended() -> None:
    with sleeping(1) as started:
        follow = following(started)
        until(follow, lambda look: bool(look.read_at))
        started.ranks[0].kill()
        look = until(follow, lambda look: look.ended)
        assert (look.exit, states(look)) == ("SIGKILL", ["gone"])
    assert until(follow, lambda look: look.ended).exit == "SIGKILL"


def test_exit_codes_are_told_from_signals() -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"], stdin=read_end)
    os.close(read_end)
    job = read_job([process.pid])
    assert isinstance(job, Job)
    follow = Following("job", job, lambda known: read_job([process.pid, *known]))
    until(follow, lambda look: bool(look.read_at))
    os.close(write_end)
    assert until(follow, lambda look: look.ended).exit == "exit code 3"
    process.wait()


def test_a_rank_that_comes_later_is_taken_in(ranks: Ranks) -> None:
    follow = following(ranks)
    until(follow, lambda look: bool(look.read_at))
    environ = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": ranks.port}
    late = subprocess.Popen(
        [sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    ranks.ranks.append(late)
    pids = [rank.pid for rank in ranks.ranks]
    follow._find = lambda known: read_job([*pids, *known])
    look = until(follow, lambda look: len(rows(look)) == 4, read=True)
    assert [value_of(row.get("rank")) for row in rows(look)] == [0, 1, 2, 3]


def test_stacks_are_of_all_threads_now(ranks: Ranks) -> None:
    needs.program("py-spy")
    follow = following(ranks)
    until(follow, lambda look: bool(look.read_at))
    ((member, stacks),) = follow.stacks(ranks.pid)
    assert member.pid == ranks.pid
    assert not isinstance(stacks, Unread)
    assert stacks.threads
    ranks.ranks[0].kill()
    until(follow, lambda look: states(look)[0] == "gone")
    assert follow.stacks(ranks.pid) == []


def test_without_py_spy_it_says_what_to_install(ranks: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    look = until(following(ranks), lambda look: bool(look.read_at))
    (unseen,) = look.diagnosis.snapshot.texts("job.unseen")
    assert unseen == "ranks 0-2: py-spy is not installed: pip install 'gpudoctor[job]'"
    assert look.diagnosis.verdict == "unknown"


def test_numbers_of_gpus_are_unread_while_nvml_is_silent(ranks: Ranks) -> None:
    follow = following(ranks)
    pids = [rank.pid for rank in ranks.ranks]
    gpus = tuple(
        GPU(at, "H100", utilization=90.0, processes=(Process(pid, memory_mib=1024),)) for at, pid in enumerate(pids)
    )
    look = until(follow, lambda look: bool(look.read_at), Sample(1.0, gpus))
    assert [(value_of(row.get("gpu")), value_of(row.get("gpu_busy"))) for row in rows(look)] == [
        (0, 90),
        (1, 90),
        (2, 90),
    ]
    silent = follow.look(Sample(2.0, trouble="nvmlDeviceGetName of GPU 1 has not returned"), False)
    for at, row in enumerate(rows(silent)):
        assert value_of(row.get("gpu")) == at
        busy = row.get("gpu_busy")
        assert isinstance(busy, Unread)
        assert "has not returned" in busy.why


def test_jobs_are_found_by_what_launchers_set_and_by_who_uses_a_gpu(ranks: Ranks) -> None:
    alone = subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE)
    try:
        assert alone.stdout
        alone.stdout.readline()
        source = (
            "import json; from gpudoctor.probes._job.members import find_jobs\n"
            f"for users in ((), ({alone.pid},)):\n"
            "    print(json.dumps([[rank.member.pid for rank in job.ranks] for job in find_jobs(users)]))"
        )
        environ = {**os.environ, "PYTHONPATH": str(needs.REPOSITORY)}
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=environ)
        without, within = map(json.loads, done.stdout.splitlines())
        assert [rank.pid for rank in ranks.ranks] in without
        assert [alone.pid] not in without
        assert [alone.pid] in within
    finally:
        alone.kill()
        alone.communicate()
