"""Processes that the kernel holds in an uninterruptible wait (state D) while they are at the NVIDIA driver.

Such a process cannot be killed, and what holds it mostly holds the next one too. Waiting for a disk is the same state
for a moment: only a process that did not move between two looks counts. What a running gpudoctor has started does not
count: a child that wakes GPUs waits in the driver for seconds, and who started it says so where it does not come back.
"""

from __future__ import annotations

import os
import re
import time

from gpudoctor.model.fact import Fact, Known, Row, Rows, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import line, names, text
from gpudoctor.target import Target, child

MOST = 4000
BUDGET = 0.02
"""Processes looked at, and seconds of our own time spent on it, newest first."""
_BETWEEN = 0.25
"""Seconds between the two looks at a process in state D."""
_MOST_FILES = 256

_MOST_PARENTS = 16

_STAT = pattern(r"(\d+) \((.*)\) (\S) (.*)", re.S)
_NVIDIA = pattern(r"nvidia|nvml|dcgm|\bnv-|uvm|cuda", re.I)
_CHILD = pattern(r"gpudoctor/(probes/children|kernels/child)/|@gpudoctor ")
"""In the command line of a child of ours: its file, or its own text where we run from a zip file."""
_CHANNEL = pattern(r"^_*(?:nv|rm_|uvm|os_acquire|osAcquire|RmInit)", re.I)


@frozen
class _Process:
    pid: str
    name: str
    started: int
    moves: str


def stuck(target: Target) -> Rows:
    """One row per process; unread where the scan found none and did not get to its end."""
    listed = names(target, "/proc")
    if not isinstance(listed, list):
        return Unread(listed.why)
    pids = sorted((name for name in listed if name.isdigit()), key=int, reverse=True)
    if not pids:
        return Unread("/proc shows no process")
    waiting, seen = _waiting(target, pids[:MOST])
    others = [process for process in waiting if not _is_ours(target, process.pid)]
    suspects = [(process, device) for process in others if (device := _at_the_driver(target, process)) is not None]
    if suspects:
        time.sleep(_BETWEEN)
    rows = tuple(_row(target, process, device) for process, device in suspects if _still(target, process))
    if not rows and seen < len(pids):
        return Unread(f"only the newest {seen} of {len(pids)} processes were looked at")
    return rows


def _waiting(target: Target, pids: list[str]) -> tuple[list[_Process], int]:
    """Those in state D, and how many were looked at."""
    found: list[_Process] = []
    folder = str(target.path("/proc"))
    deadline = time.thread_time() + BUDGET
    for count, pid in enumerate(pids):
        if not count % 64 and time.thread_time() > deadline:
            return found, count
        process = _look(target, folder, pid)
        if process:
            found.append(process)
    return found, len(pids)


def _is_ours(target: Target, pid: str) -> bool:
    """Whether it, or what it descends from, was started by us or by another gpudoctor that still runs."""
    folder = str(target.path("/proc"))
    for _ in range(_MOST_PARENTS):
        match = _STAT.match(_stat(f"{folder}/{pid}/stat"))
        if not match:
            return False
        parent = match[4].split()[0]
        if int(pid) in child.begun and parent == str(os.getpid()):
            return True
        if _CHILD.search(_command(target, pid)) and "gpudoctor" in _command(target, parent):
            return True
        pid = parent
    return False


def _command(target: Target, pid: str) -> str:
    words = text(target, f"/proc/{pid}/cmdline", 4096)
    return words.replace("\0", " ") if isinstance(words, str) else ""


def _stat(path: str) -> str:
    """The file's text, at half the price of a Python file: on large machines there are thousands."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(handle, 1024).decode("utf-8", "replace")
    except OSError:  # it ended meanwhile
        return ""
    finally:
        os.close(handle)


def _look(target: Target, folder: str, pid: str) -> _Process | None:
    """The process, if it is in state D. Fields after the state: parent is the first, start time the nineteenth."""
    match = _STAT.match(_stat(f"{folder}/{pid}/stat"))
    if not match or match[3] != "D":
        return None
    fields = match[4].split()
    started = int(fields[18]) if len(fields) > 18 and fields[18].isdigit() else 0
    return _Process(pid, match[2], started, _moves(target, pid))


def _moves(target: Target, pid: str) -> str:
    """How often it was put on and off a processor; the same number twice means that it has not moved."""
    found = text(target, f"/proc/{pid}/status", 1 << 16)
    return " ".join(re.findall(r"^\w*voluntary_ctxt_switches:\s*(\d+)$", found, re.M)) if isinstance(found, str) else ""


def _still(target: Target, process: _Process) -> bool:
    return _look(target, str(target.path("/proc")), process.pid) == process


def _at_the_driver(target: Target, process: _Process) -> str | None:
    """The NVIDIA device file it has open, empty where only its name or wait channel tells; None where nothing does."""
    folder = f"/proc/{process.pid}"
    opened = names(target, f"{folder}/fd")
    for number in opened[:_MOST_FILES] if isinstance(opened, list) else ():
        goal = _goal(target, f"{folder}/fd", number)
        if goal.startswith("/dev/nvidia"):
            return goal
    words = text(target, f"{folder}/cmdline", 4096)
    channel = line(target, f"{folder}/wchan")
    named = _NVIDIA.search(process.name) or (isinstance(words, str) and _NVIDIA.search(words.partition("\0")[0]))
    return "" if named or (isinstance(channel, Known) and _CHANNEL.match(str(channel.value))) else None


def _goal(target: Target, folder: str, name: str) -> str:
    """What a link says. It is not followed: the file behind it may be what hangs."""
    try:
        return os.readlink(target.path(folder) / name)  # noqa: PTH115 - text, not a path of ours
    except OSError:
        return ""


def _row(target: Target, process: _Process, device: str) -> Row:
    folder = f"/proc/{process.pid}"
    return {
        "pid": Known(int(process.pid), f"{folder}/stat"),
        "name": Known(process.name, f"{folder}/stat"),
        "wchan": _channel(target, folder),
        "device": Known(device, f"{folder}/fd") if device else Unread("its open files show none, or may not be seen"),
        "seconds": _age(target, process),
    }


def _channel(target: Target, folder: str) -> Fact:
    """The kernel function it waits in; ``0`` is what other users are told."""
    found = line(target, f"{folder}/wchan")
    if isinstance(found, Known) and found.value not in ("0", "1"):
        return found
    return Unread(f"{folder}/wchan: only root may see it" if isinstance(found, Known) else found.why)


def _age(target: Target, process: _Process) -> Fact:
    uptime = text(target, "/proc/uptime", 64)
    match = re.match(r"\d+", uptime) if isinstance(uptime, str) else None
    if not match or not process.started:
        return Unread("its start is not known")
    ticks = os.sysconf("SC_CLK_TCK")
    return Known(max(0, int(match[0]) - process.started // ticks), f"/proc/{process.pid}/stat")
