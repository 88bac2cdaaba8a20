"""Ranks that hang, die or are told to end: nobody waits without a limit, nothing is left, and what is known is told."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.net.holder import others
from tests.cluster.net.hosts import PORT, Host, Hosts
from tests.cluster.net.job import PREFLIGHT, Job
from tests.processes import Ran

pytestmark = pytest.mark.full

ONE_MORE = {rank: {"WORLD_SIZE": "3"} for rank in range(2)}
"""Of two ranks, which wait for a third one that never comes."""


def waiting(hosts: Hosts) -> Job:
    """Two ranks that have met and wait for a third."""
    job = Job(hosts, env=ONE_MORE)
    met(hosts[0], 2)
    return job


def met(hub: Host, ranks: int) -> None:
    """Wait until so many ranks have come to the hub, by whichever of its ports: all are below the kernel's own.

    Who is there says so every second, after its name: each must have been heard again, and once more.
    """
    deadline = time.monotonic() + 600
    before: dict[str, int] = {}
    times: Counter[str] = Counter()
    while sum(count > 2 for count in times.values()) < ranks:
        assert time.monotonic() < deadline, times
        time.sleep(0.05)
        now = heard(hub)
        times.update(peer for peer, count in now.items() if count > before.get(peer, 0))
        before = now


def heard(hub: Host) -> dict[str, int]:
    """The bytes that the hub has read of each connection."""
    found = {}
    said = hub.run(["ss", "-HOtni", "state", "established", "sport < :32768"]).stdout
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


def test_when_all_are_told_to_end_rank_0_tells_what_is_known(two: Hosts) -> None:
    job = waiting(two)
    for process in job.ranks.values():
        process.send_signal(signal.SIGTERM)
    ended = job.ended()
    assert codes(ended) == dict.fromkeys(ended, 128 + signal.SIGTERM)
    assert cut(ended[0]) == "told to end"
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
        assert "on node2 hangs: nothing heard for" in said[0]
        assert re.search(r", last: (check of this machine|waiting for the others)", said[0])
        hung.kill()


def test_a_rank_that_hangs_before_it_comes_is_missing(two: Hosts) -> None:
    job = Job(two, missing=[1])
    stopped = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *PREFLIGHT]
    hung = two[1].start(stopped, two.environ(1))
    ended = job.ended()
    hung.kill()
    assert codes(ended) == {0: 1}
    assert ended[0].titles("nccl.rank-missing") == ["Rank 1: never came to node0 in 12 s"]


def test_without_rank_0_every_other_rank_says_so(two: Hosts) -> None:
    ended = Job(two, missing=[0]).ended()
    assert codes(ended) == {1: 1}
    (said,) = ended[1].titles("nccl.unreachable")
    assert said.startswith(f"node1 cannot reach node0: 10.77.0.1 refuses port {PORT}")
