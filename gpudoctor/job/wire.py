"""Lines of JSON over TCP, in segments so small that they pass where large packets vanish.

Once both ends have proven that they know the job's key, each line is authenticated (`Line.authenticate`). Until then
only short lines are read. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import threading
import time
from typing import Any

from gpudoctor.links.sealing import ForgedError, Seal, seals

SEGMENT = 512
"""Bytes of one segment: every path passes packets of 576 (RFC 791)."""
_MOST, _MOST_UNPROVEN = 8 << 20, 4096
"""Bytes of a line, and of all that is said before the other side is known to be of our job."""
_MOST_OF_ALL, _MOST_LINES = 256 << 20, 100_000
"""Bytes and lines of a whole connection."""
_SAY = 5.0
"""Seconds in which the other side must take something of what is said."""

Message = dict[str, Any]


class GoneError(OSError):
    """The other side has closed the connection, or speaks something else."""


def small(one: socket.socket) -> None:
    """Before it listens: announce and send small segments only. Where the system refuses, it goes without."""
    with contextlib.suppress(OSError, AttributeError):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)


class Line:
    """One end of a connection. What is said is said from any thread; what is heard is heard by one."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""
        self._out: Seal | None = None
        self._in: Seal | None = None
        self._bytes = self._lines = 0
        self._lock = threading.Lock()
        connection.settimeout(_SAY)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def peer(self) -> str:
        """The address of the other side."""
        with contextlib.suppress(OSError):
            return str(self.socket.getpeername()[0]).removeprefix("::ffff:")
        return "gone"

    @property
    def local(self) -> bool:
        """Whether the other side is on this machine: then both have the same address, or a loopback."""
        with contextlib.suppress(OSError):
            return bool(self.socket.getsockname()[0] == self.socket.getpeername()[0])
        return False

    def authenticate(self, key: str, listener: str, caller: str, listens: bool) -> None:
        """From here on say and take authenticated lines only; `listener` and `caller` are the nonces of both ends."""
        from_listener, from_caller = seals(key, listener, caller)
        self._out, self._in = (from_listener, from_caller) if listens else (from_caller, from_listener)
        self._bytes = 0

    def send(self, **what: Any) -> None:
        """Send one object; raises `GoneError` where the other side does not take it. Nothing follows half a line."""
        message = json.dumps(what, separators=(",", ":")).encode()
        with self._lock:
            rest = memoryview((self._out.sealed(message) if self._out else message) + b"\n")
            try:
                while rest:
                    rest = rest[self.socket.send(rest) :]
            except OSError as error:
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise GoneError(str(error)) from error

    def speaks(self, seconds: float) -> bool:
        """Whether there is something to hear, or the end, within so many seconds."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.socket, selectors.EVENT_READ)
            return bool(waiting.select(max(0.0, seconds)))

    def receive(self) -> list[Message]:
        """The objects that have come, after one read; raises `GoneError` at the stream's end and for anything else."""
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
        return [self._object(line) for line in lines if line.strip()]

    def _object(self, line: bytes) -> Message:
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
        """The next object, None where none comes in time. Only for a side that has not heard anything yet."""
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
        """Close it; the other side hears the end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def drop(self) -> None:
        """Close it, whatever is still under way, so that nothing of it lingers on our port."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
