"""What a process waits for, by what the kernel says of its main thread: state, system call, file, peer, mount."""

from __future__ import annotations

import os
import platform
import re
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.core import system
from gpudoctor.probes._reading import Mount, folders, mount_in
from gpudoctor.target import proc
from gpudoctor.target.proc import first_bytes, stat_fields

_CALLS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "x86_64": {
        "sleep": (35, 230),
        "futex": (202, 449),
        "file": (0, 1, 17, 18, 19, 20, 72, 73, 74, 75, 77, 78, 217, 277, 285, 295, 296, 306),
        "socket": (42, 44, 45, 46, 47, 299, 307),
        "path": (2, 4, 6, 21, 76, 80, 82, 83, 84, 87, 137),
        "path at": (257, 262, 258, 263, 269, 332, 437, 439),
        "poll": (7, 271, 23, 270, 232, 281, 441, 43, 288),
        "child": (61, 247),
        "ioctl": (16,),
    },
    "aarch64": {
        "sleep": (101, 115),
        "futex": (98, 449),
        "file": (63, 64, 65, 66, 67, 68, 46, 25, 32, 82, 83, 61, 84, 47, 69, 70, 267),
        "socket": (203, 206, 207, 211, 212, 243, 269),
        "path": (43, 45, 49),
        "path at": (56, 79, 34, 35, 48, 291, 437, 439),
        "poll": (73, 72, 22, 441, 202, 242),
        "child": (260, 95),
        "ioctl": (29,),
    },
}
"""Numbers of system calls that wait, by what they wait for (Linux's tables for these processors, read 2026-11).

accept(2) is among those that poll: it waits for whoever comes, not for a peer.
"""
_SELECTS = (23, 270)
"""select(2) and pselect(2) of x86_64: without descriptors they are a sleep, as older Pythons do it."""
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread waits for. `kind` is sleep, lock, file, socket, pipe, events, child, device, nothing or hidden.

    `what` is the file or the peer, `mount` the file system of that file, where they are known. `state` is the letter of
    the kernel, `where` the function of the kernel that it sleeps in.
    """

    state: str
    kind: str
    what: str = ""
    mount: Mount | None = None
    where: str = ""


def is_frozen(pid: int) -> bool:
    """True if the process's freezer cgroup or a parent of it is frozen, which the process's state does not show."""
    listed = proc.text(f"/proc/{pid}/cgroup")
    return any(
        proc.text(f"{place}/freezer.state") in ("FROZEN", "FREEZING")
        or "frozen 1" in proc.text(f"{place}/cgroup.events")
        for place in folders(listed, "freezer")
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals of processes so far: processor seconds, bytes read and written, context switches of main threads."""

    cpu_seconds: float = 0.0
    moved: int = 0
    turns: int = 0


def wait_of(pid: int) -> Wait | None:
    """What the process's main thread waits for now; None if the process is gone.

    `kind` is ``nothing`` while it runs, as a zombie, and in a system call that `_CALLS` lacks or whose descriptor is
    not shown; ``hidden`` if the kernel does not show the call to this user.
    """
    fields = stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 2:
        return None
    state = _main_state(pid) or fields[1].decode()
    where = proc.text(f"/proc/{pid}/task/{pid}/wchan")
    where = "" if where == "0" else where
    if state in "ZX":
        return Wait(state, "nothing")
    call = proc.text(f"/proc/{pid}/task/{pid}/syscall").split()
    if not call:
        return Wait(state, "hidden", where=where)
    if call[0] in ("running", "-1"):
        return Wait(state, "nothing", where=where)
    number, arguments = int(call[0]), [int(word, 16) for word in call[1:7]]
    kind = next((kind for kind, numbers in _CALLS.get(platform.machine(), {}).items() if number in numbers), "")
    return _wait_in_call(pid, number, kind, arguments, Wait(state, "nothing", where=where))


def exit_of(pid: int) -> str:
    """How a zombie process ended: ``exit code 3``, ``SIGKILL``; ``""`` if it is no zombie or not readable."""
    fields = stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 51 or fields[1] != b"Z" or not fields[50].isdigit():
        return ""
    status = int(fields[50])
    if not status and not _shows_status(pid):
        return ""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _shows_status(pid: int) -> bool:
    """Whether the kernel shows us the process's status, which is 0 for others than its user and root."""
    try:
        return system.is_root() or os.stat("/proc/self").st_uid == os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return False


