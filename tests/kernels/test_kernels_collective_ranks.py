"""Ranks: whichever fails, dies or hangs is named with its last step, and none is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.kernels import runner
from gpudoctor.kernels.child import _ranks
from gpudoctor.kernels.child._kernel import CannotRun
from tests.processes import gone, is_alive, marked, until

HERE = {"PYTHONPATH": str(Path(__file__).parent)}


def _argv(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def _together(*do: str, seconds: float = 300.0, **more: str) -> list[_ranks.End]:
    return _ranks.run_ranks("ranks_job", len(do), {"do": do, **more}, seconds, HERE)


def test_each_rank_knows_its_number_and_answers() -> None:
    ends = _ranks.run_ranks("ranks_job", 3, {"do": ["", "", ""]}, 300.0, {**HERE, "NOISY": "yes"})
    answers = _ranks.answers(ends)
    assert [(one["rank"], one["count"], one["noisy"]) for one in answers] == [(at, 3, "yes") for at in range(3)]
    assert not any(is_alive(one["pid"]) for one in answers)
    assert "what libraries print" in ends[0].err


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("die", 'rank 1 was killed by SIGSEGV at "begin"'),
        ("leave", 'rank 1 ended with exit 3: some library: fatal at "begin"'),
        ("raise", 'rank 1 failed: ValueError: bad link at "begin"'),
    ],
)
def test_who_fails_is_named_before_those_that_wait_for_it(
    fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranks, "GRACE", 0.3)
    ends = _together("wait", fault, waiting=str(tmp_path / "waiting"))
    assert _ranks.faults(ends)[0].words == words
    with pytest.raises(RuntimeError) as raised:
        _ranks.answers(ends)
    assert str(raised.value) == f'{words}; rank 0 did not come to an end at "wait for the others"'


def test_who_is_ended_by_torch_for_waiting_in_vain_is_named_last() -> None:
    """torch's watchdog ends such a rank by SIGABRT, and no crash is at fault."""
    assert [end.words for end in _ranks.faults(_together("give up", "hang", seconds=2.0))] == [
        'rank 1 did not come to an end at "begin"',
        'rank 0 failed: collective operation timeout: WorkNCCL(OpType=ALLREDUCE) at "begin"',
    ]


def test_a_rank_that_is_killed_leaves_nothing_in_shared_memory() -> None:
    (end,) = _together("share", seconds=2.0)
    assert end.notes["path"].startswith("/dev/shm/nccl-")
    assert not Path(end.notes["path"]).exists()


def test_what_cannot_be_run_is_no_failure() -> None:
    with pytest.raises(CannotRun, match="nothing to do here"):
        _ranks.answers(_together("cannot", "cannot"))


@pytest.mark.parametrize("said", ["CUDA out of memory. Tried to allocate 2 GiB", "CUDA error: out of memory"])
def test_no_memory_is_no_failure_by_whatever_type_torch_tells_it(said: str) -> None:
    """torch 1.12 has no type of its own for that."""
    with pytest.raises(CannotRun, match=f"no memory is free for rank 1: RuntimeError: {said}"):
        _ranks.answers(_together("", said))


def test_ranks_share_the_processors_unless_the_user_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert [one["threads"] for one in _ranks.answers(_together("", ""))] == [share, share]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert [one["threads"] for one in _ranks.answers(_together("", ""))] == ["7", "7"]


def test_ranks_end_with_the_process_that_started_them() -> None:
    """It is killed, which leaves it no time to clean up."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(runner.program()).parent.parent)!r})
from child import _ranks
_ranks.run_ranks("ranks_job", 2, {{"do": ["hang", "hang"]}}, 600.0, {HERE!r})
"""
    mark = f"ranks of process {os.getpid()}."
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK": mark}) as parent:

        def started() -> list[int]:
            return [pid for pid in marked(mark) if pid != parent.pid and '"entry"' in _argv(pid)[-1]]

        there = until(lambda: len(started()) == 2)
        ranks = started()
        entries = [json.loads(_argv(pid)[-1])["entry"] for pid in ranks]
        parent.kill()
    assert there
    assert entries == ["_ranks"] * 2
    assert all(map(gone, ranks))
