"""How ranks come to their end: none is waited for without a limit, nothing is left; on go each becomes the command."""

import json
import re
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.cluster.net.holder import others
from tests.cluster.net.hosts import PORT, Host, Hosts, Job
from tests.processes import Ran

pytestmark = pytest.mark.full

ONE_MORE = {rank: {"WORLD_SIZE": "3"} for rank in range(2)}
"""Of two ranks, which wait for a third one that never comes."""


def waiting(hosts: Hosts) -> Job:
    """Two ranks that have met and wait for a third."""
    job = Job(hosts, env=ONE_MORE)
    met(hosts[0], 2)
    return job


def met(coordinator: Host, ranks: int) -> None:
    """Wait until so many ranks have come to the coordinator, by whichever of its ports: all are below the kernel's own.

    Who is there says so every second, after its name: each must have been heard again, and once more.
    """
    deadline = time.monotonic() + 600
    before: dict[str, int] = {}
    times: Counter[str] = Counter()
    while sum(count > 2 for count in times.values()) < ranks:
        assert time.monotonic() < deadline, times
        time.sleep(0.05)
        now = heard(coordinator)
        times.update(peer for peer, count in now.items() if count > before.get(peer, 0))
        before = now


def heard(coordinator: Host) -> dict[str, int]:
    """The bytes that the coordinator has read of each connection."""
    found = {}
    said = coordinator.run(["ss", "-HOtni", "state", "established", "sport < :32768"]).stdout
    for waiting, _, _, peer, *words in (line.split() for line in said.splitlines()):
        came = next((word.partition(":")[2] for word in words if word.startswith("bytes_received:")), "0")
        found[peer] = int(came) - int(waiting)
    return found


def left(hosts: Hosts) -> dict[str, list[int]]:
    """The processes on each host that has any, soon after."""
    deadline = time.monotonic() + 600
    while True:
        found = {host.name: _processes(host) for host in hosts}
        if not any(found.values()) or time.monotonic() > deadline:
            return {name: pids for name, pids in found.items() if pids}
        time.sleep(0.05)


def _processes(host: Host) -> list[int]:
    holder = host.namespace.pid
    return [pid for pid in others(str(Path(f"/proc/{holder}/ns/net").readlink())) if pid != holder]


def codes(ended: dict[int, Ran]) -> dict[int, int]:
    return {rank: one.code for rank, one in ended.items()}


def cut(ended: Ran) -> str:
    """Why a document came to no end; there is no go and no no-go in it."""
    document = ended.document
    assert (document["verdict"], document["fleet"]["verdict"]) == ("unknown", "unknown")
    assert "cut off" in document["target"]["name"]
    said: str = document["facts"]["job.cut"]["value"]
    return said


def test_a_rank_that_is_told_to_end_is_named_and_its_machine_is_not_blamed(two: Hosts) -> None:
    job = waiting(two)
    job.ranks[1].send_signal(signal.SIGTERM)
    ended = job.ended()
    assert codes(ended) == {0: 1, 1: 128 + signal.SIGTERM}
    assert ended[1].out == ""
    said = ended[0].titles("nccl.rank-missing")
    assert said[0].startswith("Rank 1: on node1 was told to end while it did: ")
    assert said[1] == "Rank 2: never came to node0 in 12 s"
    assert ended[0].document["fleet"]["drain"] == []
    assert left(two) == {}


def test_rank_0_that_is_told_to_end_tells_what_it_knows_and_lets_the_others_go(two: Hosts) -> None:
    job = waiting(two)
    job.ranks[0].send_signal(signal.SIGTERM)
    ended = job.ended()
    assert codes(ended) == {0: 128 + signal.SIGTERM, 1: 3}
    assert cut(ended[0]) == "told to end"
    assert ended[0].document["facts"]["job.came"]["value"] == 2
    assert ended[1].out == ""
    assert left(two) == {}


def test_when_rank_0_is_killed_the_others_end_and_say_so(two: Hosts) -> None:
    job = waiting(two)
    job.ranks[0].kill()
    ended = job.ended()
    assert codes(ended) == {0: -signal.SIGKILL, 1: 3}
    assert cut(ended[1]).startswith("the meeting ended without a word")
    assert left(two) == {}


def test_a_rank_that_hangs_is_named_with_what_it_did_last() -> None:
    with Hosts(4) as hosts:
        job = Job(hosts, env={rank: {"WORLD_SIZE": "5"} for rank in range(4)})
        met(hosts[0], 4)
        job.ranks[2].send_signal(signal.SIGSTOP)
        heard = {rank: process for rank, process in job.ranks.items() if rank != 2}
        hung, job.ranks = job.ranks[2], heard
        ended = job.ended()
        assert codes(ended) == {0: 1, 1: 1, 3: 1}
        said = [title for title in ended[0].titles("nccl.rank-missing") if title.startswith("Rank 2")]
        assert len(said) == 1
        assert "on node2 hangs: no message for" in said[0]
        assert re.search(r", last: (check of this machine|waiting for the others)", said[0])
        hung.kill()


def test_without_rank_0_every_other_rank_says_so(two: Hosts) -> None:
    ended = Job(two, missing=[0]).ended()
    assert codes(ended) == {1: 1}
    (said,) = ended[1].titles("nccl.unreachable")
    assert said.startswith(f"node1 cannot reach node0: 10.77.0.1 refuses port {PORT}")


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


def follows(*words: str) -> list[str]:
    """The words that have this Python run after the check."""
    return ["--", sys.executable, *words]


def test_on_go_it_runs_once_per_rank_in_its_own_place() -> None:
    with Hosts(2) as fresh:  # where no rank 0 was killed, which keeps its port busy for a minute
        job = Job(fresh, follows("-c", TELL, "one", "two words"), env=lambda rank: {"MINE": f"of {rank}"})
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
