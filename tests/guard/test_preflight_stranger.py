"""A stranger on the network of a job: whatever it says or holds, the ranks' verdict and time are their own."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest

from gpudoctor.cluster.links.protocol import nonce, tag
from gpudoctor.cluster.preflight import LIMITS, JobOptions, Limits, meeting, member, stages
from gpudoctor.cluster.preflight.launcher import Place, place_from_environment
from gpudoctor.cluster.preflight.meeting import Meeting, authenticate_to_coordinator, greeting, max_connections
from gpudoctor.cluster.preflight.member import NotMetError
from gpudoctor.cluster.preflight.run import Coordinator, room_for
from gpudoctor.cluster.preflight.wire import GoneError, Line, ListeningSockets, addresses
from tests.cluster.fleet_documents import document
from tests.cluster.job_players import Players, beside
from tests.processes import free_port

JOB = f"an attacked job of process {os.getpid()}"
HELLO = {"world": 4, "local_rank": 0, "leads": True, "version": "1", "listeners": []}


def place(port: int, rank: int = 0, secret: str = "") -> Place:
    return Place(
        "env", rank, 4, host=f"n{rank}", coordinator=rank == 0, master="127.0.0.1", port=port, job=JOB, secret=secret
    )


def connected(port: int, *said: bytes) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 60)
    with suppress(OSError):  # it may be turned away while it speaks
        link.sendall(b"".join(said))
    return link


def line_of(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


def nothing(port: int) -> list[socket.socket]:
    return [connected(port)]


def half_a_frame(port: int) -> list[socket.socket]:
    return [connected(port, b'{"rank": 1, "nonce": "')]


def oversize(port: int) -> list[socket.socket]:
    return [connected(port, b"9" * (1 << 20)), connected(port, b'{"rank": 1' + b"0" * 4000 + b"}\n")]


def odd_text(port: int) -> list[socket.socket]:
    lone = b'{"rank": 1, "nonce": "\\ud800", "proof": "\\udfff"}\n'
    deep = b"[" * 4000 + b"\n"
    return [connected(port, words) for words in (lone, deep, b"\xff\n", b'{"rank": 1e999, "proof": 1}\n', b"\n" * 4000)]


def claims_of_ranks(port: int) -> list[socket.socket]:
    """As a gpudoctor that authenticates nothing, by what the coordinator's own greeting tells everybody."""
    job = greeting(JOB)["job"]
    return [
        connected(port, line_of(job=job, rank=rank, host="evil", **HELLO), line_of(tell={"document": {}}))
        for rank in (0, 1, 2, 3, 0, 1, 2, 3, 3, 3, 3, 3)
    ]


def forged_proofs(port: int) -> list[socket.socket]:
    return [connected(port, line_of(rank=rank, nonce=nonce(), proof="0" * 32)) for rank in range(-1, 5)]


def five_hundred(port: int) -> list[socket.socket]:
    return [connected(port) for _ in range(500)]


class Recording:
    """A socket that remembers what is sent over it."""

    def __init__(self, link: socket.socket, said: list[bytes]) -> None:
        self._link = link
        self._said = said

    def send(self, data: bytes) -> int:
        self._said.append(bytes(data))
        return self._link.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


