"""How the examined machine is reached: its files, processes, and time limits on both; no other room touches it.

- `local`: this machine; `recorded`, `record`, `recording`: a machine from a file, the file, and how it is made
- `child`, `posix_processes`, `windows_processes`: child processes with a deadline; `protocol`: how they answer
- `proc`: processes by /proc, for our own children and for jobs
- `rights`: which programs may be run, and as whom; `system_paths`: where programs and interpreters are
- `network`: interfaces and host names, and the interface that NCCL and Gloo take
- `passthrough`: a command run unchanged, for ``gpudoctor run``

Scripts that answer from within another process or interpreter are in ``probes/children`` and ``kernels/child``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from gpudoctor.core.fact import Reason
from gpudoctor.core.frozen import frozen
from gpudoctor.core.system import signal_name

Watch = Callable[["str | None"], bool]
"""Told each line that a child prints, and None while it prints none; False ends the child."""


System = Literal["linux", "windows"]
_CRASHES = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC0000094: "division by zero",
    0xC00000FD: "stack overflow",
    0xC0000135: "a DLL that it needs is missing",
    0xC0000139: "a function that it needs is missing from a DLL",
    0xC0000142: "a DLL failed to initialise",
    0xC0000374: "heap corruption",
    0xC0000409: "stack buffer overrun, or abort()",
}
"""What Windows calls these ends of a process (ntstatus.h)."""


def crash(status: int) -> str:
    """A negative exit status in words: ``killed by SIGSEGV``, on Windows ``crashed (access violation 0xC0000005)``."""
    if status < -0xFF:  # an NTSTATUS of Windows
        return f"crashed ({_CRASHES.get(status & 0xFFFFFFFF, 'status')} 0x{status & 0xFFFFFFFF:08X})"
    return f"killed by {signal_name(-status)}"


@frozen
class Answer:
    """The result of a child process: exit status, captured output and how it ended.

    `status` is the exit code, negative for a signal (on Windows for a crash, an NTSTATUS), None where the child was
    stopped. `out` and `err` are its standard output and standard error, cut at the limit given. `stuck` is the pid of
    a child that could not be killed and was left behind; `cut` says that it was stopped, or its output not read to
    the end, for printing more than the limit.
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
        """Whether it exited by itself with status 0."""
        return self.status == 0

    @property
    def how(self) -> str:
        """How it ended, in words: ``exit 3``, ``killed by SIGSEGV``, ``stopped after 5 s``, ``stopped for printing
        without end``, ``could not be stopped (pid 812 is left behind)``.
        """
        if self.stuck is not None:
            return f"could not be stopped (pid {self.stuck} is left behind)"
        if self.status is None:
            return "stopped for printing without end" if self.cut else f"stopped after {self.seconds:.0f} s"
        return crash(self.status) if self.status < 0 else f"exit {self.status}"

    @property
    def reason(self) -> Reason:
        """Why it is no answer: it was stopped at its deadline, crashed, or said something else than was asked."""
        if self.status is None and not self.cut:
            return Reason.TIMED_OUT
        return Reason.CRASHED if self.status is not None and self.status < 0 else Reason.FAILED

    @property
    def complaint(self) -> str:
        """The last line of its standard error; empty where it wrote none."""
        return (self.err.strip().splitlines() or [""])[-1]


class Target(Protocol):
    """A machine that can be diagnosed: files, environment and programs.

    Paths are paths of that machine; every method raises `OSError` where access is refused, and `path`, `read` and the
    like also where the file does not exist.
    """

    name: str
    system: System
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
        """Absolute path of the Python interpreter being diagnosed; None where there is none."""

    def path(self, path: str) -> Path:
        """The path under which the target's absolute `path` can be opened here, for memory-mapping large files."""

    def read(self, path: str, limit: int = 1 << 20) -> str:
        """The file's first `limit` bytes as text; bytes that are not UTF-8 are replaced."""

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        """The file's first `limit` bytes."""

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where the folder does not exist."""

    def exists(self, path: str) -> bool:
        """Whether the path exists, symbolic links followed."""

    def link(self, path: str) -> str:
        """The path with all symbolic links resolved."""

    def space(self, path: str) -> tuple[int, int]:
        """Total size, and bytes that an unprivileged user may still write, of the file system that holds `path`."""

    def inodes(self, path: str) -> tuple[int, int]:
        """Total and free inodes of the file system that holds `path`; (0, 0) where their number is not fixed."""

    def modified(self, path: str) -> float:
        """Modification time of the file or folder, in seconds since 1970."""

    def which(self, program: str) -> str | None:
        """Full path of the first program of that name on the session's PATH; None where there is none."""

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
        """Run a program without a shell in its own process group; kill the group after `timeout` seconds.

        `env` is added to the session's variables, `stdin` is written to the program, `limit` is the most bytes taken of
        each output stream. With `silence` (seconds) it is killed that long after its last output, once it has begun to
        print. `watch` is called with each line of output as it arrives. Raises `OSError` where the program cannot be
        started.
        """
