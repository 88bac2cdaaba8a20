"""Lines of text between two ends that share a key: how messages are authenticated, and what the two sides say.

HMAC-SHA256 (RFC 2104), the standard library's. Both ends of a connection choose a nonce, so that nothing recorded on
one connection is valid on another; each direction has a key of its own, so that nothing can be reflected; each message
has a number, so that none can be repeated, left out or exchanged. Nothing is encrypted.

The first line of a connection says who asks for what, each line comes within a time:

    gpudoctor/2 TAG VERB TOKEN NUMBER    → ok

TAG proves that whoever asks has the job's key. VERB `talk` opens a conversation named TOKEN; the ok is followed by the
nonce of the side that listens, and from there on each line is authenticated, its name the first. `bulk` adds the
connection of that NUMBER to it, over which data will run. `echo` sends NUMBER bytes back once all of them have come. In
a conversation:

    ping                → nanoseconds of the realtime clock at receipt and at answer
    sink SECONDS        → reads from the bulk connection, then says what came: JSON of a `Received`
    source SECONDS      → fills the bulk connection until the next line comes, then says JSON of a `Sent`
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time

_TAG_DIGITS = 32
"""Hexadecimal digits of a tag: 128 bits of the HMAC."""


class ForgedError(ValueError):
    """A message's tag does not fit: wrong key, or another connection, direction or position."""


def job_key(job: str, secret: str) -> str:
    """Key for a job's messages, derived from its identity and GPUDOCTOR_JOB_KEY (`secret`); hexadecimal.
    Without `secret` it depends only on values that the launcher gives every rank (job and step number, run id,
    MASTER_ADDR, MASTER_PORT): it separates jobs, but does not keep out who knows these.
    """
    return hmac.new(secret.encode(), b"gpudoctor job\0" + job.encode(), hashlib.sha256).hexdigest()


def nonce() -> str:
    """128 random bits, as hexadecimal digits."""
    return secrets.token_hex(16)


def tag(key: str, *parts: str) -> str:
    """Authentication tag of the parts under the key: 32 hexadecimal digits of HMAC-SHA256."""
    text = b"".join(b"%d:%s" % (len(part), part) for part in map(_utf8, parts))
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()[:_TAG_DIGITS]


def is_tag(given: object, key: str, *parts: str) -> bool:
    """True if `given` is the `tag` of these parts; compared in constant time."""
    return isinstance(given, str) and hmac.compare_digest(_utf8(given), tag(key, *parts).encode())


def _utf8(text: str) -> bytes:
    """Text as UTF-8; lone surrogates, which JSON may contain, are allowed."""
    return text.encode("utf-8", "surrogatepass")


class Seal:
    """Adds and checks the tags of one direction of one connection; each message has its sequence number."""

    def __init__(self, key: str, direction: str, listener: str, caller: str) -> None:
        """Derive the key for one direction from the job's key and the nonces of both ends."""
        self._key = tag(key, "seal", direction, listener, caller).encode()
        self._number = 0

    def sealed(self, message: bytes) -> bytes:
        """The message with its tag and a space before it."""
        return self._tag(message) + b" " + message

    def opened(self, line: bytes) -> bytes:
        """The message after the tag of a line; raises `ForgedError` if the tag is not that of the next message."""
        given, _, message = line.partition(b" ")
        if not hmac.compare_digest(given, self._tag(message)):
            raise ForgedError("its message is not authentic")
        return message

    def _tag(self, message: bytes) -> bytes:
        """Tag of the next message, 32 hexadecimal digits; counts it, so that every call gives another."""
        made = hmac.new(self._key, self._number.to_bytes(8, "big") + message, hashlib.sha256).hexdigest()
        self._number += 1
        return made[:_TAG_DIGITS].encode()


class SealedEnd:
    """One end of a connection whose lines are authenticated from a moment on."""

    _out: Seal | None = None
    _in: Seal | None = None

    def authenticate(self, key: str, listener: str, caller: str, listens: bool) -> None:
        """Send and accept only authenticated lines from now on.
        `listener` and `caller` are both ends' nonces; `listens` is True on the listening side.
        """
        from_listener, from_caller = (Seal(key, way, listener, caller) for way in ("from listener", "from caller"))
        self._out, self._in = (from_listener, from_caller) if listens else (from_caller, from_listener)


# ---- Lines over a socket ----

PROTOCOL = "gpudoctor/2"
LONGEST_LINE = 4096


class TalkError(Exception):
    """The peer is silent, gone, or violates the protocol."""


class ClosedError(TalkError):
    """The peer closed the connection."""


class Lines(SealedEnd):
    """Text lines over a socket; no operation waits past `until` (monotonic seconds)."""

    def __init__(self, link: socket.socket, until: float) -> None:
        """Wrap a connected socket; not authenticated yet."""
        self.link = link
        self.until = until
        self._rest = b""

    def say(self, line: str) -> None:
        """Send a line, with its tag once authenticated; raises `TalkError` if it cannot be sent in time."""
        try:
            self.link.settimeout(_remaining(self.until))
            message = line.encode()
            self.link.sendall((self._out.sealed(message) if self._out else message) + b"\n")
        except OSError as error:
            raise TalkError(_error_message(error)) from error

    def receive(self, seconds: float | None = None) -> str:
        """The next line without its tag, waiting at most `seconds` (None: until the deadline).
        Raises `TalkError` when time is up, the line is too long or not authentic, `ClosedError` if the peer closed.
        """
        until = self.until if seconds is None else min(self.until, time.monotonic() + seconds)
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST_LINE:
                raise TalkError("it speaks another protocol")
            try:
                self.link.settimeout(_remaining(until))
                more = self.link.recv(LONGEST_LINE)
            except OSError as error:
                raise TalkError(_error_message(error)) from error
            if not more:
                raise ClosedError("it closed the connection")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return (self._in.opened(line) if self._in else line).decode("ascii", "replace")
        except ForgedError as error:
            raise TalkError(str(error)) from error


def greeting(key: str, verb: str, token: str, number: int = 0, nonce: str = "") -> str:
    """First line of a connection, with its tag; for `bulk` `nonce` is the server's nonce of the conversation."""
    return f"{PROTOCOL} {tag(key, verb, token, str(number), nonce)} {verb} {token} {number}"


def _remaining(until: float) -> float:
    """Seconds until the deadline; `TimeoutError` if it has passed."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _error_message(error: OSError) -> str:
    """Text of a socket error: ``it did not answer in time`` for a timeout, else the system's."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return error.strerror or str(error)
