"""The largest packet that passes a path on which larger ones vanish: a black hole for path MTU discovery (RFC 2923)."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from gpudoctor.links import _tcp
from gpudoctor.links._talk import Lines, TalkError, greeting
from gpudoctor.links.reach import opened

USUAL = (576, 1280, 1400, 1420, 1450, 1480, 1492, 1500, 2044, 4092, 8000, 8900, 9000)
"""MTUs that networks are set to, tunnels and InfiniBand included; tried first, each with its successor."""

_AT_A_TIME = 12
_SEGMENTS = 3
_WAIT = 0.35
"""Seconds beside four round trips: more than the 0.2 s after which Linux sends again what was lost."""


@dataclass(frozen=True, slots=True)
class Path:
    """Where the `Server` is, and from where it is asked; `round_trip` in seconds."""

    address: str
    port: int
    key: str
    source: str
    round_trip: float

    @property
    def headers(self) -> int:
        """Bytes of an IP packet beside what TCP_MAXSEG counts."""
        return 60 if ip_address(self.address).version == 6 else 40


def largest(path: Path, full: int, until: float) -> int | None:
    """Bytes of the largest IP packet that passes both ways; `full` is the largest segment. None where none passes.

    Where time runs out, the largest that is known to pass.
    """
    low, high = _tcp.SMALL, full
    passed = _passing(path, [low, high], until)
    if low not in passed:
        return None
    if high in passed:
        return high + path.headers
    tried = [size - path.headers + more for size in USUAL for more in (0, 1)]
    while high - low > 1 and time.monotonic() < until:
        inside = [size for size in tried if low < size < high] or _even(low, high)
        passed = _passing(path, inside, until)
        low, high = _narrowed(low, high, inside, passed)
        tried = []
    return low + path.headers


def _even(low: int, high: int) -> list[int]:
    return sorted({low + (high - low) * step // (_AT_A_TIME + 1) for step in range(1, _AT_A_TIME + 1)} - {low})


def _narrowed(low: int, high: int, sizes: Iterable[int], passed: set[int]) -> tuple[int, int]:
    """Up to the first size that did not pass."""
    for size in sorted(sizes):
        if size not in passed:
            return low, size
        low = size
    return low, high


def _passing(path: Path, sizes: Iterable[int], until: float) -> set[int]:
    """Those of the sizes of which some full segments came back."""
    links: dict[socket.socket, tuple[int, int]] = {}
    with contextlib.ExitStack() as open_links:
        for size in sizes:
            link = _asked(path, size, until)
            if link:
                open_links.callback(_tcp.hang_up, link)
                links[link] = (size, _SEGMENTS * size)
        return _returned(links, min(until, time.monotonic() + _WAIT + 4 * path.round_trip))


def _asked(path: Path, size: int, until: float) -> socket.socket | None:
    """A connection over which segments of a size have been sent and shall come back."""
    link, _ = opened(path.address, path.port, until - time.monotonic(), path.source, size)
    if not link:
        return None
    try:
        lines = Lines(link, until)
        lines.say(greeting(path.key, "echo", secrets.token_hex(4), _SEGMENTS * size))
        if lines.hear(1.0) == "ok":
            link.setblocking(False)
            link.send(bytes(_SEGMENTS * size))
            return link
    except (TalkError, OSError):
        pass
    link.close()
    return None


def _returned(links: dict[socket.socket, tuple[int, int]], until: float) -> set[int]:
    """The sizes all of whose bytes came back in time."""
    passed: set[int] = set()
    while links and (left := until - time.monotonic()) > 0:
        for link in _tcp.readable(list(links), left):
            size, missing = links.pop(link)
            try:
                came = len(link.recv(1 << 16))
            except OSError:
                came = 0
            if came >= missing:
                passed.add(size)
            elif came:
                links[link] = (size, missing - came)
    return passed
