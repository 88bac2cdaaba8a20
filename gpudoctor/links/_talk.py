"""How the two sides speak: lines of text, each within a time. The first line of a connection says who asks for what.

    gpudoctor/1 KEY VERB TOKEN BYTES     → ok

VERB `talk` opens a conversation named TOKEN; the ok is followed by the name of the side that listens. `bulk` adds a
connection to it, over which data will run. `echo` sends so many BYTES back once all of them have come. In a
conversation:

    ping                → nanoseconds of the realtime clock at receipt and at answer
    sink SECONDS        → reads from the bulk connection, then says what came: JSON of a `Came`
    source SECONDS      → fills the bulk connection until the next line comes, then says JSON of a `Sent`
"""

from __future__ import annotations

import hashlib
import socket
import time

PROTOCOL = "gpudoctor/1"
LONGEST_LINE = 4096


class TalkError(Exception):
    """The other side is silent, gone, or says what it should not."""


class ClosedError(TalkError):
    """The other side hung up."""


class Lines:
    """Lines over a socket, none of them awaited past `until` (of the monotonic clock)."""

    def __init__(self, link: socket.socket, until: float) -> None:
        self.link = link
        self.until = until
        self._rest = b""

    def say(self, line: str) -> None:
        """Send a line. Raises `TalkError`."""
        try:
            self.link.settimeout(_left(self.until))
            self.link.sendall(line.encode() + b"\n")
        except OSError as error:
            raise TalkError(_words(error)) from error

    def hear(self, seconds: float | None = None) -> str:
        """The next line, for at most so many seconds. Raises `TalkError`."""
        until = self.until if seconds is None else min(self.until, time.monotonic() + seconds)
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST_LINE:
                raise TalkError("it speaks another protocol")
            try:
                self.link.settimeout(_left(until))
                more = self.link.recv(LONGEST_LINE)
            except OSError as error:
                raise TalkError(_words(error)) from error
            if not more:
                raise ClosedError("it closed the connection")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("ascii", "replace")


def greeting(key: str, verb: str, token: str, size: int = 0) -> str:
    """The first line of a connection."""
    return f"{PROTOCOL} {sign(key)} {verb} {token} {size}"


def sign(key: str) -> str:
    """What stands for the job's key on the wire."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return error.strerror or str(error)
