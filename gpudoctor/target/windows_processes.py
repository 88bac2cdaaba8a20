"""Child processes on Windows: each in a job object that ends with it, their pipes looked into before they are read.

What POSIX has as a session and killpg is a job: whatever a child starts is in it, also detached or in a group of its
own; breaking away is refused, and with KILL_ON_JOB_CLOSE all of it goes when we go, however that comes about. The child
is started suspended, so that it starts nothing before it is in the job.

A pipe that is read cannot be given up again, for closing it waits for the reading: so none is read before it is known
to hold something (PeekNamedPipe), and what a grandchild keeps open holds up nobody.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from ctypes import wintypes
from typing import IO, Any

assert sys.platform == "win32"  # what follows is Windows' alone

import msvcrt  # noqa: E402

_KERNEL = ctypes.WinDLL("kernel32", use_last_error=True)
_KERNEL.CreateJobObjectW.restype = wintypes.HANDLE
_KERNEL.CreateJobObjectW.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR)
_KERNEL.SetInformationJobObject.argtypes = (wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD)
_KERNEL.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
_KERNEL.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
_KERNEL.CloseHandle.argtypes = (wintypes.HANDLE,)
_KERNEL.WaitForSingleObject.argtypes = (wintypes.HANDLE, wintypes.DWORD)
_KERNEL.PeekNamedPipe.argtypes = (
    wintypes.HANDLE,
    ctypes.c_void_p,
    wintypes.DWORD,
    ctypes.c_void_p,
    ctypes.POINTER(wintypes.DWORD),
    ctypes.c_void_p,
)
_NT = ctypes.WinDLL("ntdll")
_NT.NtResumeProcess.argtypes = (wintypes.HANDLE,)

_CREATE_SUSPENDED = 0x4
_DIE_ON_UNHANDLED_EXCEPTION, _KILL_ON_JOB_CLOSE = 0x400, 0x2000
_EXTENDED_LIMITS = 9
"""JobObjectExtendedLimitInformation."""
_ENDED_BY_US = 0xC000013A
"""STATUS_CONTROL_C_EXIT, the status of what is ended."""
_NO_DIALOGUES = 0x8003
"""SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX and SEM_NOOPENFILEERRORBOX, which children inherit."""
_NEEDED = ("SYSTEMROOT", "SYSTEMDRIVE")
"""Variables without which no Python starts: it has neither random numbers nor sockets."""
_TICK_SECONDS, _LONGEST_TICK_SECONDS = 0.001, 0.1
"""Seconds between two looks into the pipes: often at first and after each output; the child's end is not waited for."""

_KERNEL.SetErrorMode(_NO_DIALOGUES)


