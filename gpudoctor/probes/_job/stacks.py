"""Stacks of Python programs as they run, by ``py-spy dump``: which functions each thread is in, and what these mean.

py-spy is always asked not to pause the program (``--nonblocking``): whoever asks what a job waits for must not make it
wait, a stop would delay the collectives of all ranks, and a process in uninterruptible sleep cannot be stopped at all.
What is read of a program that runs meanwhile may be torn: then it is asked again.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.core.fact import Reason, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import printable

_OPTIONS = ("dump", "--nonblocking", "--json", "--full-filenames", "--pid")
_TRIES = 3
_PY_SPY_SECONDS = 5.0
"""Seconds that py-spy may take for one process: it reads symbols from the interpreter's file."""
_DENIED = re.compile(r"permission denied|operation not permitted|try running again with elevated permissions", re.I)
_NO_PYTHON = re.compile(r"failed to find python version|python.*not found|no python|failed to.*interpreter", re.I)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|<frozen |^<")
_DISTRIBUTED = "torch/distributed/"
MEETING = "init_process_group"
"""Where ranks meet for the first time."""
_NO_WAIT = re.compile(r"torch/distributed/(?:elastic|launcher|run\.py|argparse_util|checkpoint/)")
_LOADER = "torch/utils/data/dataloader.py"
_WORKER = "torch/utils/data/_utils/worker.py"
_DEVICE = re.compile(r"torch/(?:cuda|xpu|accelerator)/(?:__init__|streams|memory)\.py")
_WRAPPERS = ("wrapper", "inner", "_fn", "decorate_context")


@frozen
class Frame:
    """A function of a stack: its name, its file, and the line it is at."""

    name: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """Function, file name and line: ``load (train.py:41)``."""
        return f"{self.name} ({self.file.rpartition('/')[2]}:{self.line})"


@frozen
class Stack:
    """The Python stack of a thread, the innermost function first."""

    thread: int
    name: str
    frames: tuple[Frame, ...]

    @property
    def place(self) -> str:
        """Innermost function of the program itself, else of a library, as `Frame.place`; empty without any."""
        own = next((one for one in self.frames if not _LIBRARY.search(one.file)), None)
        inner = own or next(iter(self.frames), None)
        return inner.place if inner else ""

    @property
    def collective(self) -> str:
        """The function of torch.distributed that the thread waits in, such as ``all_reduce``; empty if it is in none.

        Also ``backward`` and ``synchronize``, in which collectives are waited for.
        """
        if any(frame.name == MEETING and _DISTRIBUTED in frame.file for frame in self.frames):
            return MEETING
        for frame in self.frames:
            if frame.name.rpartition(".")[2] in _WRAPPERS:
                continue
            if _DISTRIBUTED in frame.file and not _NO_WAIT.search(frame.file):
                return frame.name
            if frame.file.endswith("torch/autograd/graph.py") and frame.name == "_engine_run_backward":
                return "backward"
            if _DEVICE.search(frame.file) and frame.name.rpartition(".")[2] in ("synchronize", "wait", "query"):
                return "synchronize"
            if not frame.file.endswith(("torch/_ops.py", "torch/_tensor.py")):
                return ""
        return ""

    @property
    def loads(self) -> bool:
        """True if the thread is in torch's DataLoader, as where it waits for the next batch."""
        return any(one.file.endswith(_LOADER) for one in self.frames)

    @property
    def is_loader_worker(self) -> bool:
        """True if the thread is in a DataLoader worker's loop."""
        return any(one.file.endswith(_WORKER) for one in self.frames)

    @property
    def joins(self) -> bool:
        """True if the thread joins (waits for) another thread of its process."""
        return bool(self.frames) and self.frames[0].name.rpartition(".")[2] in ("join", "_wait_for_tstate_lock")


@frozen
class Stacks:
    """All threads of a process."""

    threads: tuple[Stack, ...]
    main: int

    @property
    def acting(self) -> Stack | None:
        """The thread that does the job's work: the main one, else (if that joins another) one that acts for it.

        That is the first in a collective or in torch's DataLoader, else the main one. None without any thread.
        """
        main = next((one for one in self.threads if one.thread == self.main), None) or next(iter(self.threads), None)
        if main and main.joins:
            others = (one for one in self.threads if one is not main and (one.collective or one.loads))
            return next(others, main)
        return main


