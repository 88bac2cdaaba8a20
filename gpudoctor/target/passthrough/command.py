"""The command itself: found as a shell finds it, started with what we were given, waited for; and we end as it ended.

While it runs the main thread does nothing but wait for signals. All that can be caught are blocked in this process, so
that none interrupts anything else here: each is taken up in turn, and passed on to the command where it has not got it
itself (`Witness`). A stop of the command stops us, as the shell expects of a job.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpudoctor.core.language import say
from gpudoctor.target import child, proc

if sys.platform != "win32":
    import resource

assert sys.platform != "win32"  # what follows is POSIX's alone

# ---- The witness ----
# A signal for the group (Ctrl-C, kill -TERM -GROUP, a scheduler that signals each process of a step) reaches it as it
# reaches the command; one that is meant for us alone does not, and is to be passed on. So the command gets each signal
# once. Where we are killed, the witness kills the command: whoever kills the process that he has started means it.

_ANSWER_SECONDS = 0.5
"""Seconds that an answer may take; a witness that is stopped gives none."""
_MOST_DESCRIPTORS = 4096
"""Descriptors that are closed where the system does not list those that are open."""
_QUIT, _ASK, _GUARD = b"Q", b"?", b"G"


@dataclass(slots=True)
class Witness:
    """A helper process in our process group that blocks signals and reports which it received.

    A signal that it received, too, was sent to the whole group, so that the command has it already.
    """

    line: socket.socket

    @classmethod
    def start(cls) -> Witness:
        """Start the helper; it blocks the signals that are blocked in this process. Raises `OSError`."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                ours.close()
                _run_witness(its)
            finally:
                os._exit(0)
        its.close()
        ours.settimeout(_ANSWER_SECONDS)
        return cls(ours)

    def guard(self, pid: int) -> None:
        """Have the helper kill process `pid` if this process ends without `dismiss`; no error if the helper is gone."""
        with contextlib.suppress(OSError):
            self.line.send(_GUARD + str(pid).encode())

    def seen(self) -> frozenset[int] | None:
        """Numbers of the signals that the helper received since the last call; None without an answer within 0.5 s."""
        try:
            self.line.send(_ASK)
            return frozenset(self.line.recv(256)[1:])
        except OSError:
            return None

    def dismiss(self) -> None:
        """End the helper without killing the guarded process; no error where it is gone."""
        with contextlib.suppress(OSError):
            self.line.send(_QUIT)
        self.line.close()


def _run_witness(line: socket.socket) -> None:
    """Body of the helper process: answers over `line` until it is dismissed.

    Where the other side is closed without that, its parent was killed: then it kills the guarded process.
    """
    close_all_but({line.fileno()})
    guarded, handle = 0, -1
    while request := line.recv(32):
        if request == _QUIT:
            return
        if request == _ASK:
            line.send(b"=" + bytes(_consume_pending()))
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
    """Close all file descriptors except `kept`; for a forked process, so that it holds no pipe open."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names, not paths
    except OSError:  # no /proc
        numbers = list(range(_MOST_DESCRIPTORS))
    for number in numbers:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _consume_pending() -> list[int]:
    """Numbers of the pending signals of this process, which are thereby consumed."""
    numbers = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    while info := signal.sigtimedwait(blocked, 0):
        numbers.append(int(info.si_signo))
    return numbers


# ---- The command ----

CANNOT_RUN, NOT_FOUND = 126, 127
"""What shells say of a command."""
_OURS = ("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals that cannot be caught, or that are about the process that gets them."""
PASSED_ON = frozenset(signal.valid_signals() - {getattr(signal, name) for name in _OURS} - {signal.SIGXCPU})
"""Signals that we pass on to the command."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_GROUP_SECONDS = 0.02
"""Seconds in which a signal for the whole group, or for each process of a cgroup, has reached all of them."""
_SAME_SIGNAL_SECONDS = 1.0
"""Seconds within which the same signal to the witness and to us is one."""
_LONGEST_WAIT_SECONDS = 3600.0
_MOST_RECEIVED = 64
"""Signals that are noted, the first of them."""


class CommandError(Exception):
    """A command that could not be started: the exit code that a shell would give, and why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class Received:
    """A signal that came to us while the command ran: who sent it (0: the kernel, or not known), and when."""

    number: int
    sender: int
    sender_name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended: its exit code, or the signal that ended it; what it and its children used.

    Both are None where the code is not known. `began` and `seconds` are of the Unix clock and since the start;
    `memory_mib` is the most that one process held.
    """

    pid: int
    code: int | None
    signal: int | None
    core: bool
    began: float
    seconds: float
    cpu_seconds: float
    memory_mib: int
    received: tuple[Received, ...]

    @property
    def failed(self) -> bool:
        """True where a signal ended it, or it exited with another code than 0; False where the code is not known."""
        return bool(self.signal or self.code)


def given_environment() -> dict[bytes, bytes]:
    """The environment that this process was started with, by /proc/self/environ; where unreadable, its present one."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def find(name: str, environ: Mapping[bytes, bytes]) -> str:
    """The path of the program as execvp(3) finds it on the PATH of `environ`.

    Raises `CommandError`: code 127 where there is none, 126 where there is one that may not be executed.
    """
    if "/" in name:
        candidates = [name]
    else:
        path = os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath)))
        candidates = [os.path.join(folder or ".", name) for folder in path.split(":")]  # noqa: PTH118 - as it is given
    refused = ""
    for candidate in candidates if name else ():
        try:
            there = Path(candidate).stat()
        except OSError as error:
            if error.errno == errno.EACCES:
                refused = refused or "permission denied"
            continue
        if not os.path.isfile(candidate):  # noqa: PTH113
            refused = refused or ("a folder" if os.path.isdir(candidate) else "no program")  # noqa: PTH112
        elif there.st_mode & 0o111 and os.access(candidate, os.X_OK):
            return candidate
        else:
            refused = refused or "it is not executable (chmod +x)"
    if refused:
        raise CommandError(CANNOT_RUN, f"{name}: {refused}")
    raise CommandError(NOT_FOUND, say("{name}: no such command", name=name))


