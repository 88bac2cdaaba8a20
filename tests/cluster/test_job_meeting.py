"""Those who come to the meeting of a job: ranks, the same rank twice, other versions, strangers, and very many."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from gpudoctor.cluster.preflight import LIMITS, JobOptions, Limits, member, stages
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.measuring import to_each_other
from gpudoctor.cluster.preflight.meeting import Meeting, greeting
from gpudoctor.cluster.preflight.member import Member, NotMetError
from gpudoctor.cluster.preflight.run import Hub, room_for
from gpudoctor.cluster.preflight.wire import Door, Line
from tests.cluster.fleet_documents import document
from tests.cluster.job_players import Players, beside
from tests.processes import free_port

JOB = f"a job of process {os.getpid()}"
"""Ports follow from it: tests of other processes do not meet ours."""
HELLO = {"world": 2, "local_rank": 0, "leads": True, "version": "0.0.1", "ears": []}
EAR = {"used_by": ["nccl"], "address": "127.0.0.1", "port": 9, "interface": "lo"}


def place(port: int, rank: int = 0, world: int = 2, host: str = "") -> Place:
    return Place("env", rank, world, host=host or f"n{rank}", hub=rank == 0, master="127.0.0.1", port=port, job=JOB)


@contextmanager
def held(world: int = 2) -> Iterator[tuple[Meeting, int]]:
    port = free_port()
    meeting = Meeting(place(port, world=world), Door([port]))
    try:
        yield meeting, port
    finally:
        meeting.close(lambda _: {"verdict": "go", "code": 0})


def come(port: int, rank: int, **hello: Any) -> Member:
    return member.join_meeting(place(port, rank), {**HELLO, **hello}, 60.0)


def attend(port: int, rank: int) -> Any:
    """The verdict that a rank hears which knows no tasks."""
    return come(port, rank, ears=[EAR]).attend({}, 60)


def spoken(port: int, *lines: bytes) -> socket.socket:
    """A connection of somebody who has heard the greeting and said this."""
    link = socket.create_connection(("127.0.0.1", port), 60)
    link.sendall(b"".join(lines))
    return link


def test_the_second_of_two_ranks_with_one_number_is_sent_away() -> None:
    with held() as (meeting, port), beside(lambda: come(port, 1).attend({}, 60)):
        assert meeting.wait_until(lambda: 1 in meeting.guests, 60)
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
            assert meeting.wait_until(lambda: 1 in meeting.guests, 60)
        assert meeting.wait_until(lambda: 1 in meeting.guests and bool(meeting.guests[1].ended), 60)
        assert stages.rank_states(meeting, 1.0)[1].state == "ended"
        with beside(lambda: come(port, 1).attend({}, 60)):
            assert meeting.wait_until(lambda: not meeting.guests[1].ended, 60)
            assert meeting.twice == {}
            meeting.close(lambda _: {"verdict": "go", "code": 0})


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
        "gpudoctor.cluster.preflight.meeting._STRANGER", 600.0
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
        assert meeting.guests == {}


def test_a_meeting_that_ends_without_a_word_is_told_with_the_last_step() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        port = door.getsockname()[1]
        with beside(lambda: come(port, 1)) as came:
            link = Line(door.accept()[0])
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
        assert meeting.wait_until(lambda: bool(came) and 1 in meeting.guests, 60)
        with pytest.raises(NotMetError, match="said nothing in 0 s"):
            came[0].attend({}, 0.2)


def test_512_ranks_on_64_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process plays them all, which takes longer than they would."""
    monkeypatch.setitem(LIMITS, "quick", Limits(come=600, connect=600, flow=600, check=600))
    port = free_port()
    where = Place("env", 0, 512, host="n0", master="127.0.0.1", port=port, job=JOB)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with room_for(2 * 512):
        hub = Hub(where, JobOptions(), lambda _: None)
        with Players(hub.door[1], JOB, 512, 8, document) as players:
            pass  # until all have heard the verdict
    diagnosis = hub.finish()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
    assert {said["verdict"] for said in players.verdicts.values()} == {"go"}
    assert len(players.verdicts) == 512
    assert diagnosis.fleet
    assert (diagnosis.fleet.verdict, len(diagnosis.fleet.hosts)) == ("go", 64)