ATTACKS: tuple[Callable[[int], list[socket.socket]], ...] = (
    nothing,
    half_a_frame,
    oversize,
    odd_text,
    claims_of_ranks,
    forged_proofs,
    five_hundred,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_four_ranks_come_to_their_verdict_beside_a_stranger(
    attack: Callable[[int], list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "quick", Limits(come=600, connect=600, flow=600, check=600))
    for module in (meeting, stages):
        monkeypatch.setattr(module, "SILENT_SECONDS", 600.0)  # on a busy machine the ranks' thread is late
    port = free_port()
    with room_for(max_connections(4) + 600), ExitStack() as kept:
        coordinator = Coordinator(place(port), JobOptions(network=True), lambda _: None)
        for link in attack(port):
            kept.enter_context(closing(link))
        with Players(coordinator.listening[1], JOB, 4, 1, document) as players:
            pass  # they end with the meeting
        diagnosis = coordinator.finish()
        assert diagnosis.fleet
        assert diagnosis.fleet.verdict == "go", [finding.title for finding in diagnosis.findings]
        assert {said["verdict"] for said in players.verdicts.values()} == {"go"}
        assert len(players.verdicts) == 4
        assert "evil" not in diagnosis.fleet.results


@contextmanager
def held(secret: str = "") -> Iterator[tuple[Meeting, int]]:
    port = free_port()
    meeting = Meeting(place(port, secret=secret), ListeningSockets([port], ["127.0.0.1"]))
    try:
        yield meeting, port
    finally:
        meeting.close(lambda _: {"verdict": "go", "code": 0})


def test_what_a_rank_said_is_of_no_use_on_another_connection() -> None:
    with held() as (meeting, port):
        said: list[bytes] = []

        def honest() -> None:
            line = Line(Recording(socket.create_connection(("127.0.0.1", port), 60), said))  # type: ignore[arg-type]
            authenticate_to_coordinator(line, place(port, 1), 60)
            line.send(rank=1, host="n1", **HELLO)
            line.drop()

        with beside(honest):
            assert meeting.wait_until(lambda: 1 in meeting.joined_ranks and bool(meeting.joined_ranks[1].ended), 60)
        first = meeting.joined_ranks[1]

        def replayed() -> bytes:
            with closing(connected(port, *said)) as link:
                heard = b""
                with suppress(OSError):
                    while more := link.recv(1 << 16):
                        heard += more
                return heard

        with beside(replayed) as heard:
            assert meeting.wait_until(lambda: bool(heard), 60)
        assert isinstance(heard[0], bytes)
        assert b"meeting" not in heard[0].replace(b'"gpudoctor":"meeting"', b"")
        assert meeting.joined_ranks == {1: first}


@pytest.mark.parametrize("attack", ["forged", "replayed", "reflected", "repeated"])
def test_a_go_that_the_hub_did_not_say_is_not_believed(attack: str) -> None:
    """Somebody who can write into the connection of a rank."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        with beside(lambda: member.join_meeting(place(port, 1), HELLO, 60.0)) as came:
            link = Line(listening.accept()[0])
            link.send(**greeting(JOB), nonce="a" * 32)
            caller = (link.wait(60) or {})["nonce"]
            link.authenticate(place(port).key, "a" * 32, caller, listens=True)
            link.send(meeting="a key")
        rank = came[0]
        assert isinstance(rank, member.Member)
        sent: list[bytes] = []
        if attack == "forged":
            sent = [b"0" * 32 + b" " + line_of(verdict="go", code=0)]
        elif attack == "replayed":  # of another connection of the same job
            with closing(Line(socket.socket())) as other:
                other.authenticate(place(port).key, "b" * 32, "c" * 32, listens=True)
                sent = [_sealed(other, verdict="go", code=0)]
        elif attack == "reflected":  # a rank's own words, as if they were the coordinator's
            sent = [_sealed(rank.line, verdict="go", code=0)]
        else:
            task = _sealed(link, task="nothing", id=1)
            sent = [task, task]
        link.socket.sendall(b"".join(sent))
        with pytest.raises(NotMetError, match="not authentic"):
            rank.attend({}, 60)
        link.close()


def _sealed(line: Line, **said: Any) -> bytes:
    assert line._out
    return line._out.sealed(json.dumps(said).encode()) + b"\n"


def test_a_hub_without_the_key_holds_no_rank() -> None:
    """It has recorded our coordinator's greeting, and stands on one of the ports at which ranks look."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]

        def pose() -> None:
            with suppress(OSError):
                while True:
                    with closing(listening.accept()[0]) as link:
                        link.sendall(line_of(**greeting(JOB), nonce="a" * 32))
                        link.sendall(b"0" * 32 + b' {"meeting":"x"}\n')
                        link.settimeout(60)
                        while link.recv(1 << 16):
                            pass

        with beside(pose):
            with pytest.raises(NotMetError, match="not of this job"):
                member.join_meeting(place(port, 1), HELLO, 1.0)
            listening.shutdown(socket.SHUT_RDWR)


def test_without_the_jobs_secret_nobody_comes_who_knows_all_else() -> None:
    with held("s3cret") as (meeting, port):
        with beside(lambda: member.join_meeting(place(port, 1), HELLO, 0.5)) as came:
            assert meeting.wait_until(lambda: bool(came), 60)
        assert isinstance(came[0], NotMetError)
        assert "GPUDOCTOR_JOB_KEY" in str(came[0])
        assert "GPUDOCTOR_JOB_KEY of rank 1 is not that of rank 0" in meeting.unproven[1]
        with beside(lambda: Line.close(member.join_meeting(place(port, 1, "s3cret"), HELLO, 60.0).line)) as came:
            assert meeting.wait_until(lambda: 1 in meeting.joined_ranks, 60)
        assert came == [None]
        meeting.close(lambda _: {"verdict": "go", "code": 0})


def test_a_rank_of_an_older_gpudoctor_is_told_why_it_is_turned_away() -> None:
    with held() as (meeting, port), closing(connected(port, line_of(job=greeting(JOB)["job"], rank=1))) as link:
        assert meeting.wait_until(lambda: 1 in meeting.unproven, 60)
        link.settimeout(60)
        with link.makefile("rb") as heard:
            first, said = map(json.loads, heard)
        assert "nonce" in first
        assert (said["verdict"], said["code"]) == ("unknown", 3)
        assert "cannot authenticate itself" in said["words"]
        assert meeting.joined_ranks == {}


def test_a_guest_says_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.cluster.preflight.wire._MOST_LINES", 50)
    told = threading.Event()
    with held() as (meeting, port):

        def chatter() -> None:
            rank = member.join_meeting(place(port, 1), HELLO, 60.0)
            rank.line.send(step="x" * 9000, answer=7, tell={"anything": 1, "nccl": "2.27.3"})
            told.wait(60)
            with closing(rank.line), suppress(GoneError):
                while True:
                    rank.line.send(step="again")

        with beside(chatter):
            assert meeting.wait_until(lambda: 1 in meeting.joined_ranks and bool(meeting.joined_ranks[1].reports), 60)
            told.set()
            assert meeting.wait_until(lambda: bool(meeting.joined_ranks[1].ended), 60)
        joined = meeting.joined_ranks[1]
        assert len(joined.step) < 1000
        assert (joined.answers, joined.reports) == ({}, {"nccl": "2.27.3"})


def test_the_door_is_at_the_address_of_the_job_alone() -> None:
    port = free_port()
    assert addresses(place(port)) == ("127.0.0.1",)
    assert addresses(Place(master="192.0.2.1")) == ()  # a load balancer's, which is not ours
    listening = ListeningSockets([port], addresses(place(port)))
    try:
        assert listening.own_address == ("127.0.0.1", port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 60)
        connected(port).close()
    finally:
        listening.close()


def test_the_key_of_a_job_is_made_of_its_secret_and_its_identity() -> None:
    base = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    keys = [
        place_from_environment({**base, **more}, lambda _: []).key
        for more in ({}, {"RANK": "1"}, {"GPUDOCTOR_JOB_KEY": "a"}, {"GPUDOCTOR_JOB_KEY": "b"}, {"MASTER_PORT": "1"})
    ]
    assert keys[0] == keys[1]  # the same for all ranks
    assert len(set(keys)) == 4
    assert "hush" not in repr(place_from_environment({**base, "GPUDOCTOR_JOB_KEY": "hush"}, lambda _: []))
    assert tag("k", "ab", "c") != tag("k", "a", "bc")
