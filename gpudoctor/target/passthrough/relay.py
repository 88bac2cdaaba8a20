"""The relay: a process that moves the command's output on, and keeps its end.

It is a process of its own so that nothing that happens to gpudoctor happens to the output: what the command has left
running goes on writing when we are long gone. Signals do not reach it; it ends when nobody can write any more.

Little is copied, much is moved: while a pipe is full each time, its pages are handed on (splice) and a second pipe has
references to the latest of them (tee), so that no byte is copied and the end is there all the same.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpudoctor.target import proc

if sys.platform != "win32":
    import fcntl
    import termios

    from gpudoctor.target.passthrough.command import close_all_but, libc

assert sys.platform != "win32"  # what follows is POSIX's alone

KEPT_BYTES = 64 << 10
"""Bytes of the end of a stream that are kept."""
_PIECE_BYTES = 64 << 10
_MOVE_BYTES = 1 << 20
"""Bytes that are moved at a time."""
_SIDE_PIPE_BYTES = 1 << 20
"""Bytes that the pipe with the latest pages may hold."""
_NONBLOCK = 2
"""SPLICE_F_NONBLOCK."""
_END_SECONDS = 0.2
_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_TICK_SECONDS, _ROOM_SECONDS = 0.005, 0.05
_SETTLED_SECONDS = 0.03
"""Seconds without anything new after which a terminal has passed on what was written to it, for the kernel is late."""


@dataclass(slots=True)
class Route:
    """One stream: read from `source`, written to the descriptor `goal`; its kind is ``pipe`` or ``terminal``."""

    source: int
    goal: int
    kind: str
    kept: bytearray = field(default_factory=bytearray)
    ended: bool = False
    waiting_since: float = 0.0
    """When it began to wait for more, by the monotonic clock; 0 while it moves something."""

    def keep(self, data: bytes) -> None:
        """Append the data to `kept`, the end of the stream: at least its last 64 KiB stay, at most 128 KiB."""
        self.kept += data
        if len(self.kept) > 2 * KEPT_BYTES:
            del self.kept[:-KEPT_BYTES]

    @property
    def at_rest(self) -> bool:
        """True if the stream has ended, or everything written to `source` so far has been passed on to `goal`."""
        if self.ended:
            return True
        since = self.waiting_since
        settled = since and (self.kind == "pipe" or time.monotonic() - since > _SETTLED_SECONDS)
        return bool(settled) and not _unread_bytes(self.source) and self.waiting_since == since


@dataclass(slots=True)
class Relay:
    """Handle of the relay process, in the process that started it."""

    line: socket.socket
    pid: int

    @classmethod
    def start(cls, routes: Sequence[Route]) -> Relay:
        """Fork the relay process, which moves these streams; closes their sources in this process. Raises `OSError`."""
        ours, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            try:
                close_all_but({its.fileno(), *(end for route in routes for end in (route.source, route.goal))})
                _relay(its, routes)
            finally:
                os._exit(0)
        its.close()
        for route in routes:
            os.close(route.source)
        return cls(ours, pid)

    @property
    def context_switches(self) -> int:
        """Context switches of the relay's threads so far, which rise when the command prints; 0 without /proc."""
        folder = f"/proc/{self.pid}/task"
        lines = [line for task in proc.names(folder) for line in proc.text(f"{folder}/{task}/status").splitlines()]
        return sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line)

    def end(self) -> list[bytes]:
        """Wait until what was written is moved on; the last 64 KiB or less of each stream, in the order of the routes.

        The list is empty where the relay was killed, and where SIGINT, SIGTERM, SIGHUP or SIGQUIT is pending in this
        process, which cuts the wait short: the relay then goes on without us.
        """
        received = bytearray()
        self.line.settimeout(_END_SECONDS)
        with contextlib.suppress(OSError):
            self.line.sendall(b"?")
            while True:
                try:
                    data = self.line.recv(1 << 16)
                except TimeoutError:
                    if signal.sigpending() & _ENDS:
                        break
                    continue
                if not data:
                    break
                received += data
        self.line.close()
        parts, at = [], 0
        while at + 4 <= len(received):
            (size,) = struct.unpack_from("<I", received, at)
            parts.append(bytes(received[at + 4 : at + 4 + size]))
            at += 4 + size
        return parts


