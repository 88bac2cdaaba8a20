"""A child process with a deadline: whatever it does, we get an answer in time."""

from __future__ import annotations

import atexit
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.target import Answer, Watch

GRACE = 0.5
"""Seconds that a killed child may take to disappear before it is called stuck."""

_TURN = 5.0
"""Seconds that one may take which only waits for its turn on a busy machine, or whose memory is being freed."""

_TICK = 0.25
"""Seconds between two looks whether the child has ended, where a grandchild keeps its streams open."""

_LATE = 2
"""Looks after the deadline: one at what a pipe holds, one at its end."""

living: set[subprocess.Popen[bytes]] = set()
"""Children on their way and those left behind. The probe that waits for one may have been given up meanwhile."""

begun: set[int] = set()
"""Process ids of all that we started: what they hold of the patient is our own doing."""

_births: set[object] = set()
"""Children that other threads are just starting."""

MARK = "GPUDOCTOR_CHILD"
"""The variable by which what a child has started is known to be its own, in whatever session that lives."""

_marks: set[str] = set()
_over = threading.Event()
"""Set once we end: nothing is started any more."""


def run_child(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str],
    stdin: str = "",
    limit: int = 1 << 20,
    silence: float | None = None,
    watch: Watch | None = None,
    **begins: Any,
) -> Answer:
    """Run `argv` in its own session; end the whole group after `timeout` seconds or `limit` bytes of a stream.

    With `silence` it is ended that long after its last output, once it has begun to print. `watch` is told each line
    of its standard output as it comes, and None a few times a second while there is none; False ends the child.
    Where `env` gives it a `MARK`, whatever inherited that is ended with it: also what left the group for a session of
    its own. `begins` goes to `subprocess.Popen`. Raises `OSError` where the program cannot be started at all.
    """
    started = time.monotonic()
    marks = {env.get(MARK, "")} - {"", os.environ.get(MARK)}  # our own is not its own
    child = start_child(argv, env, bool(stdin), **begins)
    _marks.update(marks)
    talk = _Talk(child, stdin.encode(), limit, silence, watch)
    try:
        closed = talk.until(started + timeout)
        ended = wait_for(child, max(0.0, started + timeout - time.monotonic()) if closed else 0.0)
    finally:
        kill_group(child)  # the child, or the grandchildren that outlived it
        kill_marked(marks)
        _marks.difference_update(marks)
        talk.close()
        gone = disappears(child)
        if gone:
            living.discard(child)
    return Answer(
        argv=tuple(argv),
        status=child.returncode if ended else None,
        out=bytes(talk.heard["out"][:limit]).decode("utf-8", "replace"),
        err=bytes(talk.heard["err"][:limit]).decode("utf-8", "replace"),
        seconds=time.monotonic() - started,
        stuck=None if gone else child.pid,
        cut=talk.flooded,
    )


def start_child(argv: Sequence[str], env: Mapping[str, str], talks: bool, **begins: Any) -> subprocess.Popen[bytes]:
    """The child in a session of its own, known to `_kill_all` from its first moment on."""
    birth = object()
    _births.add(birth)
    try:
        if _over.is_set():
            raise OSError(errno.ESHUTDOWN, "gpudoctor is ending")
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
            **begins,
        )
        living.add(child)
        begun.add(child.pid)
    finally:
        _births.discard(birth)
    return child


