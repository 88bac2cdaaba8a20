"""Authentication of the messages between two ends that share a key: HMAC-SHA256 (RFC 2104), the standard library's.

Both ends of a connection choose a nonce, so that nothing recorded on one connection is valid on another; each direction
has a key of its own, so that nothing can be reflected; each message has a number, so that none can be repeated, left
out or exchanged. Nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

_TAG = 32
"""Hexadecimal digits of a tag: 128 bits of the HMAC."""


class ForgedError(ValueError):
    """A message whose tag does not fit: from somebody without the key, or not of this connection, direction or turn."""


def job_key(job: str, secret: str) -> str:
    """The key of a job's messages, of its identity and GPUDOCTOR_JOB_KEY.

    Only `secret` (GPUDOCTOR_JOB_KEY) is secret. Without it the key is made of what the launcher tells every rank: job
    and step number, run id, MASTER_ADDR and MASTER_PORT. That separates jobs, and keeps out whoever does not know
    these; it does not keep out those who do.
    """
    return hmac.new(secret.encode(), b"gpudoctor job\0" + job.encode(), hashlib.sha256).hexdigest()


def nonce() -> str:
    """128 random bits, as hexadecimal digits."""
    return secrets.token_hex(16)


def tag(key: str, *parts: str) -> str:
    """What proves that whoever sends the parts knows the key."""
    text = b"".join(b"%d:%s" % (len(part), part) for part in map(_bytes, parts))
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()[:_TAG]


def is_tag(given: object, key: str, *parts: str) -> bool:
    """Whether `given` is the `tag` of these parts; compared in constant time."""
    return isinstance(given, str) and hmac.compare_digest(_bytes(given), tag(key, *parts).encode())


def _bytes(text: str) -> bytes:
    """UTF-8, with the halves of surrogates that JSON may have in it."""
    return text.encode("utf-8", "surrogatepass")


class Seal:
    """One direction of one connection: put on each message by the sender, taken off by the receiver, in turn."""

    def __init__(self, key: str, direction: str, listener: str, caller: str) -> None:
        self._key = tag(key, "seal", direction, listener, caller).encode()
        self._number = 0

    def sealed(self, message: bytes) -> bytes:
        """The message behind its tag."""
        return self._tag(message) + b" " + message

    def opened(self, line: bytes) -> bytes:
        """The message without its tag. Raises `ForgedError`."""
        given, _, message = line.partition(b" ")
        if not hmac.compare_digest(given, self._tag(message)):
            raise ForgedError("its message is not authentic")
        return message

    def _tag(self, message: bytes) -> bytes:
        made = hmac.new(self._key, self._number.to_bytes(8, "big") + message, hashlib.sha256).hexdigest()
        self._number += 1
        return made[:_TAG].encode()


def seals(key: str, listener: str, caller: str) -> tuple[Seal, Seal]:
    """What the listening side sends with, and what the calling side sends with; by the nonces of both."""
    return Seal(key, "from listener", listener, caller), Seal(key, "from caller", listener, caller)
