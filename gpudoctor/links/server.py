"""The listening side of `flow.measure`: one port of one address, for all who know the job's key."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import asdict, dataclass, field
from hmac import compare_digest
from types import TracebackType

from gpudoctor.links import _bulk, _tcp
from gpudoctor.links._talk import Lines, TalkError, greeting
from gpudoctor.links.reach import numeric
from gpudoctor.links.sealing import nonce

LONGEST = 15.0
"""Seconds that any one connection may last."""

MOST = 256
"""Connections at a time; one measurement needs at most some twenty-five."""

_BACKLOG = 4096
"""Connections that the kernel completes before we take them: all ranks of a job may try at the same moment."""

_MOST_ECHOED = 1 << 20


@dataclass
class _Talk:
    """A conversation: our nonce, its connections for data, and how many of these there have been."""

    nonce: str = field(default_factory=nonce)
    links: list[socket.socket] = field(default_factory=list)
    count: int = 0


class Server:
    """Listens from its making on, in threads that end with the process; a context manager, or `close` it.

    `address` is the one that the links under test use, so that their path is measured and nothing else is opened.
    `name` is what it calls itself, one word: who asks can tell whom an address really leads to.
    """

    def __init__(self, address: str, key: str, port: int = 0, name: str = "") -> None:
        family, kind, protocol, _, where = numeric(address, port)
        self._key = key
        self._name = name
        self._listener = socket.socket(family, kind, protocol)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(where)
            self._listener.listen(_BACKLOG)
        except BaseException:
            self._listener.close()
            raise
        self._listener.settimeout(0.25)
        self.address = address
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._talks: dict[str, _Talk] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name=f"ear {address}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and hang up on all."""
        with self._lock:
            self._closed = True
            links = list(self._open)
        for link in [self._listener, *links]:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it, where a close would not
        self._thread.join(1.0)

    def _listen(self) -> None:
        with self._listener:
            while not self._closed:
                try:
                    self._take(self._listener.accept()[0])
                except TimeoutError:
                    continue
                except OSError:  # out of file descriptors, or of the peer's patience
                    time.sleep(0.05)

    def _take(self, link: socket.socket) -> None:
        with self._lock:
            taken = len(self._open) < MOST and not self._closed
            if taken:
                self._open.add(link)
        if taken:
            threading.Thread(target=self._serve, args=(link,), name="a guest of the ear", daemon=True).start()
        else:
            link.close()

    def _serve(self, link: socket.socket) -> None:
        """One connection from its first line to its end; whatever a stranger does, it ends here."""
        try:
            with contextlib.suppress(TalkError, OSError, ValueError, LookupError):
                self._admit(Lines(link, time.monotonic() + LONGEST))
        finally:
            with self._lock:
                self._open.discard(link)
            link.close()

    def _admit(self, lines: Lines) -> None:
        _tcp.at_once(lines.link)
        line = lines.hear(2.0)
        _, _, verb, token, number = line.split(" ")
        if verb == "bulk":
            self._add_bulk(lines, line, token)
        elif not _same(line, greeting(self._key, verb, token, int(number))):
            return
        elif verb == "talk":
            self._talk(lines, token)
        elif verb == "echo":
            lines.say("ok")
            _echo(lines, min(int(number), _MOST_ECHOED))

    def _add_bulk(self, lines: Lines, line: str, token: str) -> None:
        """Leave a copy of the connection with its conversation, which closes it."""
        with self._lock:
            talk = self._talks[token]
            if not _same(line, greeting(self._key, "bulk", token, talk.count, talk.nonce)):
                return
            talk.count += 1
            talk.links.append(lines.link.dup())
        lines.say("ok")

    def _talk(self, lines: Lines, token: str) -> None:
        with self._lock:
            if token in self._talks:
                return
            talk = self._talks[token] = _Talk()
        try:
            lines.say(f"ok {talk.nonce}")
            lines.authenticate(self._key, talk.nonce, token, listens=True)
            lines.say(self._name)
            while True:
                self._answer(lines, lines.hear(), talk)
        finally:
            with self._lock:
                del self._talks[token]
            for link in talk.links:
                _tcp.hang_up(link)

    def _answer(self, lines: Lines, asked: str, talk: _Talk) -> None:
        came = time.time_ns()
        verb, *words = asked.split(" ")
        if verb == "ping":
            lines.say(f"{came} {time.time_ns()}")
            return
        seconds = min(float(words[0]), LONGEST)
        with self._lock:
            link = talk.links.pop()
        try:
            lines.say(json.dumps(_sink(link, seconds) if verb == "sink" else _source(link, seconds, lines)))
        finally:
            _tcp.hang_up(link)


def _same(line: str, ours: str) -> bool:
    return compare_digest(line.encode(), ours.encode())


def _sink(link: socket.socket, seconds: float) -> dict[str, float]:
    try:
        return asdict(_bulk.empty(link, seconds, time.monotonic() + LONGEST))
    except OSError:
        return asdict(_bulk.Came(0, 0.0, 0.0))


def _source(link: socket.socket, seconds: float, lines: Lines) -> dict[str, float | None]:
    """Until the other side says a word, or hangs up."""

    def spoken() -> bool:
        return bool(_tcp.readable([lines.link]))

    busy = _bulk.fill(link, spoken, time.monotonic() + seconds)
    lines.hear(seconds)
    return {**asdict(_tcp.sent(link)), "busy": busy}


def _echo(lines: Lines, size: int) -> None:
    lines.link.settimeout(3.0)
    left = size
    while left > 0:
        came = lines.link.recv(min(left, 1 << 16))
        if not came:
            return
        left -= len(came)
    lines.link.sendall(bytes(size))
    lines.link.recv(1)
