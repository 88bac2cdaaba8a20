"""Where the hub listens: the job's own port, and some of ours should that one be closed to somebody.

Only at the addresses that MASTER_ADDR leads to on rank 0, which are those that the other ranks come to. At all
addresses where these cannot be told: a name that leads to no address of this machine (a load balancer or a service of
Kubernetes), or to a loopback, as Debian has it for the machine's own name, while others see another address.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from gpudoctor.job.place import Place
from gpudoctor.job.wire import small
from gpudoctor.links.names import literal, resolve
from gpudoctor.links.reach import numeric
from gpudoctor.model.errors import UsageError

_RESOLVING = 2.0
"""Seconds for MASTER_ADDR."""


def addresses(place: Place) -> tuple[str, ...]:
    """The job's own addresses on this machine; none where that cannot be told."""
    own = tuple(one for one in resolve(place.master, _RESOLVING).addresses if _is_ours(one)) if place.master else ()
    named = literal(place.master) or place.master == "localhost"
    return own if named or not all(ipaddress.ip_address(one).is_loopback for one in own) else ()


def _is_ours(address: str) -> bool:
    try:
        family, kind, protocol, _, where = numeric(address, 0)
        with socket.socket(family, kind, protocol) as one:
            one.bind(where)
    except OSError:
        return False
    return True


class Door:
    """Listening sockets of the hub at these addresses, or at all: none where somebody else has every port.

    `taken` are the ports that somebody else has at any address of this machine: the job will want all of them.
    """

    def __init__(self, ports: Sequence[int], at: Sequence[str] = ()) -> None:
        self.sockets: list[socket.socket] = []
        self.taken: list[int] = []
        for port in ports:
            try:
                everywhere = _bound(port)
                if not at:
                    self._listen(everywhere)
                    continue
                everywhere.close()
                for address in at:
                    self._listen(_bound(port, address))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    self.close()
                    raise UsageError(f"cannot listen on port {port}: {error.strerror}") from error
                self.taken.append(port)

    @property
    def own(self) -> tuple[str, int]:
        """The address and port at which its own machine finds it; port 0 where it does not listen."""
        if not self.sockets:
            return "", 0
        address, port = self.sockets[0].getsockname()[:2]
        return {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(address, address), port

    def _listen(self, one: socket.socket) -> None:
        try:
            one.listen(4096)
        except OSError:
            one.close()
            raise
        self.sockets.append(one)

    def close(self) -> None:
        """Leave all ports, so that the job can have its own."""
        for one in self.sockets:
            one.close()
        self.sockets.clear()


def _bound(port: int, address: str = "") -> socket.socket:
    """At that address; without one at all, on IPv6 and IPv4 alike where there is IPv6."""
    both = not address and socket.has_dualstack_ipv6()
    family, where = socket.AF_INET6 if both else socket.AF_INET, ("", port)
    if address:
        family, _, _, _, where = numeric(address, port)
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        small(one)
        one.bind(where)
    except OSError:
        one.close()
        raise
    return one
