"""Child processes: `run_child` gets an answer in time, whatever the child does; a `Stream` talks on and on."""

from __future__ import annotations

import atexit
import errno
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpudoctor.target import Answer, Watch

if sys.platform == "win32":
    from gpudoctor.target import windows_processes as processes
    from gpudoctor.target.windows_processes import Process as Process
else:
    from gpudoctor.target import posix_processes as processes
    from gpudoctor.target.posix_processes import Process as Process

KILL_SECONDS = 0.5
"""Seconds that a killed child may take to disappear before it is called stuck."""

_BUSY_KILL_SECONDS = 5.0
"""Seconds that one may take which only waits for its turn on a busy machine, or whose memory is being freed."""

_TICK_SECONDS = 0.25
"""Seconds between two looks whether the child has ended, where a grandchild keeps its streams open."""

_GATHER_SECONDS = 0.005
"""Seconds in which lines of a child that is watched are gathered: to wake for each took a tenth of a quick check."""

_LATE_LOOKS = 2
"""Looks after the deadline: one at what a pipe holds, one at its end."""

living: set[Process] = set()
"""Children on their way and those left behind. The probe that waits for one may have been given up meanwhile."""

begun: set[int] = set()
"""Process ids of all that we started: what they hold of the patient is our own doing."""

_starting: set[object] = set()
"""Children that other threads are just starting."""

MARK = "GPUDOCTOR_CHILD"
"""The variable by which what a child has started is known to be its own, in whatever session that lives."""

_active_marks: set[str] = set()
_exiting = threading.Event()
"""Set once we end: nothing is started any more."""


def run_child(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str],
    stdin: str = "",
    limit: int = 1 << 20,
    silence: float | None = None,
    watch: Watch | None = None,
    **popen_options: Any,
) -> Answer:
    """Run `argv` apart from us and return its answer; kill it and all that it started after `timeout` seconds.

    It is also killed after `limit` bytes on one stream. With `silence` it is killed that many seconds after its last
    output, once it has begun to print. `watch` is called with each line of its standard output as it arrives, and with
    None a few times a second while there is none; if it returns False the child is killed. Where `env` holds a `MARK`
    variable, every process that inherited it is killed as well, also one that moved to another session. `popen_options`
    go to `subprocess.Popen`. Raises `OSError` where the program cannot be started.
    """
    started = time.monotonic()
    own_marks = {env.get(MARK, "")} - {"", os.environ.get(MARK)}  # our own is not its own
    child = start_child(argv, env, bool(stdin), **popen_options)
    _active_marks.update(own_marks)
    pipes = _Pipes(child, stdin.encode(), limit, silence, watch)
    try:
        streams_closed = pipes.until(started + timeout)
        exited = wait_for(child, max(0.0, started + timeout - time.monotonic()) if streams_closed else 0.0)
    finally:
        kill_group(child)  # the child, or the grandchildren that outlived it
        kill_marked(own_marks)
        _active_marks.difference_update(own_marks)
        pipes.close()
        reaped = wait_until_reaped(child)
        if reaped:
            living.discard(child)
    return Answer(
        argv=tuple(argv),
        status=child.status if exited else None,
        out=processes.text_of(bytes(pipes.received["out"][:limit])),
        err=processes.text_of(bytes(pipes.received["err"][:limit])),
        seconds=time.monotonic() - started,
        stuck=None if reaped else child.pid,
        cut=pipes.over_limit,
    )


def start_child(argv: Sequence[str], env: Mapping[str, str], with_stdin: bool, **popen_options: Any) -> Process:
    """Start `argv` apart from us, with pipes for its output, registered in `living` and `begun`.

    Standard input is a pipe where `with_stdin`, else /dev/null. Raises `OSError` where it cannot be started or
    gpudoctor is exiting.
    """
    token = object()
    _starting.add(token)
    try:
        if _exiting.is_set():
            raise OSError(errno.ESHUTDOWN, "gpudoctor is ending")
        child = Process(argv, env, with_stdin, **popen_options)
        living.add(child)
        begun.add(child.pid)
    finally:
        _starting.discard(token)
    return child


