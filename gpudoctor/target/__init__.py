"""The only room that touches the patient: its files, its processes, and time limits on both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gpudoctor.model.frozen import frozen

Watch = Callable[["str | None"], bool]
"""Told each line that a child prints, and None while it prints none; False ends the child."""


@frozen
class Answer:
    """What a child process said before it ended or was ended.

    `status` is the exit code, negative for a signal, None where the child was stopped. `out` and `err` are cut at the
    limit given. `stuck` is the pid of a child that could not be killed and was left behind; `cut` says that it was
    stopped, or not heard to its end, for printing more than the limit.
    """

    argv: tuple[str, ...]
    status: int | None
    out: str
    err: str
    seconds: float
    stuck: int | None = None
    cut: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with 0."""
        return self.status == 0

    @property
    def how(self) -> str:
        """How it ended, in words: ``exit 3``, ``signal SIGSEGV``, ``stopped after 5 s``."""
        if self.stuck is not None:
            return f"could not be stopped (pid {self.stuck} is left behind)"
        if self.status is None:
            return "stopped for printing without end" if self.cut else f"stopped after {self.seconds:.0f} s"
        if self.status < 0:
            import signal

            try:
                return f"killed by {signal.Signals(-self.status).name}"
            except ValueError:
                return f"killed by signal {-self.status}"
        return f"exit {self.status}"


class Target(Protocol):
    """Who answers. Paths are the patient's; every method raises `OSError` where the patient refuses."""

    name: str
    level: str
    wait: float | None
    """Seconds that GPUs may take to wake; None for what the level gives them."""
    listener: Callable[[str, str], None]
    """Hears which probe waits for what, in words for people: ``nvml``, ``GPU 3 of 8 is waking, 7 s``."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables of the session being diagnosed."""

    @property
    def python(self) -> str | None:
        """The interpreter being diagnosed, None where there is none."""

    def path(self, path: str) -> Path:
        """Where the patient's absolute `path` can be opened from here, for memory-mapping large files."""

    def read(self, path: str, limit: int = 1 << 20) -> str:
        """The file's first `limit` bytes as text."""

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        """The file's first `limit` bytes."""

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where the folder is missing."""

    def exists(self, path: str) -> bool:
        """Whether the path is there, links followed."""

    def link(self, path: str) -> str:
        """The full path that `path` really is."""

    def space(self, path: str) -> tuple[int, int]:
        """Size of the file system that holds `path`, and what this user may still write there, in bytes."""

    def modified(self, path: str) -> float:
        """When the file or folder was written last, in seconds since 1970."""

    def which(self, program: str) -> str | None:
        """The program of that name that the session's PATH gives first."""

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        """Run a program without a shell, in its own process group, and end the group after `timeout` seconds.

        With `silence` it is ended that many seconds after its last output, once it has begun to print. `watch` hears
        its lines as they come.
        """
