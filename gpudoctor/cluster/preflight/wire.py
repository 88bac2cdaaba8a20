"""Lines of JSON over TCP, in segments so small that they pass where large packets vanish.

Once both ends have proven that they know the job's key, each line is authenticated (`Line.authenticate`). Until then
only short lines are read. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.protocol import ForgedError, SealedEnd
from gpudoctor.cluster.links.tcp import SMALL_SEGMENT, limit_segments, literal_address_info
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.core.errors import UsageError
from gpudoctor.probes.rendezvous import listening_process
from gpudoctor.target.local import Local
from gpudoctor.target.network import is_address, resolve

_MOST_LINE_BYTES, _MOST_UNPROVEN_BYTES = 8 << 20, 4096
"""Bytes of a line, and of all that is said before the other side is known to be of our job."""
_MOST_BYTES, _MOST_LINES = 256 << 20, 100_000
"""Bytes and lines of a whole connection."""
_SEND_SECONDS = 5.0
"""Seconds in which the other side must take something of what is said."""

Message = dict[str, Any]


class GoneError(OSError):
    """The connection is closed or broken, or the peer does not follow the protocol."""


class Line(SealedEnd):
    """A connection that carries JSON objects, one per line. Any thread may send, one thread may receive."""

    def __init__(self, connection: socket.socket) -> None:
        """Wrap a connected socket; not authenticated yet."""
        self.socket = connection
        self._rest = b""
        self._bytes = self._lines = 0
        self._lock = threading.Lock()
        connection.settimeout(_SEND_SECONDS)
        tcp.disable_nagle(connection)

    @property
    def peer(self) -> str:
        """IP address of the other side of the connection; ``gone`` if it is disconnected."""
        with contextlib.suppress(OSError):
            return str(self.socket.getpeername()[0]).removeprefix("::ffff:")
        return "gone"

    @property
    def local(self) -> bool:
        """True if both ends of the connection have the same address, so that the other side is on this machine."""
        with contextlib.suppress(OSError):
            return bool(self.socket.getsockname()[0] == self.socket.getpeername()[0])
        return False

    def authenticate(self, key: str, listener: str, caller: str, listens: bool) -> None:
        """Send and accept only authenticated lines from now on, of which more bytes are accepted. `listener` and
        `caller` are both ends' nonces; `listens` is True on the listening side.
        """
        super().authenticate(key, listener, caller, listens)
        self._bytes = 0

    def send(self, **fields: Any) -> None:
        """Send one JSON object; raises `GoneError`, and shuts the connection, if the peer does not take it in time."""
        message = json.dumps(fields, separators=(",", ":")).encode()
        with self._lock:
            rest = memoryview((self._out.sealed(message) if self._out else message) + b"\n")
            try:
                while rest:
                    rest = rest[self.socket.send(rest) :]
            except OSError as error:
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise GoneError(str(error)) from error

    def readable(self, seconds: float) -> bool:
        """True if data or the end of the stream comes within `seconds`."""
        return bool(tcp.readable([self.socket], seconds))

    def receive(self) -> list[Message]:
        """JSON objects completed by one read; none if it brought no whole line or timed out. Raises `GoneError` at the
        end of the stream, on a socket error, for invalid data or too much of it.
        """
        try:
            got = self.socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError as error:
            raise GoneError(str(error)) from error
        if not got:
            raise GoneError("it closed the connection")
        *lines, self._rest = (self._rest + got).split(b"\n")
        self._bytes += len(got)
        self._lines += len(lines)
        if len(self._rest) > _MOST_LINE_BYTES or self._lines > _MOST_LINES:
            raise GoneError("it sends no lines")
        if self._bytes > (_MOST_BYTES if self._in else _MOST_UNPROVEN_BYTES):
            raise GoneError("it sends too much")
        return [self._decoded(line) for line in lines if line.strip()]

    def _decoded(self, line: bytes) -> Message:
        """JSON object of a line, its tag checked; raises `GoneError` for anything else."""
        try:
            message = json.loads(self._in.opened(line) if self._in else line)
        except ForgedError as error:
            raise GoneError(str(error)) from error
        except (ValueError, RecursionError) as error:
            raise GoneError("it speaks something else") from error
        if not isinstance(message, dict):
            raise GoneError("it speaks something else")
        return message

    def wait(self, seconds: float) -> Message | None:
        """The next JSON object, None if none comes within `seconds`; others in the same read are lost. Raises
        `GoneError`.
        """
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                if receive := self.receive():
                    return receive[0]
        finally:
            self.socket.settimeout(_SEND_SECONDS)
        return None

    def close(self) -> None:
        """Shut down and close the connection, so that data sent before still arrives."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def drop(self) -> None:
        """Reset the connection; data not sent yet is discarded, and nothing lingers on the port."""
        tcp.hang_up(self.socket)