class _Pipes:
    """The pipes to and from a child: writes `stdin` and collects both output streams without blocking.

    `received` holds the bytes of ``out`` and ``err``; `over_limit` is true once one of them exceeds `limit` bytes.
    """

    def __init__(self, child: Process, stdin: bytes, limit: int, silence: float | None, watch: Watch | None) -> None:
        assert child.stdout
        assert child.stderr
        self.child = child
        self.received = {"out": bytearray(), "err": bytearray()}
        self.over_limit = False
        self._unsent = stdin
        self._limit = limit
        self._silence = silence
        self._watch = watch
        self._reported_bytes = 0
        self._quiet_until = float("inf")
        self._selector = child.selector()
        self._selector.register(child.stdout, selectors.EVENT_READ, "out")
        self._selector.register(child.stderr, selectors.EVENT_READ, "err")
        if child.stdin:
            child.feed(self._selector, child.stdin, stdin)

    def until(self, deadline: float) -> bool:
        """Exchange data until both output streams close (True), or it must be stopped or has exited (False).

        Reasons to stop: `deadline` (of `time.monotonic`), the byte limit, the silence limit, or `watch` returning
        False. After the deadline, output that is already in the pipes is still read.
        """
        late = 0
        while self._output_is_open():
            if self.over_limit:
                return False
            now = time.monotonic()
            left = min(deadline, self._quiet_until) - now
            ready = self._exchange(max(0.0, min(left, _TICK_SECONDS)))
            if self._watch and not self._report_lines(self._watch):
                if self._exchange(0):
                    self._report_lines(self._watch)
                return False
            late += now >= deadline
            if left <= 0 and (late > _LATE_LOOKS or not any(key.data != "in" for key in ready)):
                return False
            if self.child.poll() is not None and not self._output_is_ready():
                return False
            if self._watch and ready:
                time.sleep(_GATHER_SECONDS)
        return True

    def close(self) -> None:
        """Close the selector and our ends of all pipes."""
        self._selector.close()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            if pipe:
                pipe.close()

    def _exchange(self, seconds: float) -> list[selectors.SelectorKey]:
        """Read and write what is ready within so many seconds; the selector keys that were ready."""
        ready = [key for key, _ in self._selector.select(seconds)]
        for key in ready:
            self._write(key) if key.data == "in" else self._read(key)
        return ready

    def _report_lines(self, watch: Watch) -> bool:
        """Pass all new complete lines to `watch` (None where there are none); whether it allowed the child to go on."""
        out = self.received["out"]
        end = out.rfind(b"\n", self._reported_bytes)
        if end < 0:
            return watch(None)
        lines = processes.text_of(bytes(out[self._reported_bytes : end + 1])).split("\n")[:-1]
        self._reported_bytes = end + 1
        goes_on = [watch(line) for line in lines]
        return all(goes_on)

    def _output_is_open(self) -> bool:
        """Whether the child's standard output or standard error has not reached its end."""
        return any(key.data != "in" for key in self._selector.get_map().values())

    def _output_is_ready(self) -> bool:
        """Whether there is unread output, or an end of file, on an output stream now."""
        return any(key.data != "in" for key, _ in self._selector.select(0))

    def _read(self, key: selectors.SelectorKey) -> None:
        """Read up to 64 KiB from one output stream into `received`; end of file unregisters it.

        Also restarts the silence limit, and sets `over_limit` where the stream has more bytes than allowed.
        """
        data = os.read(key.fd, 65536)
        if not data:
            self._selector.unregister(key.fileobj)
        self.received[key.data] += data
        if self._silence is not None:
            self._quiet_until = time.monotonic() + self._silence
        self.over_limit = self.over_limit or len(self.received[key.data]) > self._limit

    def _write(self, key: selectors.SelectorKey) -> None:
        """Write more of the standard input; close it when all is written or the child does not read it."""
        try:
            self._unsent = self._unsent[os.write(key.fd, self._unsent[:65536]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read: its own affair
            self._unsent = b""
        if not self._unsent and self.child.stdin:
            self._selector.unregister(key.fileobj)
            self.child.stdin.close()


def wait_for(child: Process, seconds: float) -> bool:
    """Wait up to `seconds` for the child to exit; whether it has."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_until_reaped(child: Process) -> bool:
    """Wait for a killed child to exit: True once it has, False where it does not, as in state D.

    `KILL_SECONDS` seconds, and up to `_BUSY_KILL_SECONDS` more while it is not in uninterruptible sleep (state D).
    """
    reaped = wait_for(child, KILL_SECONDS)
    deadline = time.monotonic() + _BUSY_KILL_SECONDS
    while not reaped and not child.is_unkillable() and time.monotonic() < deadline:
        reaped = wait_for(child, 0.05)
    return reaped


def kill_group(child: Process) -> None:
    """Kill the child and its process group (on Windows its job); no error where it is gone already."""
    child.kill_tree()


def kill_marked(marks: Iterable[str]) -> None:
    """Kill every process whose environment has ``GPUDOCTOR_CHILD`` set to one of `marks`; does nothing on Windows."""
    processes.kill_marked(f"{MARK}={mark}".encode() for mark in marks)


@atexit.register
def end_all() -> None:
    """Kill all children that still run, and marked processes; allow no new ones. Runs when the interpreter exits."""
    _exiting.set()
    deadline = time.monotonic() + KILL_SECONDS
    while _starting and time.monotonic() < deadline:
        time.sleep(0.001)
    for child in tuple(living):
        if child.poll() is None:
            kill_group(child)
    kill_marked(tuple(_active_marks))


# ---- A child that talks on and on ----

_LONGEST_LINE = 8 << 20
"""Bytes of one line: what prints more without an end of line is no longer listened to."""


class Stream:
    """A long-running child whose output is read line by line, until it exits, prints nothing more, or is ended.

    Its standard input stays open as long as gpudoctor runs, so that the child can tell when to end. `popen_options` go
    to `subprocess.Popen`. Raises `OSError` where the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], **popen_options: Any) -> None:
        self._child = start_child(argv, env, with_stdin=True, **popen_options)
        assert self._child.stdout
        assert self._child.stderr
        self._received = {"out": bytearray(), "err": bytearray()}
        self._selector = self._child.selector()
        self._selector.register(self._child.stdout, selectors.EVENT_READ, "out")
        self._selector.register(self._child.stderr, selectors.EVENT_READ, "err")

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def line(self, seconds: float) -> str | None:
        """The next line of output; None where none comes within `seconds`.

        Raises `EOFError` at the end of output, or for a line longer than 8 MiB; an unfinished last line is dropped.
        """
        deadline = time.monotonic() + seconds
        out = self._received["out"]
        while b"\n" not in out:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if len(out) > _LONGEST_LINE or not self._receive(left):
                raise EOFError
        line, _, rest = out.partition(b"\n")
        self._received["out"] = rest
        return processes.text_of(bytes(line + b"\n"))[:-1]

    def _receive(self, seconds: float) -> bool:
        """Collect output that comes within so many seconds; whether standard output is still open.

        Of standard error only the last 4096 bytes are kept.
        """
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 1 << 16)
            buffer = self._received[key.data]
            buffer += data
            if key.data == "err":
                del buffer[:-4096]
            if not data:
                self._selector.unregister(key.fileobj)
        return self._is_open("out")

    def end(self) -> tuple[int | None, str]:
        """Kill it if it still runs, and close its pipes; its exit status and the last line of its standard error.

        The line may be empty. The status is negative for a signal, None where it cannot be killed; one that exited by
        itself keeps its own.
        """
        ended = self._exits_by_itself()
        if not ended:
            kill_group(self._child)
            ended = wait_until_reaped(self._child)
        self._selector.close()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe:
                pipe.close()
        if ended:
            living.discard(self._child)
        last = self._received["err"].decode("utf-8", "replace").strip().splitlines()
        return self._child.status if ended else None, last[-1] if last else ""

    def _exits_by_itself(self) -> bool:
        """Whether it has exited; where its standard output is closed, wait up to `KILL_SECONDS` seconds for that."""
        deadline = time.monotonic() + (0.0 if self._is_open("out") else KILL_SECONDS)
        while self._is_open("err") and not self._is_open("out") and (left := deadline - time.monotonic()) > 0:
            self._receive(left)
        return wait_for(self._child, max(0.0, deadline - time.monotonic()))

    def _is_open(self, name: str) -> bool:
        """Whether the stream ``out`` or ``err`` has not reached its end."""
        return any(key.data == name for key in self._selector.get_map().values())