class _Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION, of which only the flags matter."""

    _fields_ = (("times", ctypes.c_int64 * 2), ("flags", wintypes.DWORD), ("rest", ctypes.c_size_t * 15))


def _new_job() -> int:
    """Handle of a job object that ends what is in it when the handle is closed; raises `OSError`."""
    job: int | None = _KERNEL.CreateJobObjectW(None, None)
    limits = _Limits(flags=_KILL_ON_JOB_CLOSE | _DIE_ON_UNHANDLED_EXCEPTION)
    if not job:
        raise ctypes.WinError(ctypes.get_last_error())
    if not _KERNEL.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)):
        raise ctypes.WinError(ctypes.get_last_error())
    return job


class Process(subprocess.Popen[bytes]):
    """A program in a job of its own, with pipes for its output and, where `with_stdin`, its input; without a window.

    `stderr` may be `subprocess.STDOUT`; `options` go to `subprocess.Popen`. Raises `OSError` where it cannot start.
    """

    DIES_WITH_US = True
    """Whether the system ends it when this process ends, however that comes about."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        with_stdin: bool,
        stderr: int = subprocess.PIPE,
        **options: Any,
    ) -> None:
        self._job = _new_job()
        super().__init__(
            list(argv),
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**{name: os.environ[name] for name in _NEEDED if name in os.environ}, **env},
            creationflags=_CREATE_SUSPENDED | subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP,
            bufsize=0,
            **options,
        )
        handle = int(self._handle)  # type: ignore[attr-defined] # typeshed leaves it out
        if not _KERNEL.AssignProcessToJobObject(self._job, handle):
            error = ctypes.WinError(ctypes.get_last_error())
            self.kill()
            raise error
        _NT.NtResumeProcess(handle)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a crash (a signed NTSTATUS); None until one of `poll` and `wait` saw it."""
        code = self.returncode
        return code - (1 << 32) if code is not None and code >= 1 << 31 else code

    def ask_to_end(self, attempt: int) -> None:  # noqa: ARG002
        """End it and all that it has started at the first attempt: without a console there is no Ctrl-C to send."""
        self.kill_tree()

    def kill_tree(self) -> None:
        """End it and all that it has started, by its job object; no error where it is gone already."""
        if self._job:
            _KERNEL.TerminateJobObject(self._job, _ENDED_BY_US)
            _KERNEL.CloseHandle(self._job)
            self._job = 0

    def is_unkillable(self) -> bool:
        """Always False: Windows does not say whether a process waits in the kernel and cannot be ended."""
        return False

    def selector(self) -> selectors.BaseSelector:
        """A new selector that also wakes when this child ends, in which the caller registers its pipes."""
        return _Selector(int(self._handle))  # type: ignore[attr-defined] # typeshed leaves it out

    def feed(self, selector: selectors.BaseSelector, pipe: IO[bytes], data: bytes) -> None:  # noqa: ARG002
        """Write `data` to `pipe`, its standard input, and close that, in a thread of its own; `selector` is unused."""
        threading.Thread(target=_write_all, args=(pipe, data), daemon=True).start()


def _write_all(pipe: IO[bytes], data: bytes) -> None:
    """Write all of the data and close the pipe; stops without an error where the other side is closed."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(pipe.fileno(), rest[:65536]) :]
        pipe.close()
    except (OSError, ValueError):  # it does not read, or has ended
        return


class _Selector(selectors.BaseSelector):
    """A child's pipes to read from, each ready when it holds something or has come to its end.

    Nothing wakes who waits for a pipe: they are looked into now and then, and at once when the child ends.
    """

    def __init__(self, process: int) -> None:
        """`process` is the child's handle."""
        self._process = process
        self._has_ended = False
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._pause = _TICK_SECONDS

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a pipe, which is ready when it can be read without waiting; the key that `select` gives for it."""
        key = selectors.SelectorKey(fileobj, fileobj.fileno(), events, data)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch the pipe no longer; its key. Raises `KeyError` where it was not watched."""
        return self._keys.pop(fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The pipes that can be read without waiting, once there is one; empty after `timeout` seconds, if given."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            ready = [(key, key.events) for key in self._keys.values() if _is_ready(key.fd)]
            left = end - time.monotonic()
            if ready:
                self._pause = _TICK_SECONDS
            if ready or left <= 0:
                return ready
            self._sleep(min(self._pause, left))
            self._pause = min(self._pause * 1.5, _LONGEST_TICK_SECONDS)

    def _sleep(self, seconds: float) -> None:
        """Wait so many seconds, less where the child ends meanwhile; once it has ended, always all of them."""
        if self._has_ended:
            time.sleep(seconds)
        else:
            self._has_ended = not _KERNEL.WaitForSingleObject(self._process, max(1, int(seconds * 1000)))

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The keys of the watched pipes, by descriptor."""
        return self._keys

    def close(self) -> None:
        """Forget all pipes that are watched; they are not closed."""
        self._keys.clear()


def _is_ready(descriptor: int) -> bool:
    """Whether the pipe holds something, or nobody can write to it any more."""
    held = wintypes.DWORD()
    handle = msvcrt.get_osfhandle(descriptor)
    return not _KERNEL.PeekNamedPipe(handle, None, 0, None, ctypes.byref(held), None) or held.value > 0


def kill_marked(assignments: Iterable[bytes]) -> None:
    """Does nothing: what a child starts cannot leave its job object, which `kill_tree` ends."""


def text_of(output: bytes) -> str:
    """Output of a program as text with ``\\n`` as the end of each line; bytes that are not UTF-8 are replaced."""
    return output.decode("utf-8", "replace").replace("\r\n", "\n")
