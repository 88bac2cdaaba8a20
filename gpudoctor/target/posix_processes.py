"""Child processes as POSIX has them: in sessions of their own, their pipes waited for by poll."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from gpudoctor.target import proc

assert sys.platform != "win32"  # what follows is POSIX' alone


class Process(subprocess.Popen[bytes]):
    """A program in a session of its own, with pipes for its output and, where `with_stdin`, its input.

    `stderr` may be `subprocess.STDOUT`; `options` go to `subprocess.Popen`. Raises `OSError` where it cannot start.
    """

    DIES_WITH_US = False
    """Whether the system ends it when this process ends, however that comes about."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        with_stdin: bool,
        stderr: int = subprocess.PIPE,
        **options: Any,
    ) -> None:
        super().__init__(
            list(argv),
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
            **options,
        )

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None until `poll` or `wait` (not called here) has seen the end."""
        return self.returncode

    def ask_to_end(self, attempt: int) -> None:
        """Send its process group SIGINT (`attempt` 0), SIGTERM (1) or SIGKILL (2 or more); no error if it is gone."""
        self._signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[min(attempt, 2)])

    def kill_tree(self) -> None:
        """Send SIGKILL to its process group; no error where it is gone already."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Send a signal to its process group; no error where it is gone already."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def is_unkillable(self) -> bool:
        """Whether it is in uninterruptible sleep (state D), by /proc; False where it is gone."""
        return proc.stat_fields(f"/proc/{self.pid}/stat")[1:2] == [b"D"]

    def selector(self) -> selectors.BaseSelector:
        """A new selector, in which the caller registers this child's pipes."""
        return selectors.DefaultSelector()

    def feed(self, selector: selectors.BaseSelector, pipe: IO[bytes], data: bytes) -> None:  # noqa: ARG002
        """Make `pipe`, its standard input, non-blocking and register it in `selector` for writing, as ``in``.

        Writes nothing itself; `data` is there for Windows' `Process`, which writes it at once.
        """
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_WRITE, "in")


def kill_marked(assignments: Iterable[bytes]) -> None:
    """Send SIGKILL to every process with one of these ``NAME=value`` in its environment, where that is readable."""
    wanted = set(assignments)
    for folder in Path("/proc").glob("[0-9]*") if wanted else ():
        try:
            if wanted.intersection((folder / "environ").read_bytes().split(b"\0")):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:  # another user's, or gone
            continue


def text_of(output: bytes) -> str:
    """Output of a program as text; bytes that are not UTF-8 are replaced."""
    return output.decode("utf-8", "replace")
