"""Who a process is: the name that a person would know it by, and its user. Standard library only; Python 3.8."""

from __future__ import annotations

import _thread
import os
import sys
from contextlib import suppress

if sys.platform != "win32":
    import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

_PYTHON = "python"
_VALUELESS = ("-W", "-X")
"""Options of Python that take the next word."""


class ProcessNames:
    """Display names and users of processes, each looked up once."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[str, int]] = {}
        self._users: Dict[int, str] = {}
        self._pids_by_gpu: Dict[int, List[int]] = {}

    def name_and_user(self, pid: int, fallback: Callable[[], str]) -> Tuple[str, str]:
        """Name and user of a process, looked up once; `fallback()` names it if /proc does not.

        Both empty if nothing tells them; the user is ``uid N`` until the system has answered.
        """
        if pid not in self._known:
            name = display_name(command(pid))
            if not name:
                try:
                    name = os.path.basename(fallback().split(" ")[0])
                except Exception:
                    name = ""
            self._known[pid] = (name, user_id(pid))
        name, uid = self._known[pid]
        return name, self._user(uid)

    def forget_ended(self, gpu: int, pids: List[int]) -> None:
        """Note the processes on a GPU and forget those that are on none any more: their pids will be reused."""
        self._pids_by_gpu[gpu] = pids
        if len(self._known) > sum(map(len, self._pids_by_gpu.values())):
            living = {pid for listed in self._pids_by_gpu.values() for pid in listed}
            self._known = {pid: known for pid, known in self._known.items() if pid in living}

    def _user(self, uid: int) -> str:
        """Name of the user; ``uid N`` until the system has answered or if it knows none, empty for -1.

        A directory server may be slow, so that the look-up runs in a thread.
        """
        if uid < 0:
            return ""
        if uid not in self._users:
            self._users[uid] = "uid %d" % uid
            _thread.start_new_thread(self._look_up, (uid,))
        return self._users[uid]

    def _look_up(self, uid: int) -> None:
        """Store the name of the user with that id, if the system knows one; not on Windows."""
        if sys.platform != "win32":
            with suppress(KeyError):
                self._users[uid] = pwd.getpwuid(uid).pw_name


def command(pid: int) -> List[str]:
    """The process's command line as a list; empty if it cannot be read."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return [word for word in file.read(4096).decode("utf-8", "replace").split("\0") if word]
    except OSError:
        return []


def user_id(pid: int) -> int:
    """The user id of the process; -1 if it cannot be read."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1


def display_name(argv: List[str]) -> str:
    """A short name for a command line, never more than a program, script or module; empty for an empty list.

    ``train.py`` for ``/usr/bin/python3 -u train.py --secret x``, ``-m torch`` for ``python -m torch x``.
    """
    if not argv:
        return ""
    program = os.path.basename(argv[0])
    if not program.startswith(_PYTHON):
        return program.split(" ")[0].rstrip(":")
    rest = iter(argv[1:])
    for word in rest:
        if word == "-m":
            return "-m " + next(rest, "")
        if word == "-c":
            return program
        if word in _VALUELESS:
            next(rest, "")
        elif not word.startswith("-"):
            return os.path.basename(word)
    return program