@dataclass(slots=True)
class Command:
    """The monitored command. All methods but `wait` must be called from the main thread, before other threads start."""

    argv: Sequence[str]
    environ: Mapping[bytes, bytes]
    pid: int = 0
    began: float = 0.0
    _mask: set[signal.Signals] = field(default_factory=set)
    _started: float = 0.0
    _witness: Witness | None = None
    _reached: dict[int, float] = field(default_factory=dict)
    """Signals that the whole group got, and when the witness said so: another one may have come before it."""
    _received: list[Received] = field(default_factory=list)
    on_quit: Callable[[], None] | None = None
    """What SIGQUIT to us alone does, instead of going on to the command."""
    resizes: bool = False
    """Whether it writes to a terminal of ours, whose size follows that of the real one a moment later."""

    def hold_signals(self) -> None:
        """Block every signal that is passed on, and start the `Witness`; the command itself starts unblocked.

        To be called before `Outputs` are made, which the witness must not hold open.
        """
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})  # type: ignore[assignment]
        with contextlib.suppress(OSError):
            self._witness = Witness.start()

    def start(self, descriptors: Mapping[int, int] = {}) -> None:
        """Start it, with `descriptors` (1 and 2) in place of ours; raises `CommandError`. The witness then guards it.

        It has our process group, terminal, working directory and standard input, and the mask and dispositions of
        signals that we were started with, but for SIGCHLD (`system.restore_child_statuses`).
        """
        path = find(self.argv[0] if self.argv else "", self.environ)
        self.began, self._started = time.time(), time.monotonic()
        try:
            self.pid = self._spawn(path, self.argv, descriptors)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without its first line: execvp(3) and shells give it to sh
                self.pid = self._spawn("/bin/sh", ["sh", path, *self.argv[1:]], descriptors)
            elif error.errno in (errno.ENOENT, errno.ENOTDIR):
                why = f"{self.argv[0]}: the interpreter of its first line is not there"
                raise CommandError(NOT_FOUND, why) from error
            else:
                raise CommandError(CANNOT_RUN, f"{self.argv[0]}: {error.strerror}") from error
        if self._witness:
            self._witness.guard(self.pid)

    def _spawn(self, path: str, argv: Sequence[str], descriptors: Mapping[int, int]) -> int:
        """Start the program with `descriptors` (its number to ours) and the signal mask of before; its process id.

        Raises `OSError`.
        """
        return os.posix_spawn(
            path,
            list(argv),
            self.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, number) for number, source in descriptors.items()],
            setsigmask=self._mask,
            setsigdef=_IGNORED_BY_PYTHON,
        )

    def release_signals(self) -> None:
        """Drop pending signals, which were meant for the command, and restore the mask of before `hold_signals`."""
        while signal.sigtimedwait(PASSED_ON | {signal.SIGCHLD}, 0):
            continue
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def wait(self) -> Ended:
        """Wait for the command's end, passing signals on to it; how it ended, with the signals received meanwhile.

        Ends the witness. Signals stay blocked afterwards.
        """
        while True:
            ended = self._collect()
            if ended:
                while ended.code != 0 and (info := signal.sigtimedwait(PASSED_ON, _GROUP_SECONDS)):
                    self._record_signal(info)  # who signals a group may reach the command before us
                if self._witness:
                    self._witness.dismiss()
                return replace(ended, received=tuple(self._received))
            info = signal.sigtimedwait(PASSED_ON | {signal.SIGCHLD}, _LONGEST_WAIT_SECONDS)
            if info and info.si_signo != signal.SIGCHLD:
                self._handle_signal(info)

    def _handle_signal(self, info: signal.struct_siginfo) -> None:
        """Record a received signal, and pass it on unless the command got it itself or a process of it is the sender.

        A SIGQUIT to us alone is not passed on where `on_quit` is set: that is called instead, and the record removed.
        """
        sender, number, moment = self._record_signal(info), info.si_signo, time.monotonic() - self._started
        time.sleep(_GROUP_SECONDS)
        seen = self._witness.seen() if self._witness else None
        if seen is None:
            missed = info.si_code <= 0
        else:
            self._reached.update(dict.fromkeys(seen, moment))
            missed = moment - self._reached.pop(number, -_SAME_SIGNAL_SECONDS) >= _SAME_SIGNAL_SECONDS
        if number == signal.SIGWINCH:
            missed = missed or self.resizes
        if number == signal.SIGQUIT and missed and self.on_quit:
            self._received = [
                one for one in self._received if one.number != number or one.seconds < moment - _GROUP_SECONDS
            ]
            self.on_quit()
            return
        if missed and not (sender and proc.is_within(sender, {self.pid})):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def _record_signal(self, info: signal.struct_siginfo) -> int:
        """Record a received signal (of the first 64); the process id of its sender, 0 for the kernel."""
        sender = info.si_pid if info.si_code <= 0 else 0
        if len(self._received) < _MOST_RECEIVED:
            name = proc.text(f"/proc/{sender}/comm", 64) if sender else ""
            self._received.append(Received(info.si_signo, sender, name, time.monotonic() - self._started))
        return sender

    def _collect(self) -> Ended | None:
        """How the command ended, None while it runs. If it was stopped, stop this process too and resume with it.

        As process 1 of a container it reaps orphans first.
        """
        if os.getpid() == 1:
            self._reap_orphans()
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return None
            if os.WIFSTOPPED(status):
                self._stop_as(os.WSTOPSIG(status))
            elif not os.WIFCONTINUED(status):
                return self._ended(status, usage)

    def _stop_as(self, number: int) -> None:
        """Stop this process by that signal; once this process is continued, send the command SIGCONT."""
        before = signal.getsignal(number) if number != signal.SIGSTOP else None
        if number != signal.SIGSTOP:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number, signal.SIGCONT})
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_BLOCK, {number, signal.SIGCONT} & PASSED_ON)
        if before is not None:
            signal.signal(number, before)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGCONT)

    def _reap_orphans(self) -> None:
        """Reap zombies that this process was given as process 1 of a container; stops at the first child of its own."""
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self.pid or found.si_pid in child.begun:
                    return
                os.waitpid(found.si_pid, os.WNOHANG)

    def _ended(self, status: int, usage: resource.struct_rusage) -> Ended:
        """How the command ended, from its wait(2) status and resource usage; `received` is left empty."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        return Ended(
            pid=self.pid,
            code=None if number else os.WEXITSTATUS(status),
            signal=number,
            core=os.WCOREDUMP(status),
            began=self.began,
            seconds=time.monotonic() - self._started,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            memory_mib=int(usage.ru_maxrss) >> 10,
            received=(),
        )


def point_streams_at_null() -> None:
    """Replace our standard input and output by /dev/null: their other ends then see when the command closes its own."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        with contextlib.suppress(OSError):
            handle = os.open(os.devnull, flags)
            os.dup2(handle, number, inheritable=False)
            os.close(handle)


def end_as(ended: Ended) -> int:
    """End this process by the signal that ended the command, without a core file; without a signal return its exit
    code, 0 where that is not known.

    Returns 128 + the signal where that does not end this process, as process 1 of a container.
    """
    if ended.signal is None:
        return ended.code or 0
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _forbid_core()
    with contextlib.suppress(OSError, ValueError):
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal  # process 1 of a container, or a signal that does not end


def _forbid_core() -> None:
    """Have the kernel write no core file of this process (PR_SET_DUMPABLE 0); errors are ignored."""
    with contextlib.suppress(OSError, AttributeError):
        libc().prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def libc() -> Any:
    """The C library by ctypes, with errno kept; raises `OSError` where it cannot be opened."""
    import ctypes  # few commands print much or dump core

    return ctypes.CDLL(None, use_errno=True)
