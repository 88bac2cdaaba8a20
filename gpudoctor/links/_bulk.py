"""Data over a connection for a fixed time: filled by one side, emptied and timed by the other."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.links._tcp import writable

RAMP = 0.4
"""The share of the time that is left out at its beginning: TCP is still finding its rate."""

PATIENCE = 0.8
"""Seconds that the first byte may take: two retransmissions of a first segment that was lost."""

_CHUNK = bytes(1 << 20)
_TICK = 0.005


@dataclass(frozen=True, slots=True)
class Came:
    """What the receiving side saw. `seconds` from the first byte; the rate is that of the time after the ramp.

    Where nothing came any more after it, the rate is that of all: it is 0 only where not a byte came.
    """

    size: int
    seconds: float
    gbps: float
    busy: float = 0.0
    """As `Clock.busy`."""


def empty(link: socket.socket, seconds: float, until: float) -> Came:
    """Read for `seconds` from the first byte on, not past `until`, and time it.

    Raises `OSError` where the connection breaks or nothing comes at all.
    """
    room = bytearray(1 << 20)
    size = _read(link, room, min(until, time.monotonic() + PATIENCE))
    clock = Clock()
    begun = now = time.monotonic()
    end, steady, before = min(until, begun + seconds), begun, 0
    while now < end:
        if steady == begun and now >= begun + RAMP * seconds:
            steady, before = now, size
        try:
            size += _read(link, room, end)
        except TimeoutError:
            break
        now = time.monotonic()
    now = time.monotonic()
    if size == before:
        steady, before = begun, 0
    return Came(size, now - begun, (size - before) * 8 / max(now - steady, 1e-6) / 1e9, clock.busy)


def _read(link: socket.socket, room: bytearray, until: float) -> int:
    """The bytes that came; at least one. Raises `TimeoutError`, and `ConnectionError` where there will be none."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    link.settimeout(left)
    size = link.recv_into(room)
    if not size:
        raise ConnectionError("it closed the connection")
    return size


def fill(link: socket.socket, over: Callable[[], bool], until: float) -> float:
    """Send until `over` says so, the other side hangs up, or time is up; what is under way is not waited for.

    As `Clock.busy`.
    """
    link.setblocking(False)
    clock = Clock()
    while time.monotonic() < until and not over():
        if not writable([link], _TICK):
            continue
        try:
            with contextlib.suppress(BlockingIOError):
                link.send(_CHUNK)
        except OSError:
            break
    return clock.busy


class Clock:
    """From its making on, what this thread had of a processor."""

    def __init__(self) -> None:
        self._begun = time.monotonic_ns()
        self._had = _had()

    @property
    def busy(self) -> float:
        """The share of the time in which it ran or waited for a processor: near 1, the link is not what holds it up.

        0 where the kernel does not tell. Source: Linux Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
        """
        return min(1.0, (_had() - self._had) / max(1, time.monotonic_ns() - self._begun))


def _had() -> int:
    """Nanoseconds that this thread ran, and that it was ready to run and had no processor."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return int(ran) + int(waited)
    except (OSError, ValueError):
        return 0
