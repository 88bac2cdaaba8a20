"""How the two sides speak: lines of text, each within a time. The first line of a connection says who asks for what.

    gpudoctor/2 TAG VERB TOKEN NUMBER    → ok

TAG proves that whoever asks has the job's key. VERB `talk` opens a conversation named TOKEN; the ok is followed by the
nonce of the side that listens, and from there on each line is authenticated, its name the first. `bulk` adds the
connection of that NUMBER to it, over which data will run. `echo` sends NUMBER bytes back once all of them have come. In
a conversation:

    ping                → nanoseconds of the realtime clock at receipt and at answer
    sink SECONDS        → reads from the bulk connection, then says what came: JSON of a `Came`
    source SECONDS      → fills the bulk connection until the next line comes, then says JSON of a `Sent`
"""

from __future__ import annotations

import socket
import time

from gpudoctor.links.sealing import ForgedError, Seal, seals, tag

PROTOCOL = "gpudoctor/2"
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
        self._out: Seal | None = None
        self._in: Seal | None = None

    def authenticate(self, key: str, listener: str, caller: str, listens: bool) -> None:
        """From here on say and hear authenticated lines only; `listener` and `caller` are the nonces of both ends."""
        from_listener, from_caller = seals(key, listener, caller)
        self._out, self._in = (from_listener, from_caller) if listens else (from_caller, from_listener)

    def say(self, line: str) -> None:
        """Send a line. Raises `TalkError`."""
        try:
            self.link.settimeout(_left(self.until))
            message = line.encode()
            self.link.sendall((self._out.sealed(message) if self._out else message) + b"\n")
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
        try:
            return (self._in.opened(line) if self._in else line).decode("ascii", "replace")
        except ForgedError as error:
            raise TalkError(str(error)) from error


def greeting(key: str, verb: str, token: str, number: int = 0, nonce: str = "") -> str:
    """The first line of a connection; of `bulk` with the nonce of the conversation's other side."""
    return f"{PROTOCOL} {tag(key, verb, token, str(number), nonce)} {verb} {token} {number}"


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return error.strerror or str(error)
