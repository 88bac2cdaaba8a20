"""Data over a connection for a fixed time: filled by one side, emptied and timed by the other."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

RAMP = 0.4
"""The share of the time that is left out at its beginning: TCP is still finding its rate."""

PATIENCE = 0.8
"""Seconds that the first byte may take: two retransmissions of a first segment that was lost."""

_CHUNK = bytes(1 << 20)
_TICK = 0.005


@dataclass(frozen=True, slots=True)
class Came:
    """What the receiving side saw. `seconds` from the first byte; the rate is that of the time after the ramp."""

    size: int
    seconds: float
    gbps: float


def empty(link: socket.socket, seconds: float) -> Came:
    """Read for `seconds` from the first byte on, and time it. Raises `OSError` where the connection breaks."""
    room = bytearray(1 << 20)
    link.settimeout(PATIENCE + seconds)
    try:
        size = link.recv_into(room)
    except TimeoutError:
        return Came(0, 0.0, 0.0)
    begun = now = time.monotonic()
    steady, before = begun, 0
    while size and (left := begun + seconds - now) > 0:
        if not before and now >= begun + RAMP * seconds:
            steady, before = now, size
        link.settimeout(left)
        try:
            more = link.recv_into(room)
        except TimeoutError:
            more = -1
        now = time.monotonic()
        if more == 0:
            break
        size += max(0, more)
    if not before:
        steady = begun
    return Came(size, now - begun, (size - before) * 8 / max(now - steady, 1e-6) / 1e9)


def fill(link: socket.socket, over: Callable[[], bool], until: float) -> None:
    """Send until `over` says so, the other side hangs up, or time is up; what is under way is not waited for."""
    link.setblocking(False)
    while time.monotonic() < until and not over():
        _, writable, _ = select.select([], [link], [], _TICK)
        if not writable:
            continue
        try:
            with contextlib.suppress(BlockingIOError):
                link.send(_CHUNK)
        except OSError:
            return
