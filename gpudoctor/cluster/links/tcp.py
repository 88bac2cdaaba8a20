"""TCP connections between hosts: how an attempt to connect ends, what the kernel tells, how fast data passes.

The outcome of an attempt is the difference between a closed port, a firewall and a missing route.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpudoctor.target.network import resolve

SMALL_SEGMENT = 512
"""Bytes of a segment that passes any path: RFC 1122 has every host take packets of 576 bytes."""

_PMTU, _TOTAL_RETRANS, _DATA_SEGS_OUT, _DSACK_DUPS = 60, 100, 156, 216
"""Offsets in struct tcp_info of linux/tcp.h, 32 bits each; kernels append to it and never move what is there."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Counts of the sending side: data segments, segments lost, and path MTU in bytes; None where not known.
    Segments that were retransmitted although they had arrived (duplicate SACK, RFC 2883; Linux 4.19) are not lost.
    """

    segments: int | None = None
    lost: int | None = None
    mtu: int | None = None

    @property
    def retransmitted(self) -> float | None:
        """Share of the data segments that were lost and sent again, 0 to 1; None if either count is not known."""
        if self.segments is None or self.lost is None:
            return None
        return min(1.0, self.lost / self.segments) if self.segments else 0.0


def sent_counts(link: socket.socket) -> Sent:
    """Data segments sent, segments lost and path MTU from Linux's TCP_INFO; None for what it does not report."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or not hasattr(socket, "AF_NETLINK"):  # others number and order it differently
        return Sent()
    try:
        info = link.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError:
        return Sent()
    again, late = _tcp_info_field(info, _TOTAL_RETRANS), _tcp_info_field(info, _DSACK_DUPS) or 0
    lost = None if again is None else max(0, again - late)
    return Sent(_tcp_info_field(info, _DATA_SEGS_OUT), lost, _tcp_info_field(info, _PMTU))


def limit_segments(link: socket.socket, size: int) -> None:
    """Limit TCP segments in both directions to `size` bytes, options included; call before connecting."""
    if hasattr(socket, "TCP_MAXSEG"):
        with contextlib.suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)


def disable_nagle(link: socket.socket) -> None:
    """Turn off Nagle's algorithm (TCP_NODELAY): each message is sent when it is written."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def header_bytes(link: socket.socket) -> int:
    """Bytes of IP and TCP headers per packet of this connection, without TCP options: 40, or 60 for IPv6."""
    return 60 if link.family == socket.AF_INET6 else 40


def readable(links: Iterable[socket.socket], seconds: float = 0.0) -> list[socket.socket]:
    """Connections that have data or have ended, once any has or `seconds` have passed."""
    return _ready(links, selectors.EVENT_READ, seconds)


def writable(links: Iterable[socket.socket], seconds: float = 0.0) -> list[socket.socket]:
    """Connections that accept data or whose attempt to connect has ended, once any has or `seconds` have passed."""
    return _ready(links, selectors.EVENT_WRITE, seconds)


def _ready(links: Iterable[socket.socket], event: int, seconds: float) -> list[socket.socket]:
    """Connections ready for the event within `seconds`, by poll(2): select(2) takes no descriptors above 1023."""
    with getattr(selectors, "PollSelector", selectors.DefaultSelector)() as selector:
        for link in links:
            selector.register(link, event, link)
        return [key.data for key, _ in selector.select(max(0.0, seconds))]


def hang_up(link: socket.socket) -> None:
    """Close the connection at once and discard unsent data (SO_LINGER 0, which resets it)."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def _tcp_info_field(info: bytes, offset: int) -> int | None:
    """32-bit field of TCP_INFO at the offset; None if this kernel's structure is shorter."""
    if len(info) < offset + 4:
        return None
    return int(struct.unpack_from("=I", info, offset)[0])


# ---- How an attempt to connect ends ----

Outcome = Literal["connected", "refused", "filtered", "unroutable", "unresolved", "failed"]
"""`filtered`: nothing came back within the time. `failed`: this machine could not even try."""

UNUSED_PORTS = (1, 9)
"""Ports on which hardly anything listens: a host that is there and reachable refuses them."""

RETRY_SECONDS, ATTEMPTS = 0.4, 5
"""Seconds until another attempt is begun beside those without an answer, and how many there are at most. On a path that
loses packets a first segment may be lost, which the kernel sends again only after 1 s, then after 2 s more.
"""

_UNROUTABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES, errno.EPERM}
_UNDER_WAY = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, getattr(errno, "WSAEWOULDBLOCK", errno.EAGAIN)}


@dataclass(frozen=True, slots=True)
class Reached:
    """Outcome of an attempt to connect, the seconds it took, and a sentence about it."""

    outcome: Outcome
    seconds: float
    words: str
    answers: bool | None = None
    """Where filtered: whether the host answers on other ports."""
    address: str = ""
    """What was connected to: of a name, one of its addresses."""