class _Talk:
    """What is said to a child and heard of it, neither of which may block."""

    def __init__(
        self, child: subprocess.Popen[bytes], stdin: bytes, limit: int, silence: float | None, watch: Watch | None
    ) -> None:
        assert child.stdout
        assert child.stderr
        self.child = child
        self.heard = {"out": bytearray(), "err": bytearray()}
        self.flooded = False
        self._rest = stdin
        self._limit = limit
        self._silence = silence
        self._watch = watch
        self._told = 0
        self._quiet_until = float("inf")
        self._selector = selectors.DefaultSelector()
        self._selector.register(child.stdout, selectors.EVENT_READ, "out")
        self._selector.register(child.stderr, selectors.EVENT_READ, "err")
        if child.stdin:
            os.set_blocking(child.stdin.fileno(), False)
            self._selector.register(child.stdin, selectors.EVENT_WRITE, "in")

    def until(self, deadline: float) -> bool:
        """Whether both its streams were closed before the deadline, the limit, its falling silent, or its own end.

        On a busy machine it may be us who come late: what it has said by then is heard before it is given up.
        """
        late = 0
        while self._listens():
            if self.flooded:
                return False
            now = time.monotonic()
            left = min(deadline, self._quiet_until) - now
            ready = self._exchange(max(0.0, min(left, _TICK)))
            if self._watch and not self._tell(self._watch):
                if self._exchange(0):
                    self._tell(self._watch)
                return False
            late += now >= deadline
            if left <= 0 and (late > _LATE or not any(key.data != "in" for key in ready)):
                return False
            if self.child.poll() is not None and not self._has_more():
                return False
        return True

    def close(self) -> None:
        """Let go of the streams, whoever may hold their other ends."""
        self._selector.close()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            if pipe:
                pipe.close()

    def _exchange(self, seconds: float) -> list[selectors.SelectorKey]:
        """Read and write what can be within so many seconds; the streams on which something could."""
        ready = [key for key, _ in self._selector.select(seconds)]
        for key in ready:
            self._write(key) if key.data == "in" else self._read(key)
        return ready

    def _tell(self, watch: Watch) -> bool:
        """Tell of all lines that have come since; whether the child may go on after each."""
        out = self.heard["out"]
        end = out.rfind(b"\n", self._told)
        if end < 0:
            return watch(None)
        lines = bytes(out[self._told : end]).decode("utf-8", "replace").split("\n")
        self._told = end + 1
        goes_on = [watch(line) for line in lines]
        return all(goes_on)

    def _listens(self) -> bool:
        return any(key.data != "in" for key in self._selector.get_map().values())

    def _has_more(self) -> bool:
        return any(key.data != "in" for key, _ in self._selector.select(0))

    def _read(self, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, 65536)
        if not data:
            self._selector.unregister(key.fileobj)
        self.heard[key.data] += data
        if self._silence is not None:
            self._quiet_until = time.monotonic() + self._silence
        self.flooded = self.flooded or len(self.heard[key.data]) > self._limit

    def _write(self, key: selectors.SelectorKey) -> None:
        try:
            self._rest = self._rest[os.write(key.fd, self._rest[:65536]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read: its own affair
            self._rest = b""
        if not self._rest and self.child.stdin:
            self._selector.unregister(key.fileobj)
            self.child.stdin.close()


def wait_for(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it has ended by then."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def disappears(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child that was killed is gone soon: only one that waits in the kernel, in state D, is not."""
    gone = wait_for(child, GRACE)
    deadline = time.monotonic() + _TURN
    while not gone and _state(child.pid) != "D" and time.monotonic() < deadline:
        gone = wait_for(child, 0.05)
    return gone


def _state(pid: int) -> str:
    """The letter that /proc has for it; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """End it and all that it started; gone already is as good."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_marked(marks: Iterable[str]) -> None:
    """End every process whose environment has one of these marks."""
    wanted = [f"{MARK}={mark}".encode() for mark in marks]
    for folder in Path("/proc").glob("[0-9]*") if wanted else ():
        try:
            given = (folder / "environ").read_bytes().split(b"\0")
            if any(word in given for word in wanted):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:  # another user's, or gone
            continue


@atexit.register
def end_all() -> None:
    """Leave nothing running behind a diagnosis that ended, or was interrupted, before its children."""
    _over.set()
    deadline = time.monotonic() + GRACE
    while _births and time.monotonic() < deadline:
        time.sleep(0.001)
    for child in tuple(living):
        if child.poll() is None:
            kill_group(child)
    kill_marked(tuple(_marks))
