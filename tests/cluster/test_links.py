"""Between two ends on loopback: what a healthy peer, a strange one and none at all come to."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.flow import measure
from gpudoctor.cluster.links.lines import ClosedError, Lines, TalkError, greeting
from gpudoctor.cluster.links.server import Server
from gpudoctor.target.network import list_interfaces, resolve
from tests.processes import free_port

HERE = "127.0.0.1"
Peer = Callable[[socket.socket], None]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(HERE, "the job") as listening:
        yield listening


@contextmanager
def played(peer: Peer) -> Iterator[int]:
    """The port of a program that is no ear: `peer` plays one connection."""
    with socket.create_server((HERE, 0)) as listener:
        listener.settimeout(60)

        def play() -> None:
            link, _ = listener.accept()
            with link, suppress(ConnectionError):
                link.settimeout(60)
                peer(link)

        playing = threading.Thread(target=play)
        playing.start()
        try:
            yield listener.getsockname()[1]
        finally:
            playing.join()


def test_a_healthy_link_is_measured_both_ways(server: Server) -> None:
    flow = measure(HERE, server.port, "the job")
    assert flow.outcome == "connected"
    assert flow.gbps_out
    assert flow.gbps_in
    assert flow.ms is not None
    assert flow.retransmitted is not None
    assert flow.stalled_above is None
    assert flow.mtu == 65536 - 1 or flow.mtu == 65536
    assert abs(flow.clock_offset_ms or 0) <= flow.ms


def test_a_clock_that_is_ahead_is_told() -> None:
    ahead = 5_000_000_000

    with played(speaking(lambda: f"{time.time_ns() + ahead} {time.time_ns() + ahead}")) as port:
        flow = measure(HERE, port, "the job")
    assert abs((flow.clock_offset_ms or 0) - 5000) < (flow.ms or 0) + 1


def speaking(answer: Callable[[], str], key: str = "the job") -> Peer:
    """One who opens a conversation, with that key, and says that answer to whatever is asked."""

    def peer(link: socket.socket) -> None:
        lines = Lines(link, time.monotonic() + 600)
        token = lines.receive().split(" ")[3]
        lines.say("ok 1")
        lines.authenticate(key, "1", token, listens=True)
        with suppress(TalkError, StopIteration):
            lines.say("node1")
            while lines.receive():
                lines.say(answer())

    return peer


def test_what_one_without_the_key_says_is_not_believed() -> None:
    with played(speaking(lambda: "1 2", "another job")) as port:
        flow = measure(HERE, port, "the job")
    assert (flow.outcome, flow.peer, flow.ms) == ("failed", "", None)
    assert "its message is not authentic" in flow.words


def test_a_first_line_that_was_overheard_opens_no_conversation(server: Server) -> None:
    """It can be sent again; the nonce is another one, and what was said before is of no use."""
    first = greeting("the job", "talk", "a")
    with socket.create_connection((HERE, server.port), 60) as link:
        lines = Lines(link, time.monotonic() + 600)
        lines.say(first)
        assert re.fullmatch("ok [0-9a-f]{32}", lines.receive())
        lines.receive()
        with closing(socket.create_connection((HERE, server.port), 60)) as bulk:
            bulk.sendall(greeting("the job", "bulk", "a").encode() + b"\n")
            assert bulk.recv(100) == b""  # without our nonce
        lines.say("ping")
        with pytest.raises(ClosedError):
            lines.receive()


def test_another_jobs_key_is_told_nothing(server: Server) -> None:
    flow = measure(HERE, server.port, "another job")
    assert (flow.outcome, flow.gbps_out, flow.ms) == ("failed", None, None)
    assert "another job, listens there" in flow.words


def test_nobody_listens() -> None:
    flow = measure(HERE, free_port(), "the job")
    assert (flow.outcome, flow.gbps_out) == ("refused", None)


def test_an_address_that_is_not_ours_cannot_be_the_source(server: Server) -> None:
    flow = measure(HERE, server.port, "the job", source="192.0.2.77")
    assert flow.outcome == "failed"
    assert "192.0.2.77" in flow.words


def test_a_silent_peer_is_given_up() -> None:
    over = threading.Event()

    def silent(link: socket.socket) -> None:
        link.recv(1 << 16)
        over.wait(600)

    with played(silent) as port:
        flow = measure(HERE, port, "the job")
        over.set()
    assert flow.outcome == "failed"
    assert "did not answer in time" in flow.words


def test_a_peer_that_resets_at_once() -> None:
    """Before we look, it was refused; after that, the talk failed."""
    with played(tcp.hang_up) as port:
        assert measure(HERE, port, "the job").outcome in {"refused", "failed"}


def test_the_least_that_came_is_a_rate() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.send(b"0123456789")
        came = tcp.receive_data(far, 1.0, time.monotonic() + 600)
    assert came.size == 10
    assert came.gbps == pytest.approx(10 * 8 / 1.0 / 1e9, rel=0.5)


def answering(*lines: bytes) -> Peer:
    """Says these lines, one for each that it hears, and hangs up."""

    def peer(link: socket.socket) -> None:
        with link.makefile("rb") as heard:
            for line in lines:
                heard.readline()
                link.sendall(line)
            heard.readline()

    return peer


def test_a_peer_that_ends_in_the_middle_leaves_what_is_known() -> None:
    pings = iter([f"{time.time_ns()} {time.time_ns()}"] * 20)
    with played(speaking(lambda: next(pings))) as port:
        flow = measure(HERE, port, "the job")
    assert flow.outcome == "failed"
    assert flow.ms is not None
    assert flow.gbps_out is None


@pytest.mark.parametrize(
    "lines",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\xff" * 10000, b"ok\n1 2\n", b"ok 1\n1 2\n"],
    ids=["http", "endless", "of 1.0", "no tag"],
)
def test_what_speaks_another_protocol_is_not_believed(lines: bytes) -> None:
    with played(answering(lines)) as port:
        assert measure(HERE, port, "the job").outcome == "failed"


@pytest.mark.parametrize("answer", ["1 2 3", "-1 nan", "¹ ²", ""])
def test_what_answers_by_no_numbers_is_not_believed(answer: str) -> None:
    with played(speaking(lambda: answer)) as port:
        flow = measure(HERE, port, "the job")
    assert (flow.outcome, flow.peer, flow.ms) == ("failed", "node1", None)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 9000,
        greeting("another job", "talk", "a").encode() + b"\n",
        greeting("the job", "dance", "a").encode() + b"\n",
        greeting("the job", "bulk", "a talk that is not").encode() + b"\n",
        greeting("the job", "echo", "a", -5).encode() + b"\n",
        greeting("the job", "talk", "a").encode() + b"\nsink 1\n",
        greeting("the job", "talk", "a").encode() + b"\nsink nan\n",
        greeting("the job", "talk", "a").encode() + b"\nsource\n",
        "gpudoctor/2 schlüssel talk a 0\n".encode(),
    ],
    ids=range(11),
)
def test_a_server_outlives_whatever_it_receives(server: Server, message: bytes) -> None:
    with closing(socket.create_connection((HERE, server.port), 5)) as stranger:
        stranger.sendall(message)
        with suppress(OSError):  # it was hung up on already
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1 << 16):
                pass
    assert measure(HERE, server.port, "the job", window=0.05).outcome == "connected"


def test_a_closed_ear_listens_no_more() -> None:
    with Server(HERE, "the job") as server:
        kept = socket.create_connection((HERE, server.port), 5)
        kept.sendall(greeting("the job", "talk", "a").encode() + b"\n")
        assert kept.recv(3) == b"ok "
    assert tcp.connect(HERE, server.port, 1.0).outcome == "refused"
    with kept:
        kept.settimeout(5)
        while kept.recv(100):
            pass


def test_where_the_kernel_says_less_rates_are_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows: no rtnetlink, no TCP_INFO, no say in the size of segments."""
    for name in ("AF_NETLINK", "TCP_INFO", "TCP_MAXSEG"):
        monkeypatch.delattr(socket, name)
    assert list_interfaces() is None
    flow = measure(HERE, server.port, "the job", window=0.05)
    assert (flow.outcome, bool(flow.gbps_out), bool(flow.gbps_in)) == ("connected", True, True)
    assert (flow.retransmitted, flow.mtu) == (None, None)


def test_how_an_attempt_to_connect_ends(server: Server) -> None:
    assert tcp.connect(HERE, server.port, 1.0).outcome == "connected"
    assert tcp.connect(HERE, server.port, 1.0, source="127.0.0.9").outcome == "connected"
    assert tcp.connect(HERE, free_port(), 1.0).outcome == "refused"
    assert tcp.connect("nowhere.invalid", 1, 3.0).outcome == "unresolved"


def test_a_name_leads_to_loopback_or_not() -> None:
    assert resolve("localhost").loopback
    assert resolve("127.0.1.1").loopback
    assert not resolve("192.0.2.1").loopback
    nowhere = resolve("nowhere.invalid")
    assert (nowhere.addresses, nowhere.loopback, bool(nowhere.why)) == ((), False, True)
    assert resolve("x" * 300).why


def test_an_address_needs_no_resolver() -> None:
    assert resolve("fe80::1%eth0").addresses == ("fe80::1%eth0",)
