"""How an attempt to connect ends: the difference between a closed port, a firewall and a missing route."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpudoctor.links._tcp import limit_segments, writable
from gpudoctor.links.names import resolve

Outcome = Literal["connected", "refused", "filtered", "unroutable", "unresolved", "failed"]
"""`filtered`: nothing came back within the time. `failed`: this machine could not even try."""

WITNESSES = (1, 9)
"""Ports on which hardly anything listens: a host that is there and reachable refuses them."""

_UNROUTABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES, errno.EPERM}
_UNDER_WAY = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, getattr(errno, "WSAEWOULDBLOCK", errno.EAGAIN)}


@dataclass(frozen=True, slots=True)
class Reached:
    """The outcome, the seconds that it took, and a sentence."""

    outcome: Outcome
    seconds: float
    words: str
    answers: bool | None = None
    """Where filtered: whether the host answers on other ports."""
    address: str = ""
    """What was connected to: of a name, one of its addresses."""


def connect(address: str, port: int, seconds: float, source: str = "") -> Reached:
    """Try to connect to an address or name, from the address `source` where given; nothing is said to the peer."""
    link, reached = opened(address, port, seconds, source)
    if link:
        link.close()
    return reached


def opened(
    address: str, port: int, seconds: float, source: str = "", segment: int = 0
) -> tuple[socket.socket | None, Reached]:
    """The connection, where there is one, and how the attempt ended. `segment` limits the bytes of a TCP segment.

    Of a name with several addresses each is tried in turn; where none connects, it is the first that is told of.
    """
    begun = time.monotonic()
    resolved = resolve(address, seconds)
    if not resolved.addresses:
        return None, Reached("unresolved", time.monotonic() - begun, f"{address}: {resolved.why}")
    first: Reached | None = None
    for turn, one in enumerate(resolved.addresses):
        share = (begun + seconds - time.monotonic()) / (len(resolved.addresses) - turn)
        link, reached = _opened(one, port, max(0.0, share), source, segment)
        if link:
            return link, reached
        first = first or reached
    assert first
    return None, first


def _opened(address: str, port: int, seconds: float, source: str, segment: int) -> tuple[socket.socket | None, Reached]:
    """The same for a literal address."""
    begun = time.monotonic()
    try:
        link, started = _attempt(address, port, source, segment)
    except OSError as error:
        words = f"no attempt from {source or 'any address'} to {address}: {error.strerror or error}"
        return None, Reached("failed", time.monotonic() - begun, words, address=address)
    code = _settled(link, begun + seconds) if started in _UNDER_WAY else started
    if code == 0:
        words = f"{address} port {port} accepts connections"
        return link, Reached("connected", time.monotonic() - begun, words, address=address)
    link.close()
    if code is None:
        return None, _filtered(address, port, time.monotonic() - begun, source)
    return None, _ended(address, port, code, time.monotonic() - begun)


def _attempt(address: str, port: int, source: str, segment: int = 0) -> tuple[socket.socket, int]:
    """A connection on its way, and the error number of its first step."""
    family, kind, protocol, _, target = numeric(address, port)
    link = socket.socket(family, kind, protocol)
    try:
        link.setblocking(False)
        if segment:
            limit_segments(link, segment)
        if source:
            link.bind(numeric(source, 0)[4])
        return link, link.connect_ex(target)
    except BaseException:
        link.close()
        raise


def numeric(address: str, port: int) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]:
    """What the socket calls need for a literal address; a scope (``%eth0``) becomes its number."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return found[0]  # type: ignore[return-value]


def _settled(link: socket.socket, until: float) -> int | None:
    """The error number with which it ended, 0 where it is open, None where nothing happened in time."""
    ended = writable([link], until - time.monotonic())
    return link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ended else None


def _ended(address: str, port: int, code: int, seconds: float) -> Reached:
    if code in (errno.ECONNREFUSED, errno.ECONNRESET):
        return Reached(
            "refused", seconds, f"{address} refuses port {port}: nothing listens there, or a firewall says no"
        )
    if code == errno.ETIMEDOUT:
        return Reached("filtered", seconds, f"no answer from {address} port {port} until the kernel gave up")
    words = f"{address} port {port}: {os.strerror(code)}"
    return Reached("unroutable" if code in _UNROUTABLE else "failed", seconds, words)


def _filtered(address: str, port: int, seconds: float, source: str) -> Reached:
    """Nothing came back: does the host answer at all? A host that answers one port takes no longer for another."""
    answers = _any_answer(address, [one for one in WITNESSES if one != port], source, min(seconds, 0.5))
    silent = f"no answer from {address} port {port} within {seconds:.1f} s"
    if answers:
        return Reached("filtered", seconds, f"{silent}, but the host answers on other ports", True, address)
    return Reached("filtered", seconds, f"{silent}, nor on ports {' and '.join(map(str, WITNESSES))}", False, address)


def _any_answer(address: str, ports: Iterable[int], source: str, seconds: float) -> bool:
    """Whether one of the ports is refused or open within the time."""
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
