"""What follows ``--`` becomes of each rank on go, as if nobody had checked anything before; on no-go it never runs."""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.cluster.net.hosts import PORT, Hosts
from tests.cluster.net.job import Job

pytestmark = pytest.mark.full

TELL = f"""
import json, os, resource, signal, socket, sys
if os.environ["RANK"] == "0":
    with socket.socket() as one:
        one.bind(("", {PORT}))  # without SO_REUSEADDR: nothing of the check is left on the job's port
        one.listen()
open_files = [int(name) for name in os.listdir("/proc/self/fd")]
print(json.dumps({{
    "rank": os.environ["RANK"],
    "mine": os.environ.get("MINE"),
    "cwd": os.getcwd(),
    "argv": sys.argv[1:],
    "stdin": sys.stdin.read(),
    "files": sorted(open_files)[:-1],
    "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    "blocked": [line for line in open("/proc/self/status") if line.startswith("SigBlk")],
}}), flush=True)
sys.exit(7)
"""
WAIT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))
print("waiting", flush=True)
time.sleep(60)
"""


def follows(*words: str) -> list[str]:
    """The words that have this Python run after the check."""
    return ["--", sys.executable, *words]


def test_on_go_it_runs_once_per_rank_in_its_own_place(two: Hosts) -> None:
    job = Job(two, follows("-c", TELL, "one", "two words"), env=lambda rank: {"MINE": f"of {rank}"})
    for rank, process in job.ranks.items():
        assert process.stdin
        process.stdin.write(f"for rank {rank}")
    ended = job.ended()
    for rank, one in ended.items():
        assert one.code == 7, one.err
        said: dict[str, Any] = json.loads(one.out)
        assert said == {
            "rank": str(rank),
            "mine": f"of {rank}",
            "cwd": str(Path.cwd()),
            "argv": ["one", "two words"],
            "stdin": f"for rank {rank}",
            "files": [0, 1, 2],
            "limit": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "blocked": ["SigBlk:\t0000000000000000\n"],
        }
    assert "All 2 ranks on node0, node1 came" in ended[0].err
    assert "All 2 ranks" not in ended[1].err


def test_it_ignores_no_more_signals_than_without_us(two: Hosts) -> None:
    look = ["grep", "SigIgn", "/proc/self/status"]
    without = two[0].run(look).stdout
    assert [one.out for one in Job(two, ["--", *look]).ended().values()] == [without, without]


def test_sigterm_reaches_it(two: Hosts) -> None:
    job = Job(two, follows("-c", WAIT))
    for process in job.ranks.values():
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
    assert [one.code for one in job.ended().values()] == [33, 33]


def test_on_no_go_it_does_not_run(two: Hosts, tmp_path: Path) -> None:
    with two[1].drop(PORT), two[0].drop(PORT):
        ended = Job(two, follows("-c", f"open({str(tmp_path / 'ran')!r}, 'w')")).ended()
    assert [one.code for one in ended.values()] == [1, 1]
    assert not (tmp_path / "ran").exists()
    assert [one.out for one in ended.values()] == ["", ""]
    assert "node1 cannot reach node0" in ended[0].err


def test_a_command_that_is_not_there_is_told_as_shells_do(two: Hosts) -> None:
    ended = Job(two, ["--", "no-such-training"]).ended()
    assert [one.code for one in ended.values()] == [127, 127]
    assert "no-such-training: no such command" in ended[1].err


def test_torch_meets_on_the_port_that_was_checked(two: Hosts) -> None:
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
dist.destroy_process_group()
print(int(one))
"""
    ended = Job(two, ["--", needs.torch_python(), "-c", code]).ended()
    assert [(one.code, one.out) for one in ended.values()] == [(0, "2\n"), (0, "2\n")], ended
