"""Processes that the kernel holds in an uninterruptible wait (state D) while they are at the NVIDIA driver.

Such a process cannot be killed, and what holds it mostly holds the next one too. Waiting for a disk is the same state
for a moment: only a process that did not move between two looks counts. What a running gpudoctor has started does not
count: a child that wakes GPUs waits in the driver for seconds, and who started it says so where it does not come back.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from gpudoctor.core import system
from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, text_of, value_of
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._machine_kind import host_hidden
from gpudoctor.probes._reading import as_unread, line, names, names_in, number, text
from gpudoctor.target import Target, child
from gpudoctor.target.proc import link, stat_fields

NOT_YET = "windows"
FACTS = (
    column("stuck.pid", "int", "a process that the kernel cannot end and that is at the NVIDIA driver"),
    column("stuck.name", "text", "its name, such as nvidia-smi"),
    column("stuck.wchan", "text", "the kernel function that it waits in"),
    column("stuck.device", "text", "NVIDIA device file that it has open: /dev/nvidia0"),
    column("stuck.seconds", "int", "time since it started, which is the longest it can have been stuck", "s"),
)

DEADLINE = 3.0
MOST_PROCESSES = 4000
BUDGET_SECONDS = 0.02
"""Processes looked at, and seconds of our own time spent on it, newest first."""
_RECHECK_SECONDS = 0.25
"""Seconds between the two looks at a process in state D."""
_MOST_FILES = 256
_MOST_PARENTS = 16

_NVIDIA = pattern(r"nvidia|nvml|dcgm|\bnv-|uvm|cuda", re.I)
_CHILD = pattern(r"gpudoctor/(probes/children|kernels/child)/|@gpudoctor ")
"""In the command line of a child of ours: its file, or its own text where we run from a zip file."""
_CHANNEL = pattern(r"^_*(?:nv|rm_|uvm|os_acquire|osAcquire|RmInit)", re.I)
"""Kernel functions of the driver that a process may wait in."""


@frozen
class _Process:
    """A process in state D: pid, name, start time in clock ticks since boot, and its context-switch counts."""

    pid: str
    name: str
    started: int
    switches: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The process's folder in /proc."""
        return f"/proc/{self.pid}"


def probe(target: Target) -> Iterator[tuple[str, Rows]]:
    """Yields the group ``stuck``, from /proc; unread in a container where none of its own processes is stuck."""
    rows, hidden = stuck(target), host_hidden(target)
    yield "stuck", rows if rows or not hidden else Unread(f"none here, and {hidden}")


def stuck(target: Target) -> Rows:
    """Rows of processes stuck in the NVIDIA driver: in state D, not run for `_RECHECK_SECONDS`, not gpudoctor's own.

    Columns: pid, name, wchan, device, seconds. Unread if none was found before `BUDGET_SECONDS` or `MOST_PROCESSES`
    ended the search, or /proc cannot be listed.
    """
    listed = names(target, "/proc")
    if not isinstance(listed, list):
        return as_unread(listed)
    pids = sorted((name for name in listed if name.isdigit()), key=int, reverse=True)
    if not pids:
        return Unread("/proc shows no process")
    waiting, inspected = _uninterruptible(target, pids[:MOST_PROCESSES])
    others = [process for process in waiting if not _started_by_gpudoctor(target, process.pid)]
    suspects = [(process, device) for process in others if (device := _nvidia_device(target, process)) is not None]
    if suspects:
        time.sleep(_RECHECK_SECONDS)
    proc = str(target.path("/proc"))
    rows = tuple(
        _row(target, process, device)
        for process, device in suspects
        if _if_uninterruptible(target, proc, process.pid) == process
    )
    if not rows and inspected < len(pids):
        return Unread(f"only the newest {inspected} of {len(pids)} processes were looked at")
    return rows