def connect(address: str, port: int, seconds: float, source: str = "") -> Reached:
    """Try to connect to an address or name, and close again: how that ended. `source` as in `bind_source` (``""``:
    any).
    """
    link, reached = open_connection(address, port, seconds, source)
    if link:
        link.close()
    return reached


def open_connection(
    address: str, port: int, seconds: float, source: str = "", segment: int = 0
) -> tuple[socket.socket | None, Reached]:
    """(non-blocking connection or None, outcome of the attempt, which tells of any failure). `source` is as in
    `bind_source` (``""``: any); `segment` limits TCP segments in bytes, 0 for no limit.

    Every address of a name is tried in turn, all within `seconds`, and up to 0.5 s more to see whether a silent host
    answers on other ports; if none connects, the outcome is that of the first.
    """
    begun = time.monotonic()
    resolved = resolve(address, seconds)
    if not resolved.addresses:
        return None, Reached("unresolved", time.monotonic() - begun, f"{address}: {resolved.why}")
    first: Reached | None = None
    for turn, resolved_address in enumerate(resolved.addresses):
        share = (begun + seconds - time.monotonic()) / (len(resolved.addresses) - turn)
        link, reached = _open_literal(resolved_address, port, max(0.0, share), source, segment)
        if link:
            return link, reached
        first = first or reached
    assert first
    return None, first


def _open_literal(
    address: str, port: int, seconds: float, source: str, segment: int
) -> tuple[socket.socket | None, Reached]:
    """(non-blocking connection or None, outcome) of connecting to a literal address; `segment`: TCP's segment limit in
    bytes.
    """
    begun = time.monotonic()
    attempts: list[socket.socket] = []
    try:
        link, code = _first_ended(attempts, address, port, begun + seconds, source, segment)
    except OSError as error:
        words = f"no attempt from {source or 'any address'} to {address}: {error.strerror or error}"
        return None, Reached("failed", time.monotonic() - begun, words, address=address)
    finally:
        for attempt in attempts:
            attempt.close()
    if link is not None:
        words = f"{address} port {port} accepts connections"
        return link, Reached("connected", time.monotonic() - begun, words, address=address)
    if code is None:
        return None, _filtered(address, port, time.monotonic() - begun, source)
    return None, _outcome_of_error(address, port, code, time.monotonic() - begun)


def _first_ended(
    attempts: list[socket.socket], address: str, port: int, until: float, source: str, segment: int
) -> tuple[socket.socket | None, int | None]:
    """(connection or None; error number: 0 for a connection, None if there was no answer by `until`) of the first
    attempt that ends.

    Those still under way are left in `attempts`, for the caller to close. Raises `OSError` as `_attempt`.
    """
    while True:
        link, code = _attempt(address, port, source, segment)
        attempts.append(link)
        last = len(attempts) == ATTEMPTS
        if code in _UNDER_WAY:
            now = time.monotonic()
            ended = writable(attempts, (until if last else min(until, now + RETRY_SECONDS)) - now)
            if not ended:
                if last or time.monotonic() >= until:
                    return None, None
                continue
            link = ended[0]
            code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return None, code
        attempts.remove(link)
        return link, 0


def _attempt(address: str, port: int, source: str, segment: int = 0) -> tuple[socket.socket, int]:
    """Start to connect without blocking: (socket, connect's error number). Raises `OSError` if it cannot be started."""
    family, kind, protocol, _, target = literal_address_info(address, port)
    link = socket.socket(family, kind, protocol)
    try:
        link.setblocking(False)
        if segment:
            limit_segments(link, segment)
        if source:
            bind_source(link, source)
        return link, link.connect_ex(target)
    except BaseException:
        link.close()
        raise


def bind_source(link: socket.socket, source: str) -> None:
    """Bind the socket to a local address and, if one follows (``10.0.0.1%eth0``), to that interface alone, by
    SO_BINDTODEVICE, which needs root before Linux 5.7. Raises `OSError`.
    """
    address, _, interface = source.partition("%")
    if interface:
        bind_interface(link, interface)
    link.bind(literal_address_info(source if ":" in address else address, 0)[4])


def bind_interface(link: socket.socket, interface: str) -> None:
    """Bind the socket to an interface (SO_BINDTODEVICE); raises `OSError`, also where the system cannot."""
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None:
        raise OSError(errno.ENOTSUP, "this system binds no socket to an interface")
    link.setsockopt(socket.SOL_SOCKET, option, interface.encode() + b"\0")