# ---- Where the coordinator listens: the job's own port, and some of ours should that one be closed to somebody ----
# Only at the addresses that MASTER_ADDR leads to on rank 0, which are those that the other ranks come to. At all
# addresses where these cannot be told: a name that leads to no address of this machine (a load balancer or a service
# of Kubernetes), or to a loopback, as Debian has it for the machine's own name, while others see another address.

_RESOLVE_SECONDS = 2.0
"""Seconds for MASTER_ADDR."""


def addresses(place: Place) -> tuple[str, ...]:
    """Local addresses that MASTER_ADDR resolves to; empty if none is local, or only a loopback not named as such."""
    found = resolve(place.master, _RESOLVE_SECONDS).addresses if place.master else ()
    own = tuple(address for address in found if _is_local_address(address))
    named = is_address(place.master) or place.master == "localhost"
    return own if named or not all(ipaddress.ip_address(address).is_loopback for address in own) else ()


def _is_local_address(address: str) -> bool:
    """True if a socket can be bound to the address on this machine."""
    try:
        family, kind, protocol, _, where = literal_address_info(address, 0)
        with socket.socket(family, kind, protocol) as sock:
            sock.bind(where)
    except OSError:
        return False
    return True


class ListeningSockets:
    """The coordinator's listening sockets, on each port at the given addresses (all addresses if there are none).
    `taken` lists ports in use by another program; a port that cannot be bound for another reason raises `UsageError`.
    """

    def __init__(self, ports: Sequence[int], at: Sequence[str] = ()) -> None:
        """Open the sockets; raises `UsageError` for a port that cannot be bound, unless another program has it."""
        self.sockets: list[socket.socket] = []
        self.taken: list[int] = []
        for port in ports:
            try:
                everywhere = _bound_socket(port)
                if not at:
                    self._listen(everywhere)
                    continue
                everywhere.close()
                for address in at:
                    self._listen(_bound_socket(port, address))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    self.close()
                    raise UsageError(f"cannot listen on port {port}: {error.strerror}") from error
                self.taken.append(port)

    @property
    def own_address(self) -> tuple[str, int]:
        """(address, port) at which a process on this machine can connect; ("", 0) if nothing listens."""
        if not self.sockets:
            return "", 0
        address, port = self.sockets[0].getsockname()[:2]
        return {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(address, address), port

    def _listen(self, sock: socket.socket) -> None:
        """Listen on the bound socket and keep it; it is closed, and `OSError` raised, if that fails."""
        try:
            sock.listen(4096)
        except OSError:
            sock.close()
            raise
        self.sockets.append(sock)

    def close(self) -> None:
        """Close all listening sockets, so that the job can use its port."""
        for sock in self.sockets:
            sock.close()
        self.sockets.clear()


def _bound_socket(port: int, address: str = "") -> socket.socket:
    """TCP socket bound to the port at the address, or at all (IPv6 and IPv4) if that is ""; it does not listen yet. Its
    segments are kept small. Raises `OSError`.
    """
    both = not address and socket.has_dualstack_ipv6()
    family, where = socket.AF_INET6 if both else socket.AF_INET, ("", port)
    if address:
        family, _, _, _, where = literal_address_info(address, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        limit_segments(sock, SMALL_SEGMENT)  # announce and send small segments only
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    return sock


def port_holder(port: int) -> str:
    """The process that listens on a local TCP port, ``python (pid 4711)``; ``another program`` if it cannot be read."""
    return listening_process(Local("quick"), port) or "another program"
