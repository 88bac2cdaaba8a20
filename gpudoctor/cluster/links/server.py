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

from gpudoctor.cluster.links import tcp
from gpudoctor.cluster.links.protocol import Lines, TalkError, greeting, nonce
from gpudoctor.cluster.links.tcp import literal_address_info

LONGEST_SECONDS = 15.0
"""Seconds that any one connection may last."""

MOST_CONNECTIONS = 256
"""Connections at a time; one measurement needs at most some twenty-five."""

_BACKLOG = 4096
"""Connections that the kernel completes before we take them: all ranks of a job may try at the same moment."""

_MOST_ECHO_BYTES = 1 << 20


@dataclass
class _Talk:
    """A conversation: the server's nonce, its open data connections, and how many were added so far."""

    nonce: str = field(default_factory=nonce)
    links: list[socket.socket] = field(default_factory=list)
    count: int = 0


class Server:
    """Measurement server at one address, running in daemon threads from its creation until `close`.
    Bound to `address` only, so that exactly that path is measured, and with `alone` to its interface as well, which
    then follows it (``10.0.0.1%eth0``). `name` is one word by which it identifies itself. Raises `OSError` if it cannot
    listen; `port` 0 lets the kernel choose.
    """

    def __init__(self, address: str, key: str, port: int = 0, name: str = "", alone: bool = False) -> None:
        """Listen on the address and start the thread that accepts connections; raises `OSError`."""
        plain, _, interface = address.partition("%") if alone else (address, "", "")
        family, kind, protocol, _, where = literal_address_info(address if ":" in address else plain, port)
        self._key = key
        self._name = name
        self._listener = socket.socket(family, kind, protocol)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if interface:
                tcp.bind_interface(self._listener, interface)
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
        self._thread = threading.Thread(target=self._listen, name=f"listener {address}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and shut down all connections; waits up to 1 s for the listening thread."""
        with self._lock:
            self._closed = True
            links = list(self._open)
        for link in [self._listener, *links]:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it, where a close would not
        self._thread.join(1.0)

    def _listen(self) -> None:
        """Accept connections until closed."""
        with self._listener:
            while not self._closed:
                try:
                    self._start_serving(self._listener.accept()[0])
                except TimeoutError:
                    continue
                except OSError:  # out of file descriptors, or of the peer's patience
                    time.sleep(0.05)

    def _start_serving(self, link: socket.socket) -> None:
        """Serve a connection in a thread of its own; it is closed if there are `MOST_CONNECTIONS` already."""
        with self._lock:
            taken = len(self._open) < MOST_CONNECTIONS and not self._closed
            if taken:
                self._open.add(link)
        if taken:
            threading.Thread(target=self._serve, args=(link,), name="measurement", daemon=True).start()
        else:
            link.close()

    def _serve(self, link: socket.socket) -> None:
        """Handle one connection to its end; errors end only that connection."""
        try:
            with contextlib.suppress(TalkError, OSError, ValueError, LookupError):
                self._handle_request(Lines(link, time.monotonic() + LONGEST_SECONDS))
        finally:
            with self._lock:
                self._open.discard(link)
            link.close()

    def _handle_request(self, lines: Lines) -> None:
        """Check the first line of a connection and do what its verb asks: talk, bulk or echo; nothing for a wrong
        tag.
        """
        tcp.disable_nagle(lines.link)
        line = lines.receive(2.0)
        _, _, verb, token, number = line.split(" ")
        if verb == "bulk":
            self._add_bulk(lines, line, token)
        elif not _equal(line, greeting(self._key, verb, token, int(number))):
            return
        elif verb == "talk":
            self._converse(lines, token)
        elif verb == "echo":
            lines.say("ok")
            _echo(lines, min(int(number), _MOST_ECHO_BYTES))

    def _add_bulk(self, lines: Lines, line: str, token: str) -> None:
        """Add a data connection to the conversation `token`, which closes it later; nothing if its tag is wrong."""
        with self._lock:
            talk = self._talks[token]
            if not _equal(line, greeting(self._key, "bulk", token, talk.count, talk.nonce)):
                return
            talk.count += 1
            talk.links.append(lines.link.dup())
        lines.say("ok")

    def _converse(self, lines: Lines, token: str) -> None:
        """Hold a conversation until it fails or the peer is gone; its data connections are then closed. Nothing if
        another has that token.
        """
        with self._lock:
            if token in self._talks:
                return
            talk = self._talks[token] = _Talk()
        try:
            lines.say(f"ok {talk.nonce}")
            lines.authenticate(self._key, talk.nonce, token, listens=True)
            lines.say(self._name)
            while True:
                self._answer_command(lines, lines.receive(), talk)
        finally:
            with self._lock:
                del self._talks[token]
            for link in talk.links:
                tcp.hang_up(link)

    def _answer_command(self, lines: Lines, command: str, talk: _Talk) -> None:
        """Do and answer one command of a conversation: ping, sink (receive) or source (send)."""
        came = time.time_ns()
        verb, *words = command.split(" ")
        if verb == "ping":
            lines.say(f"{came} {time.time_ns()}")
            return
        seconds = min(float(words[0]), LONGEST_SECONDS)
        with self._lock:
            link = talk.links.pop()
        try:
            lines.say(json.dumps(_receive_data(link, seconds) if verb == "sink" else _send_data(link, seconds, lines)))
        finally:
            tcp.hang_up(link)


def _equal(line: str, ours: str) -> bool:
    """True if the lines are equal; compared in constant time."""
    return compare_digest(line.encode(), ours.encode())


def _receive_data(link: socket.socket, seconds: float) -> dict[str, float]:
    """Receive data for `seconds`: the `Received` as a dictionary, zeros if nothing came."""
    try:
        return asdict(tcp.receive_data(link, seconds, time.monotonic() + LONGEST_SECONDS))
    except OSError:
        return asdict(tcp.Received(0, 0.0, 0.0))


def _send_data(link: socket.socket, seconds: float, lines: Lines) -> dict[str, float | None]:
    """Send for `seconds`, or until the peer sends a line, which is awaited: the `Sent` as a dictionary, with
    ``busy``.
    """
    busy = tcp.send_data(link, lambda: bool(tcp.readable([lines.link])), time.monotonic() + seconds)
    lines.receive(seconds)
    return {**asdict(tcp.sent_counts(link)), "busy": busy}


def _echo(lines: Lines, size: int) -> None:
    """Receive `size` bytes and send as many back; nothing if the peer ends before that."""
    lines.link.settimeout(3.0)
    left = size
    while left > 0:
        came = lines.link.recv(min(left, 1 << 16))
        if not came:
            return
        left -= len(came)
    lines.link.sendall(bytes(size))
    lines.link.recv(1)
