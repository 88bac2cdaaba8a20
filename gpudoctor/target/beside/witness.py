"""The witness: a process of our group that holds back what signals it gets, and can say which.

A signal for the group (Ctrl-C, kill -TERM -GROUP, a scheduler that signals each process of a step) reaches the witness
as it reaches the command; one that is meant for us alone does not, and is to be passed on. So the command gets each
signal once. Where we are killed, the witness kills the command: whoever kills the process that he has started means it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Collection
from dataclasses import dataclass

assert sys.platform != "win32"  # what follows is POSIX's alone

_ANSWERS = 0.5
"""Seconds that an answer may take; a witness that is stopped gives none."""
_DESCRIPTORS = 4096
"""Descriptors that are closed where the system does not list those that are open."""
_QUIT, _ASK, _GUARD = b"Q", b"?", b"G"


@dataclass(slots=True)
class Witness:
    """Our end of the line to the witness."""

    line: socket.socket

    @classmethod
    def start(cls) -> Witness:
        """Start it; every signal that it is to hold back must be blocked here. Raises `OSError`."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                ours.close()
                _witness(its)
            finally:
                os._exit(0)
        its.close()
        ours.settimeout(_ANSWERS)
        return cls(ours)

    def guard(self, pid: int) -> None:
        """Have it kill that process should this one be killed."""
        with contextlib.suppress(OSError):
            self.line.send(_GUARD + str(pid).encode())

    def seen(self) -> frozenset[int] | None:
        """The signals that it got since it was last asked; None where it does not answer."""
        try:
            self.line.send(_ASK)
            return frozenset(self.line.recv(256)[1:])
        except OSError:
            return None

    def dismiss(self) -> None:
        """Let it go: the command has ended."""
        with contextlib.suppress(OSError):
            self.line.send(_QUIT)
        self.line.close()


def _witness(line: socket.socket) -> None:
    """The witness's life: answer, until it is dismissed, or the line is cut because its asker was killed."""
    close_all_but({line.fileno()})
    guarded, handle = 0, -1
    while request := line.recv(32):
        if request == _QUIT:
            return
        if request == _ASK:
            line.send(b"=" + bytes(_pending()))
        elif request.startswith(_GUARD):
            guarded = int(request[1:])
            if sys.platform == "linux":
                with contextlib.suppress(OSError):
                    handle = os.pidfd_open(guarded)
    if guarded:
        with contextlib.suppress(OSError):
            if handle >= 0:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            else:
                os.kill(guarded, signal.SIGKILL)


def close_all_but(kept: Collection[int]) -> None:
    """Close every descriptor of this process but those: in a forked process, so that nobody waits for their end."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names, not paths
    except OSError:  # no /proc
        numbers = list(range(_DESCRIPTORS))
    for number in numbers:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _pending() -> list[int]:
    """The signals that wait for this process, which then do no longer."""
    numbers = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    while info := signal.sigtimedwait(blocked, 0):
        numbers.append(int(info.si_signo))
    return numbers