def _uninterruptible(target: Target, pids: list[str]) -> tuple[list[_Process], int]:
    """Processes in state D, and how many of `pids` were looked at within `BUDGET_SECONDS` of processor time."""
    found: list[_Process] = []
    proc = str(target.path("/proc"))
    deadline = time.thread_time() + BUDGET_SECONDS
    for count, pid in enumerate(pids):
        if not count % 64 and time.thread_time() > deadline:
            return found, count
        if process := _if_uninterruptible(target, proc, pid):
            found.append(process)
    return found, len(pids)


def _if_uninterruptible(target: Target, proc: str, pid: str) -> _Process | None:
    """The process if it is in state D, else None; it compares equal to an earlier look if it has not run since.

    `proc`: where /proc is here.
    """
    fields = stat_fields(f"{proc}/{pid}/stat")
    if fields[1:2] != [b"D"]:
        return None
    status = text(target, f"/proc/{pid}/status", 1 << 16)
    switches = re.findall(r"^\w*voluntary_ctxt_switches:\s*(\d+)$", status, re.M) if isinstance(status, str) else []
    started = int(fields[20]) if len(fields) > 20 and fields[20].isdigit() else 0
    return _Process(pid, fields[0].decode("utf-8", "replace"), started, tuple(switches))


def _started_by_gpudoctor(target: Target, pid: str) -> bool:
    """True if the process or an ancestor was started by this program or by another running gpudoctor."""
    proc = str(target.path("/proc"))
    for _ in range(_MOST_PARENTS):
        fields = stat_fields(f"{proc}/{pid}/stat")
        if len(fields) < 3:
            return False
        parent = fields[2].decode()
        if int(pid) in child.begun and parent == str(os.getpid()):
            return True
        if _CHILD.search(_command_line(target, pid)) and "gpudoctor" in _command_line(target, parent):
            return True
        pid = parent
    return False


def _command_line(target: Target, pid: str) -> str:
    """The process's command line, joined by blanks; empty if it cannot be read."""
    cmdline = text(target, f"/proc/{pid}/cmdline", 4096)
    return cmdline.replace("\0", " ") if isinstance(cmdline, str) else ""


def _nvidia_device(target: Target, process: _Process) -> str | None:
    """The NVIDIA device file that the process has open; empty if only its name or wait channel points to the driver.

    None if nothing does.
    """
    for handle in names_in(target, f"{process.folder}/fd")[:_MOST_FILES]:
        goal = link(str(target.path(f"{process.folder}/fd") / handle))
        if goal.startswith("/dev/nvidia"):
            return goal
    program = _command_line(target, process.pid).partition(" ")[0]
    channel = line(target, f"{process.folder}/wchan")
    at_driver = _NVIDIA.search(process.name) or _NVIDIA.search(program) or _CHANNEL.match(text_of(channel))
    return "" if at_driver else None


def _row(target: Target, process: _Process, device: str) -> Row:
    """The row of a stuck process: pid, name, wchan, device (file, unread if ``""``), and seconds since its start."""
    folder = process.folder
    return {
        "pid": Known(int(process.pid), f"{folder}/stat"),
        "name": Known(process.name, f"{folder}/stat"),
        "wchan": _wait_channel(target, folder),
        "device": Known(device, f"{folder}/fd") if device else Unread("its open files show none, or may not be seen"),
        "seconds": _age(target, process),
    }


def _wait_channel(target: Target, folder: str) -> Fact:
    """The kernel function that the process waits in; unread if /proc shows ``0``, as it does to other users."""
    found = line(target, f"{folder}/wchan")
    if value_of(found) in ("0", "1"):
        return Unread(f"{folder}/wchan: only root may see it")
    return Unread(found.why) if isinstance(found, Absent) else found


def _age(target: Target, process: _Process) -> Fact:
    """Seconds since the process started; unread if its start or the uptime is not known."""
    uptime = value_of(number(target, "/proc/uptime"))
    if not isinstance(uptime, int) or not process.started:
        return Unread("its start is not known")
    return Known(max(0, uptime - process.started // system.CLOCK_TICKS), f"{process.folder}/stat")
