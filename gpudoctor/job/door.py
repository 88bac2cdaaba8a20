"""Where the hub listens: the job's own port, and some of ours should that one be closed to somebody."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from gpudoctor.job.wire import small
from gpudoctor.model.errors import UsageError


class Door:
    """Listening sockets of the hub on all its addresses: none where somebody else has every port. `taken` are those."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.sockets: list[socket.socket] = []
        self.taken: list[int] = []
        for port in ports:
            try:
                self.sockets.append(_listening(port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    self.close()
                    raise UsageError(f"cannot listen on port {port}: {error.strerror}") from error
                self.taken.append(port)

    def close(self) -> None:
        """Leave all ports, so that the job can have its own."""
        for one in self.sockets:
            one.close()
        self.sockets.clear()


def _listening(port: int) -> socket.socket:
    """On IPv6 and IPv4 alike, where there is IPv6."""
    both = socket.has_dualstack_ipv6()
    one = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        small(one)
        one.bind(("", port))
        one.listen(4096)
    except OSError:
        one.close()
        raise
    return one