def literal_address_info(
    address: str, port: int
) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]:
    """getaddrinfo's entry (family, type, protocol, name, address) of a literal address; raises `OSError` for a name."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return found[0]  # type: ignore[return-value]


def _outcome_of_error(address: str, port: int, code: int, seconds: float) -> Reached:
    """Outcome of an attempt that ended with this error number: refused, filtered, unroutable or failed."""
    if code in (errno.ECONNREFUSED, errno.ECONNRESET):
        return Reached(
            "refused", seconds, f"{address} refuses port {port}: nothing listens there, or a firewall says no"
        )
    if code == errno.ETIMEDOUT:
        return Reached("filtered", seconds, f"no answer from {address} port {port} until the kernel gave up")
    words = f"{address} port {port}: {os.strerror(code)}"
    return Reached("unroutable" if code in _UNROUTABLE else "failed", seconds, words)


def _filtered(address: str, port: int, seconds: float, source: str) -> Reached:
    """Outcome of an attempt without any answer; other ports are tried to see whether the host answers at all."""
    answers = _any_answer(address, [witness for witness in UNUSED_PORTS if witness != port], source, min(seconds, 0.5))
    silent = f"no answer from {address} port {port} within {seconds:.1f} s"
    if answers:
        return Reached("filtered", seconds, f"{silent}, but the host answers on other ports", True, address)
    others = " and ".join(map(str, UNUSED_PORTS))
    return Reached("filtered", seconds, f"{silent}, nor on ports {others}", False, address)


def _any_answer(address: str, ports: Iterable[int], source: str, seconds: float) -> bool:
    """True if one of the ports accepts or refuses a connection within `seconds`, so that the host can be reached."""
    until = time.monotonic() + seconds
    links: list[socket.socket] = []
    try:
        for port in ports:
            link, code = _attempt(address, port, source)
            links.append(link)
            if code not in _UNDER_WAY:
                return code in (0, errno.ECONNREFUSED)
        while (left := until - time.monotonic()) > 0:
            codes = [link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for link in writable(links, left)]
            if codes:
                return any(code in (0, errno.ECONNREFUSED) for code in codes)
    except OSError:
        pass
    finally:
        for link in links:
            link.close()
    return False


# ---- Data for a fixed time ----
# Filled by one side, emptied and timed by the other.

RAMP_SHARE = 0.4
"""The share of the time that is left out at its beginning: TCP is still finding its rate."""

FIRST_BYTE_SECONDS = 0.8
"""Seconds that the first byte may take: two retransmissions of a first segment that was lost."""

_CHUNK = bytes(1 << 20)
_TICK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Received:
    """Result of the receiving side: bytes, seconds since the first byte, and rate in Gbit/s after the ramp-up.
    If nothing came after the ramp-up, the rate is over the whole time: it is 0 only if no byte came.
    """

    size: int
    seconds: float
    gbps: float
    busy: float = 0.0
    """As `Clock.busy`."""


def receive_data(link: socket.socket, seconds: float, until: float) -> Received:
    """Receive data for `seconds` from the first byte on, at most until `until` (monotonic), and measure its rate.
    Raises `OSError` if the connection breaks or nothing comes at all.
    """
    room = bytearray(1 << 20)
    size = _read(link, room, min(until, time.monotonic() + FIRST_BYTE_SECONDS))
    clock = Clock()
    begun = now = time.monotonic()
    end, steady, before = min(until, begun + seconds), begun, 0
    while now < end:
        if steady == begun and now >= begun + RAMP_SHARE * seconds:
            steady, before = now, size
        try:
            size += _read(link, room, end)
        except TimeoutError:
            break
        now = time.monotonic()
    now = time.monotonic()
    if size == before:
        steady, before = begun, 0
    return Received(size, now - begun, (size - before) * 8 / max(now - steady, 1e-6) / 1e9, clock.busy)


def _read(link: socket.socket, room: bytearray, until: float) -> int:
    """Bytes read into `room`, at least one; raises `TimeoutError` at `until`, `ConnectionError` if the peer closed."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    link.settimeout(left)
    size = link.recv_into(room)
    if not size:
        raise ConnectionError("it closed the connection")
    return size


def send_data(link: socket.socket, is_over: Callable[[], bool], until: float) -> float:
    """Send data until `is_over()`, the peer hangs up, or `until` (monotonic); returns this thread's load meanwhile, 0
    to 1.
    """
    link.setblocking(False)
    clock = Clock()
    while time.monotonic() < until and not is_over():
        if not writable([link], _TICK_SECONDS):
            continue
        try:
            with contextlib.suppress(BlockingIOError):
                link.send(_CHUNK)
        except OSError:
            break
    return clock.busy


class Clock:
    """Measures the load of this thread from its creation on."""

    def __init__(self) -> None:
        """Start measuring this thread."""
        self._begun = time.monotonic_ns()
        self._scheduled_ns = _scheduled_ns()

    @property
    def busy(self) -> float:
        """Share of the time since creation, 0 to 1, in which the thread ran or waited for a processor: near 1 the CPU
        is the limit. 0 where unknown. Source: Linux Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
        """
        return min(1.0, (_scheduled_ns() - self._scheduled_ns) / max(1, time.monotonic_ns() - self._begun))


def _scheduled_ns() -> int:
    """Nanoseconds that this thread has run or was ready to run; 0 where the kernel does not tell."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return int(ran) + int(waited)
    except (OSError, ValueError):
        return 0
