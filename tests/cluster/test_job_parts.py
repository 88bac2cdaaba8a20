"""The smaller parts of the job's check: failures told once, clocks, ports and who has them, lines on a wire."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import closing

import pytest

from gpudoctor.cluster.links.server import Server
from gpudoctor.cluster.preflight import LIMITS, JobOptions, local
from gpudoctor.cluster.preflight.diagnosis import barriers
from gpudoctor.cluster.preflight.results import LinkSeen
from gpudoctor.cluster.preflight.run import room_for
from gpudoctor.cluster.preflight.stages import furthest_clock
from gpudoctor.cluster.preflight.wire import Door, GoneError, Line, port_holder
from tests.processes import free_port


def failed(source: str, target: str, outcome: str = "filtered", kind: str = "peer") -> LinkSeen:
    return LinkSeen(source, target, kind, outcome, "no", "nccl", f"address of {target}", 4000)


def said(*links: LinkSeen) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    return [(one.sources, one.targets, one.blamed) for one in barriers(links)]


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ([failed("a", "b", "connected")], []),
        ([failed("a", "b")], [(("a",), ("b",), ("b",))]),
        ([failed("a", "b", "unresolved")], [(("a",), ("b",), ("a",))]),
        ([failed("a", "b"), failed("c", "b"), failed("d", "b")], [(("a", "c", "d"), ("b",), ("b",))]),
        ([failed("b", "a"), failed("b", "c"), failed("b", "d")], [(("b",), ("a", "c", "d"), ("b",))]),
    ],
    ids=["works", "who lets nobody in", "who asks for a wrong name", "lets nobody in", "reaches nobody"],
)
def test_whom_failed_connections_blame(links: list[LinkSeen], told: object) -> None:
    assert said(*links) == told


def test_what_all_do_to_each_other_is_nobodys_fault() -> None:
    assert said(failed("a", "b"), failed("b", "a")) == [(("a", "b"), ("a", "b"), ())]
    hosts = "abcdef"
    (one,) = barriers(failed(x, y) for x in hosts for y in hosts if x != y)
    assert (len(one.links), one.blamed) == (30, ())


def test_different_failures_are_told_apart() -> None:
    assert (
        len(barriers([failed("a", "b"), failed("a", "b", "refused"), failed("a", "b", "refused", "rendezvous")])) == 3
    )


def test_the_clock_that_is_away_from_the_others() -> None:
    offsets = {("a", "b"): 2.0, ("b", "c"): -3.0, ("c", "d"): 61000.0}
    assert furthest_clock(offsets, "abcd") == (61000.0 - 1.0, "d")


def test_a_clock_that_is_behind_is_as_far_away() -> None:
    assert furthest_clock({("a", "b"): 2.0, ("b", "c"): -61000.0}, "abc") == (60998.0, "c")


def test_of_two_clocks_one_is_away() -> None:
    assert furthest_clock({("a", "b"): -5000.0}, "ab") == (5000.0, "a")


def test_clocks_that_nobody_compared() -> None:
    assert furthest_clock({}, "abc") is None


def test_a_door_on_free_and_taken_ports() -> None:
    with closing(socket.create_server(("", 0))) as other:
        taken, free = other.getsockname()[1], free_port()
        door = Door([taken, free])
        assert (door.taken, [one.getsockname()[1] for one in door.sockets]) == ([taken], [free])
        assert port_holder(taken).endswith(f"(pid {os.getpid()})")
        door.close()
    Door([taken, free]).close()  # at once again


def test_a_port_that_nobody_has() -> None:
    assert port_holder(free_port()) == "another program"


def test_room_for_connections_is_given_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with room_for(1000):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(1000, before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("level", ["quick", "standard", "deep"])
def test_the_stages_share_the_budget(level: str) -> None:
    assert JobOptions(level).limits == LIMITS[level]
    long = JobOptions(level, budget=900).limits
    assert (long.whole, long.check) == (900, LIMITS[level].check)
    assert long.come == LIMITS[level].come + 900 - LIMITS[level].whole, "who comes late is waited for"
    assert JobOptions(level, budget=12).limits.whole < 12 + 10  # what talking takes is not scaled
    assert JobOptions(level, budget=12).limits.come < LIMITS[level].come


def ends() -> tuple[Line, socket.socket]:
    here, there = socket.socketpair()
    return Line(here), there


def hear_all(line: Line) -> None:
    while True:
        line.receive()


def test_objects_come_as_they_were_said_in_whatever_pieces() -> None:
    line, other = ends()
    for piece in (b'{"a"', b': 1}\n{"b": 2}\n\n{"c"', b": 3}\n"):
        other.sendall(piece)
        last = line.receive()
        assert last == ([] if piece == b'{"a"' else [{"a": 1}, {"b": 2}] if b"2" in piece else [{"c": 3}])
    other.close()
    with pytest.raises(GoneError, match="closed"):
        line.receive()
    line.close()


def test_waiting_for_words_that_come_in_pieces_and_for_none() -> None:
    line, other = ends()
    assert line.wait(0.05) is None
    other.sendall(b'{"a": 1}\n')
    assert line.wait(5.0) == {"a": 1}
    line.close()
    other.close()


@pytest.mark.parametrize("words", [b"hello\n", b"[1]\n", b"\xff\n", b"[" * 3_000 + b"\n"])
def test_what_is_no_object_ends_it(words: bytes) -> None:
    line, other = ends()
    other.sendall(words)
    with pytest.raises(GoneError, match="something else"):
        hear_all(line)
    line.close()
    other.close()


def test_a_line_without_an_end_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.cluster.preflight.wire._MOST", 100_000)
    monkeypatch.setattr("gpudoctor.cluster.preflight.wire._MOST_UNPROVEN", 1_000_000)
    line, other = ends()
    other.sendall(b"x" * 150_000)
    with pytest.raises(GoneError, match="no lines"):
        hear_all(line)
    line.close()
    other.close()


def test_after_half_a_line_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.cluster.preflight.wire._SAY", 0.1)
    line, other = ends()
    with pytest.raises(GoneError):
        line.send(long="x" * (16 << 20))  # nobody reads it
    with pytest.raises(GoneError):
        line.send(short=1)
    line.close()
    other.close()


@pytest.mark.parametrize(("asking", "outcome"), [("node0", "connected"), ("node1", "unroutable")])
def test_nothing_is_measured_with_oneself(asking: str, outcome: str) -> None:
    with Server("127.0.0.1", "the job", name="node1") as server:
        answer = local.measure_flow({"address": server.address, "port": server.port, "seconds": 5}, "the job", asking)
    assert answer["flow"]["outcome"] == outcome
    assert bool(answer["flow"]["gbps_out"]) is (outcome == "connected")