def progress_of(pids: Sequence[int]) -> Progress:
    """Sum of these processes' totals; ended ones count as 0."""
    cpu, moved, turns = 0.0, 0, 0
    for pid in pids:
        fields = stat_fields(f"/proc/{pid}/stat")
        if len(fields) > 14:
            cpu += (int(fields[12]) + int(fields[13])) / system.CLOCK_TICKS
        io = first_bytes(f"/proc/{pid}/io").decode("ascii", "replace")
        moved += sum(int(number) for number in re.findall(r"^[rw]char: (\d{1,18})$", io, re.M))
        status = first_bytes(f"/proc/{pid}/task/{pid}/status").decode("utf-8", "replace")
        turns += sum(int(number) for number in re.findall(r"ctxt_switches:\t(\d{1,18})$", status, re.M))
    return Progress(cpu, moved, turns)


def gpu_files(pid: int) -> set[str]:
    """The driver's device files that the process has open: ``nvidia0``, ``nvidiactl``; none where that is not shown."""
    opened = {proc.link(f"/proc/{pid}/fd/{name}") for name in proc.names(f"/proc/{pid}/fd")}
    return {path.removeprefix("/dev/") for path in opened if path.startswith("/dev/nvidia")}


def on_gpu(pid: int) -> bool:
    """True if the process has a GPU's own device file open (``nvidia0``); False where that is not shown."""
    return any(name.removeprefix("nvidia").isdecimal() for name in gpu_files(pid))


def mount_of(pid: int, path: str) -> Mount | None:
    """The file system that holds the path, as that process sees it; None if that is not shown."""
    return mount_in(proc.text(f"/proc/{pid}/mountinfo"), path)


def _wait_in_call(pid: int, number: int, kind: str, arguments: Sequence[int], plain: Wait) -> Wait:
    """What the process waits for in that system call, by the call's `kind` (a key of `_CALLS`; ``nothing`` for any
    other) and arguments; state and kernel function are those of `plain`.

    Paths and descriptors are looked up in the process's memory and /proc.
    """
    state, where = plain.state, plain.where
    if kind == "poll" and number in _SELECTS and not arguments[0] and platform.machine() == "x86_64":
        kind = "sleep"
    if kind in ("path", "path at"):
        path = _text_at(pid, arguments[kind == "path at"])
        if path and not path.startswith("/"):
            folder = proc.link(f"/proc/{pid}/cwd")
            path = f"{folder}/{path}" if folder else path
        return Wait(state, "file", path, mount_of(pid, path) if path else None, where)
    if kind in ("file", "socket", "ioctl"):
        return _wait_on_descriptor(pid, arguments[0], plain)
    names_of = {"sleep": "sleep", "futex": "lock", "poll": "events", "child": "child"}
    return Wait(state, names_of.get(kind, "nothing"), where=where)


def _wait_on_descriptor(pid: int, descriptor: int, plain: Wait) -> Wait:
    """`plain` completed by the file, pipe or socket that the process's descriptor is open on."""
    state, where = plain.state, plain.where
    opened = proc.link(f"/proc/{pid}/fd/{descriptor}")
    kind, _, rest = opened.partition(":[")
    if kind == "socket":
        return Wait(state, "socket", _peer(pid, rest.rstrip("]")), where=where)
    if kind == "pipe":
        return Wait(state, "pipe", where=where)
    if opened.startswith("/dev/"):
        return Wait(state, "device", opened, where=where)
    if opened.startswith("/"):
        return Wait(state, "file", opened, mount_of(pid, opened), where)
    return Wait(state, "events" if opened else "nothing", where=where)


def _peer(pid: int, inode: str) -> str:
    """The remote address of the process's socket with that inode, ``10.0.0.7:29500``; empty if no TCP socket has that
    inode.
    """
    for table in ("tcp", "tcp6"):
        for line in proc.text(f"/proc/{pid}/net/{table}").splitlines()[1:]:
            columns = line.split()
            if len(columns) > 9 and columns[9] == inode:
                address, _, port = columns[2].partition(":")
                return f"{_address(address)}:{int(port, 16)}"
    return ""


def _address(text: str) -> str:
    """An IP address in the kernel's hexadecimal form (``0100007F``) in the usual one; IPv4 inside IPv6 as IPv4."""
    import socket

    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    if len(raw) == 16 and raw.startswith(b"\0" * 10 + b"\xff\xff"):
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _text_at(pid: int, address: int) -> str:
    """The NUL-terminated text at that address of the process's memory; empty if it cannot be read."""
    if sys.platform == "win32":
        return ""
    try:
        handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = _LONGEST_PATH - address % _LONGEST_PATH  # up to the end of its page
        data = os.pread(handle, size, address)
        if b"\0" not in data:
            data += os.pread(handle, _LONGEST_PATH, address + size)
        return data.partition(b"\0")[0].decode("utf-8", "replace")
    except (OSError, OverflowError, ValueError):
        return ""
    finally:
        os.close(handle)


def _main_state(pid: int) -> str:
    """The state letter of the process's main thread, ``S``; empty if it is gone."""
    fields = stat_fields(f"/proc/{pid}/task/{pid}/stat")
    return fields[1].decode() if len(fields) > 1 else ""