def copy_window_size(real: int, ours: int) -> None:
    """Set the window size of our pty (descriptor `ours`) to that of the terminal `real`; errors are ignored."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(real, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, size)


def _relay(line: socket.socket, routes: Sequence[Route]) -> None:
    """Body of the relay process: moves each stream in a thread of its own, until all of them have ended.

    A byte from `line` asks for the kept ends: they are sent once all streams are at rest, each after its length.
    Until then, or until the other side of `line` closes, the size of a pty follows its terminal (SIGWINCH).
    """
    threads = [_start_thread(route) for route in routes]
    terminals = [route for route in routes if route.kind == "terminal"]
    wakes, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    if terminals:
        signal.signal(signal.SIGWINCH, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
    poller = select.poll()
    poller.register(wakes, select.POLLIN)
    poller.register(line, select.POLLIN)
    while line.fileno() not in dict(poller.poll()):
        with contextlib.suppress(BlockingIOError):
            os.read(wakes, 512)
        for route in terminals:
            copy_window_size(route.goal, route.source)
    if line.recv(1):  # else whoever has started us is gone
        while not all(route.at_rest for route in routes):
            time.sleep(_TICK_SECONDS)
        with contextlib.suppress(OSError):
            for route in routes:
                line.sendall(struct.pack("<I", len(route.kept[-KEPT_BYTES:])) + route.kept[-KEPT_BYTES:])
    line.close()
    for thread in threads:
        thread.join()


def _start_thread(route: Route) -> threading.Thread:
    """A started thread that moves that stream (`_move`); retries for ever while no thread can be made."""
    while True:
        try:
            thread = threading.Thread(target=_move, args=(route,))
            thread.start()
        except (RuntimeError, MemoryError):
            time.sleep(_ROOM_SECONDS)
        else:
            return thread


def _move(route: Route) -> None:
    """Move a stream on until nobody can write to it, or nobody reads it any more; then close both ends.

    Pages are spliced where possible, else all is copied. Sets `ended` of the route.
    """
    try:
        if route.kind == "pipe":
            try:
                _Pipe(route).move()
            except (MemoryError, ValueError, OSError):  # what remains goes on piece by piece
                os.set_blocking(route.source, True)
                _copy_stream(route)
        else:
            _copy_stream(route)
    finally:
        route.ended = True
        for end in (route.source, route.goal):
            with contextlib.suppress(OSError):
                os.close(end)


def _copy_stream(route: Route) -> None:
    """Copy from source to goal until the stream ends or nobody reads the goal; keeps its end in the route."""
    while True:
        route.waiting_since = time.monotonic()
        try:
            data = os.read(route.source, _PIECE_BYTES)
        except OSError:  # nobody has it open any more
            return
        route.waiting_since = 0.0
        if not data or not _write_all(route.goal, data):
            return
        route.keep(data)


def _write_all(goal: int, data: bytes) -> bool:
    """Write all of the data, waiting for room where needed; False where nobody reads the goal any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(goal, view) :]
        except BlockingIOError:
            _wait_for_room(goal)
        except OSError:
            return False
    return True


def _wait_for_room(goal: int) -> None:
    """Wait until a non-blocking descriptor can take more, or its reader has gone."""
    poller = select.poll()
    poller.register(goal, select.POLLOUT)
    poller.poll()


def _unread_bytes(source: int) -> int:
    """Bytes that wait to be read from that pipe or terminal; 0 where the system does not say."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(source, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0


class _Pipe:
    """A stream that comes through a pipe and goes on into one."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._tee: Callable[[int, int, int, int], int] | None = None
        self._side: tuple[int, int] | None = None
        """The pipe with references to the latest pages, once pages are moved."""
        self._held = 0
        """Bytes in it."""
        self._can_splice = True

    def move(self) -> None:
        """Move the stream until its end, or until nobody reads it, by copying and, while its pipe is full, by splice.

        Keeps the end of the stream in the route. Raises `OSError`.
        """
        route = self._route
        os.set_blocking(route.source, False)
        poller = select.poll()
        poller.register(route.source, select.POLLIN)
        poller.register(route.goal, 0)  # tells when its reader has gone
        while True:
            route.waiting_since = time.monotonic()
            events = dict(poller.poll())
            route.waiting_since = 0.0
            if route.goal in events:
                return
            try:
                data = os.read(route.source, _PIECE_BYTES)
            except BlockingIOError:
                continue
            if not data or not _write_all(route.goal, data):
                return
            route.keep(data)
            if len(data) == _PIECE_BYTES and self._can_splice and not self._splice_while_full():
                return

    def _splice_while_full(self) -> bool:
        """Splice whole pages on while the source pipe is full, and keep the last of them as the end of the stream.

        False at the end of the stream or without a reader, else True: nothing is spliced where the system cannot.
        """
        if not self._open_side_pipe():
            return True
        try:
            while True:
                count = self._tee_pages()
                if count > 0 and not self._splice(count):
                    return False
                if count < _PIECE_BYTES:
                    return count != 0
        except OSError:  # these two pipes cannot be joined: copying always goes
            self._can_splice = False
            return True
        finally:
            self._drain()

    def _open_side_pipe(self) -> bool:
        """Open the side pipe for tee and splice unless it is open; False if the system does not support it."""
        if self._side is None:
            try:
                self._tee = libc().tee
                self._side = os.pipe()
                for pipe in (self._side[1], self._route.goal):  # fewer turns where many wait for a processor
                    with contextlib.suppress(OSError):
                        if fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < _SIDE_PIPE_BYTES:
                            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _SIDE_PIPE_BYTES)
                self._null = os.open(os.devnull, os.O_WRONLY)
            except (OSError, AttributeError):
                self._can_splice = False
                return False
        return True

    def _tee_pages(self) -> int:
        """Duplicate (tee) the next pages into the side pipe: bytes duplicated, 0 at the end, -1 if none are there."""
        assert self._side
        assert self._tee
        while self._held > KEPT_BYTES:
            self._held -= os.splice(self._side[0], self._null, self._held - KEPT_BYTES)
        count = self._tee(self._route.source, self._side[1], _MOVE_BYTES, _NONBLOCK)
        if count < 0 and self._held and _unread_bytes(self._route.source):  # full of small pieces
            self._drain()
            count = self._tee(self._route.source, self._side[1], _MOVE_BYTES, _NONBLOCK)
        self._held += max(count, 0)
        return count

    def _splice(self, count: int) -> bool:
        """Splice `count` bytes on; False if there is no reader. Raises `OSError` if splice is not possible."""
        while count:
            try:
                count -= os.splice(self._route.source, self._route.goal, count)
            except BlockingIOError:
                _wait_for_room(self._route.goal)
            except BrokenPipeError:
                return False
        return True

    def _drain(self) -> None:
        """Read the side pipe empty, and add what it held to the kept end of the stream."""
        while self._side and self._held:
            data = os.read(self._side[0], self._held)
            self._held -= len(data)
            self._route.keep(data)
