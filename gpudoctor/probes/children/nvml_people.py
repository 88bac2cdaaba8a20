"""Who a process is: the name that a person would know it by, and its user. Standard library only; Python 3.8."""

from __future__ import annotations

import _thread
import os
from typing import Callable, Dict, List, Tuple

_PYTHON = "python"
_VALUELESS = ("-W", "-X")
"""Options of Python that take the next word."""


class People:
    """Names and users by process id, each looked up once."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[str, int]] = {}
        self._users: Dict[int, str] = {}
        self._of: Dict[int, List[int]] = {}

    def of(self, pid: int, otherwise: Callable[[], str]) -> Tuple[str, str]:
        """Name and user; `otherwise` names it where the system does not."""
        if pid not in self._known:
            name = named(command(pid))
            if not name:
                try:
                    name = os.path.basename(otherwise().split(" ")[0])
                except Exception:
                    name = ""
            self._known[pid] = (name, owner(pid))
        name, uid = self._known[pid]
        return name, self._user(uid)

    def keep(self, gpu: int, pids: List[int]) -> None:
        """Forget the processes that are on no GPU any more: their numbers will be others'."""
        self._of[gpu] = pids
        if len(self._known) > sum(map(len, self._of.values())):
            living = {pid for listed in self._of.values() for pid in listed}
            self._known = {pid: known for pid, known in self._known.items() if pid in living}

    def _user(self, uid: int) -> str:
        """The name of a user; its number until the system has told, which a directory server may delay."""
        if uid < 0:
            return ""
        if uid not in self._users:
            self._users[uid] = "uid %d" % uid
            _thread.start_new_thread(self._look_up, (uid,))
        return self._users[uid]

    def _look_up(self, uid: int) -> None:
        import pwd

        try:
            self._users[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            return


def command(pid: int) -> List[str]:
    """The words that started it; none where the system does not tell."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return [word for word in file.read(4096).decode("utf-8", "replace").split("\0") if word]
    except OSError:
        return []


def owner(pid: int) -> int:
    """The user's number; -1 where the system does not tell."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return -1


def named(words: List[str]) -> str:
    """``train.py`` of ``/usr/bin/python3 -u train.py --secret x``; never more than a program, script or module."""
    if not words:
        return ""
    program = os.path.basename(words[0])
    if not program.startswith(_PYTHON):
        return program.split(" ")[0].rstrip(":")
    rest = iter(words[1:])
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
