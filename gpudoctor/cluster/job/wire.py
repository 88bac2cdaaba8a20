"""Lines of JSON over TCP, in segments so small that they pass where large packets vanish.

Once both ends have proven that they know the job's key, each line is authenticated (`Line.authenticate`). Until then
only short lines are read. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.lines import ForgedError, Seal, seals

_MOST, _MOST_UNPROVEN = 8 << 20, 4096
"""Bytes of a line, and of all that is said before the other side is known to be of our job."""
_MOST_OF_ALL, _MOST_LINES = 256 << 20, 100_000
"""Bytes and lines of a whole connection."""
_SAY = 5.0
"""Seconds in which the other side must take something of what is said."""

Message = dict[str, Any]


class GoneError(OSError):
    """The connection is closed or broken, or the peer does not follow the protocol."""


class Line:
    """A connection that carries JSON objects, one per line. Any thread may send, one thread may receive."""

    def __init__(self, connection: socket.socket) -> None:
        """Wrap a connected socket; not authenticated yet."""
        self.socket = connection
        self._rest = b""
        self._out: Seal | None = None
        self._in: Seal | None = None
        self._bytes = self._lines = 0
        self._lock = threading.Lock()
        connection.settimeout(_SAY)
        tcp.disable_nagle(connection)

    @property
    def peer(self) -> str:
        """IP address of the other side; ``gone`` if it is disconnected."""
        with contextlib.suppress(OSError):
            return str(self.socket.getpeername()[0]).removeprefix("::ffff:")
        return "gone"

    @property
    def local(self) -> bool:
        """True if the other side is on this machine: both have the same address."""
        with contextlib.suppress(OSError):
            return bool(self.socket.getsockname()[0] == self.socket.getpeername()[0])
        return False

    def authenticate(self, key: str, listener: str, caller: str, listens: bool) -> None:
        """Send and accept only authenticated lines from now on.
        `listener` and `caller` are both ends' nonces; `listens` is True on the listening side.
        """
        from_listener, from_caller = seals(key, listener, caller)
        self._out, self._in = (from_listener, from_caller) if listens else (from_caller, from_listener)
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
        """Objects completed by one read; none where it brought no whole line or timed out. Raises `GoneError` at the
        end of the stream, on a socket error, for invalid data or for too much of it.
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
        if len(self._rest) > _MOST or self._lines > _MOST_LINES:
            raise GoneError("it sends no lines")
        if self._bytes > (_MOST_OF_ALL if self._in else _MOST_UNPROVEN):
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
        """The next object, None if none comes within `seconds`; for use before the first other message."""
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                if receive := self.receive():
                    return receive[0]
        finally:
            self.socket.settimeout(_SAY)
        return None

    def close(self) -> None:
        """Close the connection in an orderly way."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def drop(self) -> None:
        """Reset the connection; pending data is discarded, so that nothing lingers on the port."""
        tcp.hang_up(self.socket)