def stacks_of(target: Local, program: str | Unread, pid: int) -> Stacks | Unread:
    """The Python stacks of the process by py-spy (`program`); torn ones are asked again.

    Unread as `program` is, or where py-spy may not or cannot look into the process.
    """
    if isinstance(program, Unread):
        return program
    why = Unread("not asked")
    for _ in range(_TRIES):
        try:
            answer = target.run([program, *_OPTIONS, str(pid)], _PY_SPY_SECONDS, {"RUST_BACKTRACE": "0"})
        except OSError as error:
            return Unread(f"py-spy cannot be started: {error.strerror or error}", reason=Reason.FAILED)
        if answer.ok and (found := _parse_dump(answer.out, pid)):
            return found
        if answer.status is None:
            return Unread(f"py-spy {answer.how}", reason=Reason.TIMED_OUT)
        why = _refusal(pid, f"{answer.err}\n{answer.out}")
        if why.reason in (Reason.DENIED, Reason.MISSING):
            break
    return why


def find_program(target: Local) -> str | Unread:
    """The path of py-spy: beside our own interpreter, where its package puts it, else on PATH; else unread."""
    beside = Path(sysconfig.get_path("scripts") or Path(sys.executable).parent) / "py-spy"
    found = str(beside) if os.access(beside, os.X_OK) else target.which("py-spy")
    return found or Unread("py-spy is not installed: pip install 'gpudoctor[job]'", reason=Reason.MISSING)


def _refusal(pid: int, complaint: str) -> Unread:
    """Why py-spy gave no stacks, from its error message, as an `Unread` with a `Reason`."""
    if not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
        return Unread("it ended while it was looked at", reason=Reason.MISSING)
    if _DENIED.search(complaint):
        return Unread(_permission_hint(), reason=Reason.DENIED)
    if _NO_PYTHON.search(complaint):
        return Unread("no Python interpreter is in it", reason=Reason.MISSING)
    first = next((line for line in complaint.splitlines() if line.strip()), "no output")
    return Unread(f"py-spy: {printable(first.removeprefix('Error: ').strip(), 120)}", reason=Reason.FAILED)


def _permission_hint() -> str:
    """Text on why py-spy may not read a process here, and how to permit it."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii").strip()
    except OSError:
        scope = "0"
    try:
        capabilities = re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text("ascii"), re.M)
    except OSError:
        capabilities = None
    may = bool(capabilities and int(capabilities[1], 16) >> 19 & 1)
    if scope == "3":
        return "the kernel lets nobody look into processes (kernel.yama.ptrace_scope is 3)"
    if scope in ("1", "2") and not may:
        return f"kernel.yama.ptrace_scope is {scope}, and CAP_SYS_PTRACE is not held: run gpudoctor job as root"
    if not may:
        return "it is another user's process, or a container forbids it: run as root, in a container with SYS_PTRACE"
    return "the kernel forbids to look into it (seccomp, a user namespace or a security module)"


def _parse_dump(out: str, pid: int) -> Stacks | None:
    """The stacks in py-spy's JSON; None if it is malformed or no thread has a frame."""
    try:
        listed = json.loads(out)
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, list):
        return None
    threads = tuple(_parse_threads(listed))
    return Stacks(threads, pid) if any(one.frames for one in threads) else None


def _parse_threads(listed: Sequence[object]) -> Iterator[Stack]:
    """Yields a `Stack` for each thread of py-spy's document."""
    for entry in listed:
        if isinstance(entry, Mapping):
            frames: Any = entry.get("frames")
            found = tuple(
                Frame(
                    printable(one.get("name"), 200), printable(one.get("filename"), 500), _int_or_zero(one.get("line"))
                )
                for one in (frames if isinstance(frames, list) else ())
                if isinstance(one, Mapping)
            )
            number = _int_or_zero(entry.get("os_thread_id")) or _int_or_zero(entry.get("thread_id"))
            yield Stack(number, printable(entry.get("thread_name") or "", 80), found)


def _int_or_zero(value: object) -> int:
    """The value if it is an integer (and no bool), else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
