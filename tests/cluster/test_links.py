"""Between two ends on loopback; and which of a machine's interfaces NCCL and Gloo take."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.flow import measure
from gpudoctor.cluster.links.protocol import ClosedError, Lines, TalkError, greeting
from gpudoctor.cluster.links.server import Server
from gpudoctor.target.network import (
    Address,
    Choice,
    Interface,
    Resolved,
    interface_with_address,
    list_interfaces,
    resolve,
    selected_names,
)
from gpudoctor.target.network import gloo_choice as gloo
from gpudoctor.target.network import nccl_choice as nccl
from tests.processes import free_port

HERE = "127.0.0.1"
Peer = Callable[[socket.socket], None]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(HERE, "the job") as listening:
        yield listening


@contextmanager
def played(peer: Peer) -> Iterator[int]:
    """The port of a program that is no measurement server: `peer` plays one connection."""
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


def interface(name: str, *addresses: str, running: bool = True) -> Interface:
    own = tuple(Address(text, int(prefix)) for text, _, prefix in (one.partition("/") for one in addresses))
    return Interface(name, running, own)


LO = interface("lo", "127.0.0.1/8", "::1/128")
ETH0 = interface("eth0", "10.0.0.5/16", "fd00::5/64", "fe80::5%eth0/64")
ETH1 = interface("eth1", "10.9.0.5/24")
DOCKER = interface("docker0", "172.17.0.1/16")
IB0 = interface("ib0", "192.168.7.5/24")
VIRBR = interface("virbr0", "192.168.122.1/24")
LOCAL6 = interface("eth2", "fe80::7%eth2/64")
MACHINE = (LO, DOCKER, ETH0, ETH1)


def test_this_machine_has_what_the_kernel_lists() -> None:
    found = list_interfaces()
    assert found
    assert {one.name for one in found} == {name for _, name in socket.if_nameindex()}
    loopback = next(one for one in found if one.name == "lo")
    assert loopback.running
    assert loopback.addresses[0] == Address("127.0.0.1", 8)


def test_every_address_can_be_bound() -> None:
    for one in list_interfaces() or ():
        for address in one.addresses if one.running else ():
            family = {4: socket.AF_INET, 6: socket.AF_INET6}[address.version]
            target = socket.getaddrinfo(address.text, 0, family, socket.SOCK_STREAM)[0][4]
            with socket.socket(family, socket.SOCK_STREAM) as link:
                link.bind(target)


@pytest.mark.parametrize(
    ("among", "environ", "taken"),
    [
        (MACHINE, {}, ("eth0", "10.0.0.5", ("eth1",))),
        ((*MACHINE, IB0), {}, ("ib0", "192.168.7.5", ())),
        ((*MACHINE, IB0), {"NCCL_SOCKET_IFNAME": "eth1"}, ("eth1", "10.9.0.5", ())),
        (MACHINE, {"NCCL_SOCKET_IFNAME": "=eth"}, ("", "", ())),
        (MACHINE, {"NCCL_SOCKET_IFNAME": "e"}, ("eth0", "10.0.0.5", ("eth1",))),
        (MACHINE, {"NCCL_SOCKET_FAMILY": "AF_INET6"}, ("eth0", "fd00::5", ())),
        (MACHINE, {"NCCL_COMM_ID": "10.9.0.77:29500"}, ("eth1", "10.9.0.5", ())),
        (MACHINE, {"NCCL_COMM_ID": "[fd00::77]:29500"}, ("eth0", "fd00::5", ())),
        (MACHINE, {"NCCL_COMM_ID": "203.0.113.1:29500"}, ("", "", ())),
        (MACHINE, {"NCCL_COMM_ID": "10.9.0.77:29500", "NCCL_SOCKET_IFNAME": "eth0"}, ("eth1", "10.9.0.5", ())),
        ((LO, DOCKER, VIRBR), {}, ("docker0", "172.17.0.1", ())),
        ((LO, VIRBR), {}, ("lo", "127.0.0.1", ())),
        ((LO, LOCAL6), {}, ("eth2", "fe80::7%eth2", ())),
        ((LO, interface("eth0", "10.0.0.5/16", running=False), ETH1), {}, ("eth1", "10.9.0.5", ())),
        ((LO, interface("eth0", "fd00::5/64"), ETH1), {}, ("eth1", "10.9.0.5", ("eth0",))),
    ],
)
def test_nccl_takes(
    among: tuple[Interface, ...], environ: dict[str, str], taken: tuple[str, str, tuple[str, ...]]
) -> None:
    choice = nccl(among, environ)
    assert (choice.interface, choice.address, choice.also) == taken
    assert choice.because


def test_nccl_before_2_28_takes_what_has_no_carrier_and_libvirts_bridge() -> None:
    dead = interface("eth0", "10.0.0.5/16", running=False)
    assert [nccl((LO, dead, ETH1), {}, release).interface for release in ((2, 27, 7), (2, 28, 3))] == ["eth0", "eth1"]
    assert [nccl((LO, VIRBR), {}, release).interface for release in ((2, 27, 7), (2, 28, 3))] == ["virbr0", "lo"]


@pytest.mark.parametrize(
    ("environ", "own", "taken"),
    [
        ({}, ("10.9.0.5",), ("eth1", "10.9.0.5")),
        ({}, ("127.0.1.1",), ("lo", "127.0.1.1")),
        ({}, ("203.0.113.8",), ("lo", "127.0.0.1")),
        ({}, (), ("lo", "127.0.0.1")),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, ("127.0.1.1",), ("eth1", "10.9.0.5")),
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, (), ("eth0", "10.0.0.5")),
    ],
)
def test_gloo_takes(environ: dict[str, str], own: tuple[str, ...], taken: tuple[str, str]) -> None:
    choice = gloo(MACHINE, environ, lambda: Resolved("node1", own, "" if own else "Name or service not known"))
    assert (choice.interface, choice.address) == taken


NAMES = ["docker0", "eth0", "eth1", "eth10", "ib0", "lo"]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth0,ib0", ["eth0", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["docker0", "eth0", "eth10", "ib0", "lo"]),
        ("eno1", []),
        ("=,", NAMES),
        ("^", []),
    ],
)
def test_names_are_prefixes_unless_an_equals_sign_says_otherwise(wanted: str, taken: list[str]) -> None:
    assert selected_names(wanted, NAMES) == taken


def test_a_choice_of_nothing_is_false_and_says_why() -> None:
    choice = nccl(MACHINE, {"NCCL_SOCKET_IFNAME": "eno1"})
    assert not choice
    assert choice == Choice("", "", "NCCL_SOCKET_IFNAME=eno1 names no interface that is up with an address")


def test_an_address_leads_back_to_its_interface() -> None:
    assert interface_with_address("10.9.0.5", MACHINE) == ETH1
    assert interface_with_address("10.9.0.6", MACHINE) is None
