"""Where the command's output goes, and its end, kept for the diagnosis.

What stdout and stderr lead to decides how the end is kept:

- a file: the command writes to it itself, and what it added is read from the file at its end;
- a pipe: it writes to a pipe of ours, from which a process moves everything on (`relay`);
- a terminal: it writes to a terminal of ours (a pty), from which the same process writes on. The pty changes no byte,
  has the size of the real one, and takes both streams in their order. Standard input, the process group and the
  controlling terminal stay the real ones, so that Ctrl-C, Ctrl-Z, passwords and line editing are as always. What sets
  the modes of its screen through stdout (curses), or reads keys from stderr, needs ``--untouched``;
- anything else (/dev/null, a socket of the journal): untouched, nothing is kept.

Where two of them are the same, they stay the same. Where anything fails, the streams are left as they are.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Collection
from dataclasses import dataclass, field

if sys.platform != "win32":
    import fcntl
    import termios

    from gpudoctor.target.passthrough.relay import KEPT_BYTES, Relay, Route, copy_window_size

assert sys.platform != "win32"  # what follows is POSIX's alone

_PIPE_BYTES = 1 << 20
"""Bytes that a pipe of ours holds, where the system allows it: the usual 64 KiB has both ends wait more often."""


@dataclass(slots=True)
class _File:
    """A file that the command writes to itself: its end is what was added from `begin` on."""

    descriptor: int
    begin: int


@dataclass(slots=True)
class Outputs:
    """The command's two output streams: `descriptors` are to be its 1 and 2 in place of ours."""

    descriptors: dict[int, int] = field(default_factory=dict)
    on_terminal: bool = False
    """Whether one of them is a terminal of ours."""
    kept_from: frozenset[str] = frozenset()
    """The kinds of what an end is kept of: ``file``, ``pipe``, ``terminal``."""
    _files: list[_File] = field(default_factory=list)
    _relay: Relay | None = None

    @classmethod
    def prepare(cls, kinds: Collection[str] = ("file", "pipe", "terminal")) -> Outputs:
        """Outputs for stdout and stderr as they are now, a pipe or pty of ours in place of each pipe or terminal.

        `kinds` limits which are replaced or, for files, read at the end. Starts the relay process where it made a pipe
        or pty. Never raises for what the streams are: those that cannot be replaced are left as they are.
        """
        outputs = cls()
        files: dict[tuple[int, int], _File] = {}
        routes: dict[tuple[int, int], tuple[Route, int]] = {}
        seen = set()
        for number in (1, 2):
            kind, identity = _kind_of(number)
            if kind not in kinds:
                continue
            seen.add(kind)
            if kind == "file":
                if identity not in files:
                    files[identity] = _File(os.dup(number), _position(number))
                continue
            try:
                if identity not in routes:
                    routes[identity] = _pty_route(number) if kind == "terminal" else _pipe_route(number)
            except OSError:
                seen.discard(kind)
                continue
            outputs.descriptors[number] = routes[identity][1]
            outputs.on_terminal = outputs.on_terminal or kind == "terminal"
        if routes:
            try:
                outputs._relay = Relay.start([route for route, _ in routes.values()])
            except OSError:  # no process may be started: everything stays as it is
                outputs.descriptors, outputs.on_terminal, seen = {}, False, seen & {"file"}
                for route, end in routes.values():
                    os.close(end)
                    os.close(route.source)
        outputs._files, outputs.kept_from = list(files.values()), frozenset(seen)
        return outputs

    def close_command_ends(self) -> None:
        """Close our copies of `descriptors`, which the started command has now."""
        for descriptor in set(self.descriptors.values()):
            os.close(descriptor)

    def printed(self) -> object:
        """A value that differs from that of an earlier call when the command has printed since, as far as that is seen.

        It is made of the relay's context switches and the sizes of the files written to.
        """
        sizes = []
        for file in self._files:
            with contextlib.suppress(OSError):
                sizes.append(os.fstat(file.descriptor).st_size)
        return self._relay.context_switches if self._relay else 0, sizes

    def end(self) -> bytes:
        """Wait until all that the command has written is passed on; its end, at most `KEPT_BYTES` of each stream.

        Files come first, the streams are joined by newlines; empty where nothing was kept.
        """
        parts = self._relay.end() if self._relay else []
        return b"\n".join([part for part in (*map(_end_of_file, self._files), *parts) if part])


def _kind_of(number: int) -> tuple[str, tuple[int, int]]:
    """(``file``, ``pipe`` or ``terminal`` that the descriptor leads to, device and inode or terminal that identify it).

    (empty, (0, 0)) for anything else, and for a closed descriptor.
    """
    try:
        found = os.fstat(number)
    except OSError:
        return "", (0, 0)
    if stat.S_ISREG(found.st_mode):
        return "file", (found.st_dev, found.st_ino)
    if stat.S_ISFIFO(found.st_mode):
        return "pipe", (found.st_dev, found.st_ino)
    return ("terminal", (found.st_dev, found.st_rdev)) if os.isatty(number) else ("", (0, 0))


def _pipe_route(number: int) -> tuple[Route, int]:
    """(route from a new pipe to that descriptor, descriptor of the pipe's writing end)."""
    source, end = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return Route(source, number, "pipe"), end


def _pty_route(number: int) -> tuple[Route, int]:
    """(route from a new pty to that terminal, descriptor of the pty to write to). Raises `OSError`."""
    source, end = os.openpty()
    try:
        modes = termios.tcgetattr(number)
        modes[1] &= ~termios.OPOST  # the real one does that, once
        termios.tcsetattr(end, termios.TCSANOW, modes)
    except termios.error as error:
        raise OSError(*error.args) from error
    copy_window_size(number, source)
    return Route(source, number, "terminal"), end


def _position(number: int) -> int:
    """File offset at which the next write goes: the file's size where it is opened for appending or has no offset."""
    with contextlib.suppress(OSError):
        if not fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND:
            return os.lseek(number, 0, os.SEEK_CUR)
    return os.fstat(number).st_size


def _end_of_file(file: _File) -> bytes:
    """What was added to the file since `begin`, at most its last `KEPT_BYTES` bytes; empty where it may not be read."""
    try:
        size = os.fstat(file.descriptor).st_size
        begin = max(file.begin if file.begin <= size else 0, size - KEPT_BYTES)
        handle = os.open(f"/proc/self/fd/{file.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(handle, KEPT_BYTES, begin)
        finally:
            os.close(handle)
    except OSError:
        return b""
