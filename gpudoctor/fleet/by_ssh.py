"""Many hosts over ssh, by ClusterShell: node sets, fan-out, and its tree of gateways where one is configured."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gpudoctor.fleet.names import ordered
from gpudoctor.fleet.reading import Reply
from gpudoctor.fleet.remote import Hear, Question, because
from gpudoctor.model.errors import ExtraError, UsageError

LIMIT = 32 << 20
"""Bytes of an answer; more is not kept, and its document is cut off."""


def hosts(nodes: str) -> list[str]:
    """The names in a node set, ``node[01-08]``; raises `UsageError` for what is none, or without the library."""
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
    except ModuleNotFoundError as error:
        raise ExtraError("--hosts needs ClusterShell", "fleet") from error
    try:
        found = ordered(map(str, NodeSet(nodes)))
    except NodeSetException as error:
        raise UsageError(f"--hosts {nodes}: {error}; a node set is written node[01-08],login1 or @group") from error
    if not found or any(name.startswith("-") for name in found):  # ssh would take it for an option
        raise UsageError(f"--hosts {nodes}: {'no host in it' if not found else 'no host is called so'}")
    if not shutil.which("ssh"):
        raise UsageError("--hosts needs ssh on this machine: install OpenSSH's client")
    return found


def ask(names: Sequence[str], question: Question, hear: Hear, options: str = "") -> None:
    """Ask them all; every host gives one reply. `options` are those of ssh: ``-F FILE -l USER``.

    Ends after `question.budget` seconds whatever is still on its way: its ssh is ended, and with the connection goes
    what runs there.
    """
    from ClusterShell.Task import TimeoutError as OutOfTime
    from ClusterShell.Task import task_self

    task = task_self()
    task.set_info("fanout", question.fanout)
    task.set_info("connect_timeout", max(1, round(min(question.seconds, question.budget) / 3)))
    if options:
        task.set_info("ssh_options", options)
    for kept in ("stdout_msgtree", "stderr_msgtree"):
        task.set_default(kept, False)
    heard = _Heard(names, question, hear)
    seconds = min(question.seconds, question.budget)
    task.shell(question.bound, nodes=",".join(names), handler=heard, timeout=seconds, stderr=True)
    started = time.monotonic()
    try:
        with suppress(OutOfTime):
            task.resume(question.budget)
    finally:
        task.abort(kill=True)
        heard.rest(time.monotonic() - started)


class _Heard:
    """What ClusterShell tells, by its names: lines as they come, the end of each host's command, those out of time."""

    def __init__(self, names: Sequence[str], question: Question, hear: Hear) -> None:
        self._question = question
        self._hear = hear
        self._open: dict[str, tuple[list[bytes], list[bytes]]] = {name: ([], []) for name in names}
        self._sizes = dict.fromkeys(names, 0)
        self._started: dict[str, float] = {}

    def ev_start(self, _worker: Any) -> None:
        """Nothing to be told."""

    def ev_pickup(self, _worker: Any, node: str) -> None:
        """Its ssh has been started."""
        self._started[node] = time.monotonic()

    def ev_read(self, _worker: Any, node: str, stream: str, line: bytes) -> None:
        """A line of either stream."""
        lines = self._open.get(node)
        if lines and self._sizes[node] < LIMIT:
            self._sizes[node] += len(line)
            lines[stream == "stderr"].append(line)

    def ev_hup(self, _worker: Any, node: str, status: int) -> None:
        """Its ssh has ended."""
        self._tell(node, status)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """All have ended, or are out of time."""
        for node in worker.iter_keys_timeout() if timedout else ():
            self._tell(str(node), None)

    def rest(self, seconds: float) -> None:
        """The budget is used up: those on their way, and those whose turn never came."""
        for node in list(self._open):
            asked = node in self._started
            words = "was still being asked" if asked else "was not asked any more"
            self._tell(node, None, f"{words} when all had taken {seconds:.0f} s")

    def _tell(self, node: str, status: int | None, why: str = "") -> None:
        lines = self._open.pop(node, None)
        if lines is not None:
            out, err = (b"\n".join(part).decode("utf-8", "replace") for part in lines)
            self._hear(Reply(out, host=node, because=why or because(status, err, self._question)))
