"""The meeting of a job: ranks, the same rank twice, strangers, very many; clocks, ports, and lines on a wire."""

import json
import os
import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from gpudoctor.cluster.links.server import Server
from gpudoctor.cluster.preflight import LIMITS, JobOptions, Limits, local, member, stages
from gpudoctor.cluster.preflight.diagnosis import barriers
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.measuring import to_each_other
from gpudoctor.cluster.preflight.meeting import Meeting, greeting
from gpudoctor.cluster.preflight.member import Member, NotMetError
from gpudoctor.cluster.preflight.results import LinkSeen
from gpudoctor.cluster.preflight.run import Coordinator, room_for
from gpudoctor.cluster.preflight.stages import furthest_clock
from gpudoctor.cluster.preflight.wire import GoneError, Line, ListeningSockets, port_holder
from tests.cluster.fleet_documents import document
from tests.cluster.job_players import Players, beside
from tests.processes import free_port

JOB = f"a job of process {os.getpid()}"
"""Ports follow from it: tests of other processes do not meet ours."""
HELLO = {"world": 2, "local_rank": 0, "leads": True, "version": "0.0.1", "listeners": []}
LISTENER = {"used_by": ["nccl"], "address": "127.0.0.1", "port": 9, "interface": "lo"}


def place(port: int, rank: int = 0, world: int = 2, host: str = "") -> Place:
    return Place(
        "env", rank, world, host=host or f"n{rank}", coordinator=rank == 0, master="127.0.0.1", port=port, job=JOB
    )


@contextmanager
def held(world: int = 2) -> Iterator[tuple[Meeting, int]]:
    port = free_port()
    meeting = Meeting(place(port, world=world), ListeningSockets([port]))
    try:
        yield meeting, port
    finally:
        meeting.close(lambda _: {"verdict": "go", "code": 0})


def come(port: int, rank: int, **hello: Any) -> Member:
    return member.join_meeting(place(port, rank), {**HELLO, **hello}, 60.0)


def attend(port: int, rank: int) -> Any:
    """The verdict that a rank hears which knows no tasks."""
    return come(port, rank, listeners=[LISTENER]).attend({}, 60)


def spoken(port: int, *lines: bytes) -> socket.socket:
    """A connection of somebody who has heard the greeting and said this."""
    link = socket.create_connection(("127.0.0.1", port), 60)
    link.sendall(b"".join(lines))
    return link


def test_the_second_of_two_ranks_with_one_number_is_sent_away() -> None:
    with held() as (meeting, port), beside(lambda: come(port, 1).attend({}, 60)):
        assert meeting.wait_until(lambda: 1 in meeting.joined_ranks, 60)
        other = place(port, 1, host="elsewhere")
        with beside(lambda: member.join_meeting(other, HELLO, 60.0).attend({}, 60)) as heard:
            assert meeting.wait_until(lambda: bool(heard), 60)
        assert heard[0] | {"id": 0} == {
            "id": 0,
            "verdict": "no-go",
            "code": 1,
            "words": "rank 1 is here already, from n1",
        }
        (seen,) = [one for one in stages.rank_states(meeting, 1.0) if one.rank == 1]
        assert (seen.state, seen.because, seen.blames) == (
            "twice",
            "came more than once: from n1 and from elsewhere",
            False,
        )
        meeting.close(lambda _: {"verdict": "go", "code": 0})


def test_a_rank_whose_connection_broke_may_come_again() -> None:
    with held() as (meeting, port):
        with beside(lambda: Line.close(come(port, 1).line)):
            assert meeting.wait_until(lambda: 1 in meeting.joined_ranks, 60)
        assert meeting.wait_until(lambda: 1 in meeting.joined_ranks and bool(meeting.joined_ranks[1].ended), 60)
        assert stages.rank_states(meeting, 1.0)[1].state == "ended"
        with beside(lambda: come(port, 1).attend({}, 60)):
            assert meeting.wait_until(lambda: not meeting.joined_ranks[1].ended, 60)
            assert meeting.twice == {}
            meeting.close(lambda _: {"verdict": "go", "code": 0})


