"""What the kernel knows of a TCP connection, and how large its segments may be."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

SMALL = 512
"""Bytes of a segment that passes any path: RFC 1122 has every host take packets of 576 bytes."""

_PMTU, _TOTAL_RETRANS, _DATA_SEGS_OUT, _DSACK_DUPS = 60, 100, 156, 216
"""Offsets in struct tcp_info of linux/tcp.h, 32 bits each; kernels append to it and never move what is there."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Of the sending side: data segments handed to the network, how many of them were lost, the path's MTU in bytes.

    What was sent again although it had arrived was late, not lost: a slow link's full queue does that. The receiver
    tells by duplicate selective acknowledgements (RFC 2883), which Linux counts since 4.19.
    """

    segments: int | None = None
    lost: int | None = None
    mtu: int | None = None

    @property
    def retransmitted(self) -> float | None:
        """The share of the segments that were sent again because they were lost."""
        if self.segments is None or self.lost is None:
            return None
        return min(1.0, self.lost / self.segments) if self.segments else 0.0


def sent(link: socket.socket) -> Sent:
    """What the kernel counts; older kernels and other systems say less, or nothing."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or not hasattr(socket, "AF_NETLINK"):  # others number and order it differently
        return Sent()
    try:
        info = link.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError:
        return Sent()
    again, late = _field(info, _TOTAL_RETRANS), _field(info, _DSACK_DUPS) or 0
    lost = None if again is None else max(0, again - late)
    return Sent(_field(info, _DATA_SEGS_OUT), lost, _field(info, _PMTU))


def limit_segments(link: socket.socket, size: int) -> None:
    """Before it connects: neither side sends more than `size` bytes, TCP's options included, in one segment."""
    if hasattr(socket, "TCP_MAXSEG"):
        with contextlib.suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)


def at_once(link: socket.socket) -> None:
    """Send each message when it is written."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def headers(link: socket.socket) -> int:
    """Bytes of an IP packet beside its TCP segment and the options that TCP_MAXSEG counts."""
    return 60 if link.family == socket.AF_INET6 else 40


def readable(links: Iterable[socket.socket], seconds: float = 0.0) -> list[socket.socket]:
    """Those of the connections that have something to say, or ended, once one has or time is up."""
    return _awaited(links, selectors.EVENT_READ, seconds)


def writable(links: Iterable[socket.socket], seconds: float = 0.0) -> list[socket.socket]:
    """Those that take data, or whose attempt to connect ended, once one does or time is up."""
    return _awaited(links, selectors.EVENT_WRITE, seconds)


def _awaited(links: Iterable[socket.socket], event: int, seconds: float) -> list[socket.socket]:
    """With poll(2) where there is one: select(2) knows no descriptor above 1023, which a training job may well have."""
    with getattr(selectors, "PollSelector", selectors.DefaultSelector)() as selector:
        for link in links:
            selector.register(link, event, link)
        return [key.data for key, _ in selector.select(max(0.0, seconds))]


def hang_up(link: socket.socket) -> None:
    """Close it and throw away what is still on its way."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def _field(info: bytes, offset: int) -> int | None:
    if len(info) < offset + 4:
        return None
    return int(struct.unpack_from("=I", info, offset)[0])
