"""A child process that talks on and on: its lines as they come, until it ends, falls silent, or is ended."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.target.child import GRACE, disappears, kill_group, living, start_child, wait_for

_MOST = 8 << 20
"""Bytes of one line: what prints more without an end of line is no longer listened to."""


class Stream:
    """A running child. Its standard input stays open as long as we live, so that it can tell when to end.

    Raises `OSError` where the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], **begins: Any) -> None:
        self._child = start_child(argv, env, talks=True, **begins)
        assert self._child.stdout
        assert self._child.stderr
        self._heard = {"out": bytearray(), "err": bytearray()}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._child.stdout, selectors.EVENT_READ, "out")
        self._selector.register(self._child.stderr, selectors.EVENT_READ, "err")

    @property
    def pid(self) -> int:
        """The child's."""
        return self._child.pid

    def line(self, seconds: float) -> str | None:
        """Its next line, or None where it says none within so many seconds; raises `EOFError` at its end."""
        deadline = time.monotonic() + seconds
        out = self._heard["out"]
        while b"\n" not in out:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if len(out) > _MOST or not self._listen(left):
                raise EOFError
        line, _, rest = out.partition(b"\n")
        self._heard["out"] = rest
        return line.decode("utf-8", "replace")

    def _listen(self, seconds: float) -> bool:
        """Take in what comes; whether standard output is still open."""
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 1 << 16)
            heard = self._heard[key.data]
            heard += data
            if key.data == "err":
                del heard[:-4096]
            if not data:
                self._selector.unregister(key.fileobj)
        return self._open("out")

    def end(self) -> tuple[int | None, str]:
        """End it: its exit status, negative for a signal, None where it cannot be ended; and its last complaint.

        One that ended by itself keeps its own status.
        """
        ended = self._ends_by_itself()
        if not ended:
            kill_group(self._child)
            ended = disappears(self._child)
        self._selector.close()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe:
                pipe.close()
        if ended:
            living.discard(self._child)
        last = self._heard["err"].decode("utf-8", "replace").strip().splitlines()
        return self._child.returncode if ended else None, last[-1] if last else ""

    def _ends_by_itself(self) -> bool:
        """Whether it has ended, or is about to: one whose standard output is closed has a moment for its last words."""
        deadline = time.monotonic() + (0.0 if self._open("out") else GRACE)
        while self._open("err") and not self._open("out") and (left := deadline - time.monotonic()) > 0:
            self._listen(left)
        return wait_for(self._child, max(0.0, deadline - time.monotonic()))

    def _open(self, name: str) -> bool:
        return any(key.data == name for key in self._selector.get_map().values())