@pytest.mark.parametrize("kind", [selectors.DefaultSelector, selectors.SelectSelector])
def test_a_rank_that_does_not_hang_up_leaves_the_port_to_the_job(
    kind: type[selectors.BaseSelector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By select(2), too, which Windows has alone, and which no closed socket may be given."""
    monkeypatch.setattr(selectors, "DefaultSelector", kind)
    port = free_port()
    meeting = Meeting(place(port), ListeningSockets([port]))
    with beside(lambda: come(port, 1)) as silent:
        assert meeting.wait_until(lambda: 1 in meeting.joined_ranks, 60)
    meeting.close(lambda _: {"verdict": "go", "code": 0})
    silent[0].line.close()
    with socket.socket() as job:  # without SO_REUSEADDR, as a job may bind it
        job.bind(("127.0.0.1", port))


def test_a_rank_of_another_version_that_does_not_know_its_task() -> None:
    with held() as (meeting, port):
        attending = [beside(partial(attend, port, rank)) for rank in (0, 1)]
        with attending[0], attending[1]:
            assert meeting.wait_until(lambda: meeting.complete, 60)
            assert to_each_other(meeting, meeting.leaders, 5.0) == []  # nobody is said to be out of reach for that
            states = [(one.state, one.because) for one in stages.rank_states(meeting, 1.0)]
            meeting.close(lambda _: {"verdict": "no-go", "code": 1})
    assert [state for state, _ in states] == ["failed", "failed"]
    assert "could not do its part: this gpudoctor knows no 'reach' (gpudoctor 0.0.1, and " in states[1][1]


def hello(job: str = JOB, **said: object) -> bytes:
    return json.dumps({"job": greeting(job)["job"], **said}).encode() + b"\n"


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1]\n",
        b"\xff\xfe\x00\n",
        b"[" * 100_000 + b"\n",
        hello(rank="1"),
        hello(rank=True),
        hello(rank=-1),
        hello("another job", rank=1),
    ],
    ids=["http", "a list", "no text", "deep", "rank is text", "rank is true", "no such rank", "another job"],
)
def test_strangers_are_shown_out(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gpudoctor.cluster.preflight.meeting._PROOF_SECONDS", 600.0
    )  # for what they say, not for being silent

    def told(stranger: socket.socket) -> bool:
        with suppress(ConnectionResetError):
            while stranger.recv(1 << 16):
                pass
        return True

    with held() as (meeting, port), closing(spoken(port, words)) as stranger:
        stranger.settimeout(60)
        with beside(partial(told, stranger)) as shown:
            assert meeting.wait_until(lambda: bool(shown), 60)
        assert shown == [True]
        assert meeting.joined_ranks == {}


def test_a_meeting_that_ends_without_a_word_is_told_with_the_last_step() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        with beside(lambda: come(port, 1)) as came:
            link = Line(listening.accept()[0])
            link.send(**greeting(JOB), nonce="a nonce")
            said = link.wait(60) or {}
            link.authenticate(place(port).key, "a nonce", said["nonce"], listens=True)
            link.send(meeting="a key")
        rank: Member = came[0]
        rank.step = "counting"
        link.close()
        with pytest.raises(NotMetError, match="while we did: counting"):
            rank.attend({}, 60)


def test_a_meeting_that_never_speaks_is_left() -> None:
    with held() as (meeting, port), beside(lambda: come(port, 1)) as came:
        assert meeting.wait_until(lambda: bool(came) and 1 in meeting.joined_ranks, 60)
        with pytest.raises(NotMetError, match="said nothing in 0 s"):
            came[0].attend({}, 0.2)


def test_512_ranks_on_64_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process plays them all, which takes longer than they would."""
    monkeypatch.setitem(LIMITS, "quick", Limits(come=600, connect=600, flow=600, check=600))
    port = free_port()
    where = Place("env", 0, 512, host="n0", master="127.0.0.1", port=port, job=JOB)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with room_for(2 * 512):
        coordinator = Coordinator(where, JobOptions(), lambda _: None)
        with Players(coordinator.listening[1], JOB, 512, 8, document) as players:
            pass  # until all have heard the verdict
    diagnosis = coordinator.finish()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
    assert {said["verdict"] for said in players.verdicts.values()} == {"go"}
    assert len(players.verdicts) == 512
    assert diagnosis.fleet
    assert (diagnosis.fleet.verdict, len(diagnosis.fleet.hosts)) == ("go", 64)


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


def test_what_all_do_to_each_other_is_nobodys_fault_and_different_failures_are_told_apart() -> None:
    assert said(failed("a", "b"), failed("b", "a")) == [(("a", "b"), ("a", "b"), ())]
    hosts = "abcdef"
    (one,) = barriers(failed(x, y) for x in hosts for y in hosts if x != y)
    assert (len(one.links), one.blamed) == (30, ())
    apart = [failed("a", "b"), failed("a", "b", "refused"), failed("a", "b", "refused", "rendezvous")]
    assert len(barriers(apart)) == 3


@pytest.mark.parametrize(
    ("offsets", "hosts", "furthest"),
    [
        ({("a", "b"): 2.0, ("b", "c"): -3.0, ("c", "d"): 61000.0}, "abcd", (61000.0 - 1.0, "d")),
        ({("a", "b"): 2.0, ("b", "c"): -61000.0}, "abc", (60998.0, "c")),
        ({("a", "b"): -5000.0}, "ab", (5000.0, "a")),
        ({}, "abc", None),
    ],
    ids=["ahead", "behind is as far away", "of two one", "nobody compared them"],
)
def test_the_clock_that_is_away_from_the_others(offsets: dict[Any, float], hosts: str, furthest: object) -> None:
    assert furthest_clock(offsets, hosts) == furthest


def test_a_door_on_free_and_taken_ports() -> None:
    with closing(socket.create_server(("", 0))) as other:
        taken, free = other.getsockname()[1], free_port()
        listening = ListeningSockets([taken, free])
        assert (listening.taken, [one.getsockname()[1] for one in listening.sockets]) == ([taken], [free])
        assert port_holder(taken).endswith(f"(pid {os.getpid()})")
        listening.close()
    ListeningSockets([taken, free]).close()  # at once again


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


@pytest.fixture
def ends() -> Iterator[tuple[Line, socket.socket]]:
    here, there = socket.socketpair()
    line = Line(here)
    with there:
        yield line, there
    line.close()


Ends = tuple[Line, socket.socket]
WIRE = "gpudoctor.cluster.preflight.wire"


def test_objects_come_as_they_were_said_in_whatever_pieces(ends: Ends) -> None:
    line, other = ends
    assert line.wait(0.05) is None
    for piece, objects in (
        (b'{"a"', []),
        (b': 1}\n{"b": 2}\n\n{"c"', [{"a": 1}, {"b": 2}]),
        (b": 3}\n", [{"c": 3}]),
    ):
        other.sendall(piece)
        assert line.receive() == objects
    other.sendall(b'{"a": 1}\n')
    assert line.wait(5.0) == {"a": 1}
    other.close()
    with pytest.raises(GoneError, match="closed"):
        line.receive()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        *((words, "something else") for words in (b"hello\n", b"[1]\n", b"\xff\n", b"[" * 3_000 + b"\n")),
        (b"x" * 150_000, "no lines"),
    ],
    ids=["words", "a list", "no text", "deep", "a line without an end"],
)
def test_what_is_no_object_ends_it(words: bytes, why: str, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WIRE}._MOST_LINE_BYTES", 100_000)
    monkeypatch.setattr(f"{WIRE}._MOST_UNPROVEN_BYTES", 1_000_000)
    ends[1].sendall(words)
    with pytest.raises(GoneError, match=why):
        [ends[0].receive() for _ in range(1000)]


def test_after_half_a_line_nothing_is_said(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WIRE}._SEND_SECONDS", 0.1)
    for words in ({"long": "x" * (16 << 20)}, {"short": 1}):  # nobody reads it
        with pytest.raises(GoneError):
            ends[0].send(**words)


@pytest.mark.parametrize(("asking", "outcome"), [("node0", "connected"), ("node1", "unroutable")])
def test_nothing_is_measured_with_oneself(asking: str, outcome: str) -> None:
    with Server("127.0.0.1", "the job", name="node1") as server:
        answer = local.measure_flow({"address": server.address, "port": server.port, "seconds": 5}, "the job", asking)
    assert answer["flow"]["outcome"] == outcome
    assert bool(answer["flow"]["gbps_out"]) is (outcome == "connected")
