"""The kernel's own lists of links and addresses: rtnetlink(7), as getifaddrs(3) asks it, and in the same order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.model.frozen import frozen

_GETLINK, _GETADDR, _DONE, _ERROR = 18, 22, 3, 2
_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP"""

_IFNAME = 3
_ADDRESS, _LOCAL = 1, 2

Attributes = dict[int, bytes]


class Message(NamedTuple):
    """The fixed head of an answer, and its attributes by number."""

    head: bytes
    attributes: Attributes


@frozen
class Link:
    """An interface. `flags` are those of ``linux/if.h``."""

    index: int
    name: str
    flags: int


@frozen
class Address:
    """An address of the interface with this index, and the bits of its network's prefix."""

    index: int
    family: int
    text: str
    prefix: int


def links() -> list[Link]:
    """Every interface. Raises `OSError`."""
    found = []
    for head, attributes in _dump(_GETLINK, 16):  # struct ifinfomsg
        index, flags = struct.unpack_from("=xxxxiI", head)
        found.append(Link(index, attributes.get(_IFNAME, b"").rstrip(b"\0").decode("utf-8", "replace"), flags))
    return found


def addresses() -> list[Address]:
    """Every IPv4 and IPv6 address: first all of IPv4. Raises `OSError`."""
    found = []
    for head, attributes in _dump(_GETADDR, 8):  # struct ifaddrmsg
        family, prefix, _, _, index = struct.unpack_from("=BBBBI", head)
        raw = attributes.get(_LOCAL) or attributes.get(_ADDRESS)  # of a point-to-point link, _ADDRESS is the peer's
        if raw and family in (socket.AF_INET, socket.AF_INET6):
            found.append(Address(index, family, socket.inet_ntop(family, raw), prefix))
    return found


def _dump(kind: int, head: int) -> Iterator[Message]:
    """Ask for all of a kind; `head` is the size of the fixed head of each answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:  # NETLINK_ROUTE
        link.settimeout(2.0)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + 16, kind, _DUMP, 1, 0) + bytes(16))
        while True:
            for answer, body in _messages(link.recv(1 << 17)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "the kernel does not list its interfaces")
                yield Message(body[:head], _attributes(body[head:]))


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    while len(datagram) >= 16:
        size, kind = struct.unpack_from("=IH", datagram)
        yield kind, datagram[16:size]
        datagram = datagram[max(16, (size + 3) & ~3) :]


def _attributes(raw: bytes) -> Attributes:
    found: Attributes = {}
    while len(raw) >= 4:
        size, kind = struct.unpack_from("=HH", raw)
        found[kind & 0x3FFF] = raw[4:size]
        raw = raw[max(4, (size + 3) & ~3) :]
    return found
